"""`alerts test --replay`: what would have fired, when and for how long; and the command line around it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest

from moescope.alerting.replay import ReplayReport, replay
from moescope.alerting.rule_file import read_rule_files
from moescope.schemas.errors import QueryError
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings

START = 1_800_000_000.0
EXPR = "SELECT 'k3' AS service, 3 AS value WHERE {at:DateTime64(3)} > 0"


class Past:
    """A store in which the expert was hot in some minutes."""

    def __init__(self, *hot: range) -> None:
        self.hot = [(START + 60 * one.start, START + 60 * one.stop) for one in hot]
        self.fails = False

    def ask(self, _sql, params) -> pa.Table:
        if self.fails:
            raise QueryError("unknown table")
        at = float(params["at"])
        rows = [{"service": "k3", "value": 3.0}] if any(start <= at < end for start, end in self.hot) else []
        return pa.Table.from_pylist(
            rows, schema=pa.schema([pa.field("service", pa.string()), pa.field("value", pa.float64())])
        )


@pytest.fixture
def ask(rule_file: Callable[..., Path]) -> Callable[..., ReplayReport]:
    path = rule_file(expr=EXPR, for_="2m", annotations={"summary": "hot in {{ $labels.service }}"})
    groups = read_rule_files([path])
    settings = Settings(alert_interval_seconds=60, alert_delay_seconds=0)

    def run(store: Past, minutes: int = 60, **options) -> ReplayReport:
        shown: list[tuple[str, int, int | None]] = []
        span = (START, START + 60 * minutes)
        report = replay(groups, settings, store, span, progress=lambda *one: shown.append(one), **options)
        assert [done for _, done, _ in shown] == list(range(1, report.evaluations + 1))
        return report

    return run


def test_each_time_that_an_alert_would_have_fired_is_told_with_its_length(ask):
    report = ask(Past(range(5, 18), range(30, 31), range(50, 90)))

    assert [(one.fired_at, one.ended_at) for one in report.episodes] == [
        (START + 7 * 60, START + 18 * 60),
        (START + 52 * 60, None),
    ]
    *told, last = report.to_text().splitlines()
    assert told == [
        '2027-01-15 08:07:00  ExpertHot  {service="k3"}  until 2027-01-15 08:18:00, 11m 0s',
        "                     hot in k3",
        '2027-01-15 08:52:00  ExpertHot  {service="k3"}  still fires, 8m 0s',
        "                     hot in k3",
    ]
    assert last.startswith(
        "2027-01-15 08:00:00 to 2027-01-15 09:00:00 UTC: 2 alert(s) would have fired, in 60"
    )
    answer = json.loads(json.dumps(report.to_dict()))
    jsonschema.validate(answer, read_report_schema("alerts_replay"))
    assert answer["episodes"][0]["endedAt"] == "2027-01-15T08:18:00.000Z"


def test_a_quiet_past_says_so(ask):
    report = ask(Past())

    assert (report.episodes, report.events, report.has_problem) == ((), (), False)
    assert "nothing would have fired, in 60 evaluations" in report.to_text()


def test_a_longer_step_asks_less(ask):
    assert ask(Past(), step=300).evaluations == 12


def test_evaluations_that_fail_are_told_once_and_make_the_answer_no_whole(ask):
    store = Past()
    store.fails = True

    report = ask(store)

    assert (report.failures, report.has_problem, len(report.errors)) == (60, True, 1)
    assert "group hot, rule ExpertHot: unknown table" in report.to_text()


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "moescope", "alerts", *arguments],
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_check_that_finds_something_ends_with_1_and_says_it_as_json(rule_file: Callable[..., Path]):
    done = run("check", "--json", str(rule_file(exprr="x")))

    assert done.returncode == 1
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, read_report_schema("alerts_check"))
    (finding,) = answer["findings"]
    assert "exprr: no such key; did you mean expr?" in finding["message"]


@pytest.mark.parametrize(
    "arguments", [["check", "/nowhere.yaml"], ["test", "/nowhere_test.yaml"], ["run", "/nowhere.yaml"]]
)
def test_files_that_are_not_there_are_wrong_use(arguments: list[str]):
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert "/nowhere" in done.stderr
    assert "Traceback" not in done.stderr
