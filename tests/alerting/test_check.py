"""`alerts check`: SQL is run without rows in a migrated store, and texts are held against its columns."""

from collections.abc import Callable
from pathlib import Path

import pytest

from moescope.alerting.check import check_rules
from moescope.alerting.rule_file import find_rule_files
from moescope.alerting.scratch_store import ScratchStore
from moescope.schemas.settings import Settings

AT = "WHERE time < {at:DateTime64(3)}"


@pytest.fixture
def check(scratch: ScratchStore):
    dsn = scratch.store.label
    return lambda *paths: check_rules(paths, Settings(), dsn)


def test_shipped_rules_have_nothing_to_say(check):
    report = check(*find_rule_files(""))

    assert [one.to_text() for one in report.findings] == []
    assert (report.rules > 0, report.has_problem) == (True, False)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"expr": f"SELECT expert FROM expert_failovers {AT}"}, "there is no column value"),
        ({"expr": f"SELECT service AS value FROM expert_failovers {AT}"}, "column value is string"),
        ({"expr": f"SELECT 1 AS value, time FROM expert_failovers {AT}"}, "column time is timestamp"),
        ({"expr": f"SELECT 1 AS value, expertt FROM expert_failovers {AT}"}, "expertt"),
        ({"expr": f"SELECT 1 AS value FROM expert_failover {AT}"}, "expert_failover"),
        (
            {"expr": f"SELECT 1 AS value, max(layer) FROM expert_failovers {AT}"},
            "column 'max(layer)' is no name",
        ),
        ({"expr": f"SELECT 1 AS value, reason AS alertname FROM expert_failovers {AT}"}, "and not alertname"),
        ({"expr": "INSERT INTO expert_load SELECT {at:DateTime64(3)}"}, "Syntax error"),
        ({"expr": f"SELECT 1 AS value, 'x' AS is_active FROM expert_failovers {AT}"}, "write a condition"),
        (
            {"expr": f"SELECT 1 AS value FROM expert_failovers {AT}", "no_data": "alert"},
            "needs a column is_active",
        ),
        (
            {
                "expr": f"SELECT layer, expert, 1 AS value FROM expert_failovers {AT}",
                "annotations": {"summary": "{{ $labels.experts }}"},
            },
            "summary: $labels.experts is no column of expr; did you mean $labels.expert?",
        ),
        (
            {
                "expr": f"SELECT layer, 'a' AS info_ranks, 1 AS value FROM expert_failovers {AT}",
                "annotations": {"summary": "{{ $info.rank }}"},
            },
            "$info.rank is no column info_rank of expr; did you mean $info.ranks?",
        ),
        (
            {"expr": f"SELECT layer, 1 AS value FROM expert_failovers {AT}", "labels": {"layer": "7"}},
            "labels.layer: expr has a column layer",
        ),
    ],
)
def test_a_rule_that_cannot_work_is_named(check, rule_file: Callable[..., Path], keys: dict, told: str):
    path = rule_file(**keys)

    report = check(path)

    (finding,) = report.findings
    assert report.has_problem
    assert finding.to_text().startswith(f"{path}:5: group hot, rule ExpertHot: ")
    assert told in finding.message


def test_a_rule_that_ignores_the_time_is_only_warned_of(check, rule_file: Callable[..., Path]):
    report = check(rule_file())

    assert not report.has_problem
    assert "warning: group hot, rule ExpertHot: expr does not use {at:DateTime64(3)}" in report.to_text()


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being_checked(
    check, rule_file: Callable[..., Path]
):
    report = check(rule_file("bad.yaml", exprr="x"), rule_file("good.yaml", expr="SELECT 1 AS valu"))

    assert [one.file.rpartition("/")[2] for one in report.findings] == ["bad.yaml", "good.yaml", "good.yaml"]
