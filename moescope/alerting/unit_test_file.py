"""Test files of rules, in promtool's words: what is in the store, and what fires when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from moescope.alerting.alert_state import State
from moescope.alerting.rule import RuleGroup
from moescope.alerting.rule_file import read_rule_files
from moescope.alerting.series_notation import expand
from moescope.alerting.unit_test_case import Expectation, ExpectedAlert, Rows, RuleTest
from moescope.alerting.yaml_keys import (
    Key,
    check_keys,
    duration_seconds,
    is_count,
    is_duration,
    is_interval,
    is_list,
    is_mapping,
    is_span,
    is_text,
    read_document,
    refuse_file,
    value_at,
)
from moescope.checking.yaml_document import Document, KeyPath, Place, Problem
from moescope.schemas.errors import SettingError
from moescope.schemas.settings import Settings, load_settings

_SPAN: Final = "a span of time, as in 30s or 5m"
_STATES: Final = (State.FIRING.value, State.PENDING.value, State.NO_DATA.value)
_ROOT: Final = {
    "rule_files": Key(
        "a list of rule files, seen from this file",
        lambda value: is_list(value) and all(map(is_text, value)),
        is_needed=True,
    ),
    "evaluation_interval": Key(f"{_SPAN}; at least 1s", is_interval),
    "settings": Key("a mapping from setting to value", is_mapping),
    "tests": Key("a list of tests", is_list, is_needed=True),
}
_TEST: Final = {
    "name": Key("what the test says, as a sentence", is_text, is_needed=True),
    "interval": Key(_SPAN, is_span),
    "input": Key("a list of rows: table, columns, values", is_list),
    "simulate": Key("a mapping: what `moescope simulate` takes", is_mapping),
    "alert_rule_test": Key("a list of what fires when", is_list, is_needed=True),
}
_INPUT: Final = {
    "table": Key("a table or view of the schema", is_text, is_needed=True),
    "columns": Key("a mapping from column to value", is_mapping),
    "values": Key("a mapping from column to values over time, as in '0x4 30+1x5'", is_mapping),
    "count": Key("how many rows, where values do not say", is_count),
}
_SIMULATE: Final = {
    "model": Key("the name of a model", is_text),
    "ranks": Key("a whole number", is_count),
    "tensor_parallel": Key("a whole number", is_count),
    "redundant_experts": Key("a whole number", is_count),
    "scenario": Key("what goes wrong, as in hot-expert,slow-rank@10m-20m", is_text),
    "backfill": Key(_SPAN, is_span, is_needed=True),
    "window": Key(_SPAN, is_span),
    "seed": Key("a whole number", is_count),
    "service": Key("a name", is_text),
}
_EXPECTATION: Final = {
    "eval_time": Key(_SPAN, is_duration, is_needed=True),
    "alertname": Key("the name of an alert", is_text, is_needed=True),
    "exp_alerts": Key(
        "a list of alerts; empty or left out: none fires", lambda value: isinstance(value, list)
    ),
    "exp_state": Key(f"one of {', '.join(_STATES)}; firing if left out", lambda value: value in _STATES),
}
_ALERT: Final = {
    "exp_labels": Key("a mapping from label to text, without alertname", is_mapping, is_needed=True),
    "exp_annotations": Key("a mapping from annotation to text; those left out are not compared", is_mapping),
    "exp_value": Key("a number; not compared if left out", lambda value: isinstance(value, int | float)),
}


@dataclass(frozen=True, slots=True)
class RuleTestFile:
    """A file of tests with the rules that it is about.

    Attributes:
        interval_seconds: between evaluations; None leaves that to the groups.
    """

    path: Path
    groups: tuple[RuleGroup, ...]
    interval_seconds: float | None
    settings: Settings = field(repr=False)
    tests: tuple[RuleTest, ...] = ()


def read_test_file(path: Path) -> RuleTestFile:
    """Read and check a file of tests and the rule files that it names.

    Raises:
        AlertRuleError: everything that is wrong with it, line by line.
    """
    document = read_document(path)
    problems = [*document.problems, *_problems(document)]
    if problems:
        raise refuse_file(path, problems)
    value = document.value
    try:
        settings = load_settings({}, **value.get("settings", {}))
    except (SettingError, TypeError, ValueError) as error:
        raise refuse_file(
            path, [Problem(document.place_of_key(("settings",)), "settings", str(error))]
        ) from None
    groups = read_rule_files([path.parent / name for name in value["rule_files"]])
    names = {rule.name for group in groups for rule in group.rules}
    tests = tuple(_test(document, place) for place in range(len(value["tests"])))
    unknown = [one for test in tests for one in test.expectations if one.alertname not in names]
    if unknown:
        known = ", ".join(sorted(names))
        raise refuse_file(
            path,
            [
                Problem(
                    Place(one.line, 1),
                    "alertname",
                    f"no rule {one.alertname}; there are {known}",
                )
                for one in unknown
            ],
        )
    interval = duration_seconds(value["evaluation_interval"]) if "evaluation_interval" in value else None
    return RuleTestFile(path, groups, interval, settings, tests)


def _problems(document: Document) -> Iterator[Problem]:
    yield from check_keys(document, (), "", _ROOT)
    value = document.value
    if not isinstance(value, dict):
        return
    for place, test in _each(value.get("tests")):
        path: KeyPath = ("tests", place)
        name = (
            f"test {test['name']!r}"
            if isinstance(test, dict) and is_text(test.get("name"))
            else f"test {place + 1}"
        )
        yield from check_keys(document, path, name, _TEST)
        if not isinstance(test, dict):
            continue
        for number, _ in _each(test.get("input")):
            yield from check_keys(document, (*path, "input", number), f"{name}, input", _INPUT)
            yield from _number_problems(document, (*path, "input", number), name)
        if is_mapping(test.get("simulate")):
            yield from check_keys(document, (*path, "simulate"), f"{name}, simulate", _SIMULATE)
        for number, one in _each(test.get("alert_rule_test")):
            inner: KeyPath = (*path, "alert_rule_test", number)
            yield from check_keys(document, inner, name, _EXPECTATION)
            for last, _ in _each(one.get("exp_alerts") if isinstance(one, dict) else None):
                yield from check_keys(document, (*inner, "exp_alerts", last), f"{name}, exp_alerts", _ALERT)


def _number_problems(document: Document, path: KeyPath, name: str) -> Iterator[Problem]:
    rows = value_at(document, path)
    values = rows.get("values") if isinstance(rows, dict) else None
    for column, text in values.items() if isinstance(values, dict) else ():
        try:
            expand(str(text))
        except ValueError as error:
            place = document.place_of_value((*path, "values", column))
            yield Problem(place, f"{name}, input: values.{column}", str(error))


def _each(value: Any) -> Iterator[tuple[int, Any]]:
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


def _test(document: Document, place: int) -> RuleTest:
    value = document.value["tests"][place]
    path: KeyPath = ("tests", place)
    expectations = tuple(
        _expectation(one, document.place_of_value((*path, "alert_rule_test", number)).line)
        for number, one in enumerate(value["alert_rule_test"])
    )
    return RuleTest(
        name=value["name"],
        interval_seconds=duration_seconds(value.get("interval", "1m")) or 60.0,
        rows=tuple(_rows(one) for one in value.get("input", ())),
        simulate=value.get("simulate"),
        expectations=expectations,
        line=document.place_of_value(path).line,
    )


def _rows(value: Mapping[str, Any]) -> Rows:
    values = {column: expand(str(text)) for column, text in value.get("values", {}).items()}
    count = max([value.get("count", 0), *map(len, values.values())]) or 1
    return Rows(value["table"], value.get("columns", {}), values, count)


def _expectation(value: Mapping[str, Any], line: int) -> Expectation:
    alerts = tuple(
        ExpectedAlert(_texts(one["exp_labels"]), _texts(one.get("exp_annotations", {})), one.get("exp_value"))
        for one in value.get("exp_alerts", ())
    )
    seconds = duration_seconds(value["eval_time"]) or 0.0
    return Expectation(seconds, value["alertname"], State(value.get("exp_state", "firing")), alerts, line)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(text).strip() for name, text in values.items()}
