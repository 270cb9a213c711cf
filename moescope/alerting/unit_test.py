"""``moescope alerts test FILE…``: rules over known data, and what must fire when."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moescope.alerting.alert import Alert
from moescope.alerting.rule_keeper import ALERT_NAME, RuleKeeper
from moescope.alerting.scratch_store import ScratchStore, scratch_store
from moescope.alerting.unit_test_case import Expectation, ExpectedAlert, RuleTest
from moescope.alerting.unit_test_file import RuleTestFile, read_test_file
from moescope.alerting.unit_test_input import filled
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings

_USUAL_SECONDS: Final = 60.0

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class RuleTestResult:
    """What came of one test: nothing to say is right."""

    file: str
    line: int
    name: str
    faults: tuple[str, ...]

    def to_text(self) -> str:
        """For a terminal."""
        if not self.faults:
            return f"ok      {self.name}"
        faults = "\n".join(fault.replace("\n", "\n        ") for fault in self.faults)
        return f"FAILED  {self.name}  ({self.file}:{self.line})\n        {faults}".replace("\n\n", "\n")


@dataclass(frozen=True, slots=True)
class RuleTestReport:
    """What came of all of them."""

    results: tuple[RuleTestResult, ...]

    @property
    def has_problem(self) -> bool:
        """Whether one failed."""
        return any(result.faults for result in self.results)

    def to_text(self) -> str:
        """For a terminal."""
        failed = sum(bool(result.faults) for result in self.results)
        last = f"{len(self.results)} test(s): {f'{failed} failed' if failed else 'all right'}"
        return "\n".join([*(result.to_text() for result in self.results), last])

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        tests = [
            {
                "file": one.file,
                "line": one.line,
                "name": one.name,
                "ok": not one.faults,
                "faults": list(one.faults),
            }
            for one in self.results
        ]
        return {"ok": not self.has_problem, "tests": tests}


def run_test_files(paths: Sequence[Path], progress: Progress) -> RuleTestReport:
    """Run files of tests, each test over a store of its own.

    Raises:
        AlertRuleError: a file that cannot be used.
    """
    files = [read_test_file(path) for path in paths]
    total = sum(len(file.tests) for file in files)
    results: list[RuleTestResult] = []
    with scratch_store() as scratch:
        for file in files:
            for test in file.tests:
                progress("tests", len(results), total)
                results.append(run_test(scratch, file, test))
    progress("tests", total, total)
    return RuleTestReport(tuple(results))


def run_test(scratch: ScratchStore, file: RuleTestFile, test: RuleTest) -> RuleTestResult:
    """Run one test: fill the store, evaluate from its start to its last time, and compare."""
    with filled(scratch, test, time.time()) as start:
        faults = tuple(_faults(scratch.store, file, test, start))
    return RuleTestResult(str(file.path), test.line, test.name, faults)


def _faults(store: Store, file: RuleTestFile, test: RuleTest, start: float) -> Iterator[str]:
    keepers = _keepers(file, test, file.settings)
    due = dict.fromkeys(keepers, start)
    for expectation in sorted(test.expectations, key=lambda one: one.eval_seconds):
        until = start + expectation.eval_seconds
        for keeper in keepers:
            step = file.interval_seconds or keeper.group.interval_seconds or _USUAL_SECONDS
            while due[keeper] <= until + 1e-6:
                keeper.evaluate(store, due[keeper], keeper.group.delay_seconds or 0.0)
                due[keeper] += step
        named = [keeper for keeper in keepers if keeper.rule.name == expectation.alertname]
        errors = {keeper.last_error for keeper in named if keeper.last_error}
        yield from (f"{_moment(expectation)}: {keeper}" for keeper in sorted(errors))
        if not errors:
            found = [
                alert for keeper in named for alert in keeper.alerts() if alert.state is expectation.state
            ]
            if fault := compare(expectation, found):
                yield fault


def _keepers(file: RuleTestFile, test: RuleTest, settings: Settings) -> list[RuleKeeper]:
    named = {one.alertname for one in test.expectations}
    return [
        RuleKeeper(group, rule, settings)
        for group in file.groups
        for rule in group.rules
        if rule.name in named
    ]


def compare(expectation: Expectation, found: Sequence[Alert]) -> str:
    """What is not as expected, in words; empty if all is."""
    rest = list(found)
    missing: list[tuple[ExpectedAlert, str]] = []
    for wanted in expectation.alerts:
        match = next((alert for alert in rest if _labels(alert) == dict(wanted.labels)), None)
        if match is None:
            missing.append((wanted, ""))
            continue
        rest.remove(match)
        if difference := _difference(wanted, match):
            missing.append((wanted, difference))
    if not missing and not rest:
        return ""
    lines = [
        f"{_moment(expectation)}: {expectation.state.value} alerts of {expectation.alertname} are not these:"
    ]
    for wanted, difference in missing:
        lines.append(f"- {_shown(wanted.labels)}{'' if difference else '   is not there'}")
        lines += [f"    {line}" for line in difference.splitlines()]
    lines += [f"+ {_shown(_labels(alert))}   was not expected" for alert in rest]
    return "\n".join(lines)


def _difference(wanted: ExpectedAlert, found: Alert) -> str:
    lines = []
    for name, text in wanted.annotations.items():
        has = found.annotations.get(name)
        if has != text:
            lines += [
                f"{name}: expected {text}",
                f"{' ' * len(name)}  found    {'nothing' if has is None else has}",
            ]
    if wanted.value is not None and not math.isclose(wanted.value, found.value, rel_tol=1e-6):
        lines.append(f"value: expected {wanted.value:g}, found {found.value:g}")
    return "\n".join(lines)


def _labels(alert: Alert) -> dict[str, str]:
    return {name: text for name, text in alert.labels.items() if name != ALERT_NAME}


def _moment(expectation: Expectation) -> str:
    minutes, seconds = divmod(round(expectation.eval_seconds), 60)
    return f"line {expectation.line}, at {minutes}m{f'{seconds}s' if seconds else ''}"


def _shown(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{text}"' for name, text in sorted(labels.items())) + "}"
