"""Rule files are read strictly: every mistake is named with file, line, group, rule and the nearest name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from moescope.alerting.rule import NoData
from moescope.alerting.rule_file import SHIPPED_FOLDER, find_rule_files, read_rule_file, read_rule_files
from moescope.schemas.errors import AlertRuleError

GOOD = """\
groups:
  - name: hot
    interval: 1m
    query_offset: 45s
    limit: 23
    labels: {team: serving}
    rules:
      - alert: ExpertHot
        expr: |
          SELECT layer, expert, 1 AS value FROM expert_failovers
          WHERE time < {at:DateTime64(3)} LIMIT {sql_threads:UInt8}
        for: 1h30m
        keep_firing_for: 5m
        no_data: alert
        labels: {severity: page}
        annotations: {summary: "expert {{ $labels.expert }}"}
      - alert: ExpertHot
        expr: SELECT 1 AS value
        labels: {severity: ticket, team: other}
"""


def refused(path: Path) -> str:
    with pytest.raises(AlertRuleError) as error:
        read_rule_file(path)
    return str(error.value)


def test_a_file_is_read_with_everything_that_it_says(tmp_path: Path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)

    (group,) = read_rule_file(path)
    first, second = group.rules

    assert (group.name, group.interval_seconds, group.delay_seconds, group.limit) == ("hot", 60, 45, 23)
    assert (first.name, first.for_seconds, first.keep_firing_seconds) == ("ExpertHot", 5400, 300)
    assert (first.no_data, first.expression.parameters) == (NoData.ALERT, ("at", "sql_threads"))
    assert {name: text.source for name, text in second.labels.items()} == {
        "team": "other",
        "severity": "ticket",
    }
    assert (first.key, second.key) == ("hot/ExpertHot", "hot/ExpertHot#2")
    assert group.where(first) == f"{path}:8: group hot, rule ExpertHot"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"exprr": "x"}, ["group hot, rule ExpertHot: exprr: no such key; did you mean expr?"]),
        ({"expr": None}, ["group hot, rule ExpertHot: expr: missing; it takes one SELECT"]),
        (
            {"alert": None},
            ["group hot, rule number 1: alert: missing; it takes the alert's name, as in ExpertHot"],
        ),
        ({"for_": "5 minutes"}, ["rule ExpertHot: for: takes a span of time, as in 30s, 5m or 1h30m"]),
        ({"for_": "5"}, ["rule ExpertHot: for: takes a span of time"]),
        ({"for_": "367d"}, ["rule ExpertHot: for: takes a span of time", "up to a year"]),
        ({"for_": "9" * 5000 + "s"}, ["rule ExpertHot: for: takes a span of time"]),
        ({"no_data": "maybe"}, ["no_data: takes one of ok, keep, alert"]),
        ({"labels": ["page"]}, ["labels: takes a mapping from label to text"]),
        ({"labels": {"alertname": "x"}}, ["labels.alertname: no name for one"]),
        ({"labels": {"severity": "{{ $value }}"}}, ["a label must not change while the alert lasts"]),
        (
            {"annotations": {"summary": "{{ $value | humanise }}"}},
            ["no function humanise; did you mean humanize?"],
        ),
        (
            {"expr": "SELECT {hot_expert_ration:Float64} AS value"},
            ["expr: {hot_expert_ration:…} is neither", "did you mean {hot_expert_ratio:…}?"],
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(rule_file: Callable[..., Path], keys: dict, told: list[str]):
    path = rule_file(**keys)

    message = refused(path)

    assert message.startswith(f"1 problem in {path}; docs/alerts.md lists every key\n  {path}:")
    for words in told:
        assert words in message


def test_all_mistakes_are_told_at_once(tmp_path: Path):
    path = tmp_path / "rules.yaml"
    path.write_text(
        "groups:\n  - name: hot\n    intervall: 1m\n    rules:\n      - alert: A B\n        expression: x\n"
    )

    lines = refused(path).splitlines()

    assert lines[0].startswith("4 problems in")
    assert [line.split(":")[1] for line in lines[1:]] == ["3", "5", "5", "6"]


@pytest.mark.parametrize("text", ["", "groups: []", "- a", "groups:\n  - hot\n", "groups: {a: b}"])
def test_what_is_no_rule_file_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "rules.yaml"
    path.write_text(text)

    assert str(path) in refused(path)


@pytest.mark.parametrize("interval", ["0s", "-5s", "1ms", "999ms", "5", "99999999999999999999d", "''"])
def test_an_interval_that_no_clock_keeps_is_refused(tmp_path: Path, interval: str):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD.replace("interval: 1m", f"interval: {interval}"))

    assert f"{path}:3:15: group hot: interval: takes a span of time" in refused(path)


def test_two_groups_of_one_name_are_refused(rule_file: Callable[..., Path]):
    files = [rule_file("one.yaml"), rule_file("two.yaml")]

    with pytest.raises(AlertRuleError, match=r"group hot is in .*one.yaml too"):
        read_rule_files(files)


def test_shipped_rules_are_found_where_none_are_named_and_tests_are_not_among_them():
    files = find_rule_files("")

    assert files
    assert all(file.parent == SHIPPED_FOLDER and not file.name.endswith("_test.yaml") for file in files)
    assert read_rule_files(files)


def test_files_are_found_by_comma_and_pattern(rule_file: Callable[..., Path], tmp_path: Path):
    one, two = rule_file("one.yaml"), rule_file("two.yaml")

    assert find_rule_files(f"{two}, {one}") == [two, one]
    assert find_rule_files(str(tmp_path / "*.yaml")) == [one, two]
    with pytest.raises(AlertRuleError, match=r"no rule file at .*three.yaml"):
        find_rule_files([str(tmp_path / "three.yaml")])
