"""``moescope alerts check``: everything that can be wrong with rules before they run."""

from __future__ import annotations

import contextlib
import difflib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moescope.alerting.datasource import Asks, Columns, read_columns
from moescope.alerting.rule import AlertRule, NoData, RuleGroup
from moescope.alerting.rule_file import read_rule_file
from moescope.alerting.scratch_store import scratch_store
from moescope.alerting.template import Template
from moescope.analysis.store import open_store
from moescope.schemas.errors import AlertRuleError, StoreError, StoreUnavailableError
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a rule. A warning does not fail the check."""

    file: str
    line: int
    group: str
    rule: str
    message: str
    is_warning: bool = False

    def to_text(self) -> str:
        """One line, as compilers write them."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        names = ", ".join(
            f"{kind} {name}" for kind, name in (("group", self.group), ("rule", self.rule)) if name
        )
        return (
            f"{place}: {'warning: ' if self.is_warning else ''}{names + ': ' if names else ''}{self.message}"
        )


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        files: that were checked.
        groups: that they hold.
        rules: that these hold.
        findings: in the order of the files.
    """

    files: tuple[str, ...]
    groups: int
    rules: int
    findings: tuple[Finding, ...]

    @property
    def has_problem(self) -> bool:
        """Whether the rules cannot be used as they are."""
        return any(not one.is_warning for one in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "files": list(self.files),
            "groups": self.groups,
            "rules": self.rules,
            "ok": not self.has_problem,
            "findings": [
                {
                    "file": one.file,
                    "line": one.line,
                    "group": one.group,
                    "rule": one.rule,
                    "level": "warning" if one.is_warning else "error",
                    "message": one.message,
                }
                for one in self.findings
            ],
        }

    def to_text(self) -> str:
        """For a terminal."""
        errors = sum(not one.is_warning for one in self.findings)
        verdict = f"{errors} error(s)" if errors else "all right"
        counts = f"{len(self.files)} file(s), {self.groups} group(s), {self.rules} rule(s): {verdict}"
        return "\n".join([*(one.to_text() for one in self.findings), counts])


def check_rules(paths: Sequence[Path], settings: Settings, dsn: str | None) -> CheckReport:
    """Read files, run each rule's SQL without rows, and compare its columns with the texts.

    Args:
        paths: rule files.
        settings: bound to the SQL by name.
        dsn: store to ask; a migrated empty one, embedded and temporary, if None.

    Raises:
        StoreUnavailableError: nobody answers at the DSN.
    """
    findings: list[Finding] = []
    groups: list[RuleGroup] = []
    for path in paths:
        try:
            groups += read_rule_file(path)
        except AlertRuleError as error:
            findings.append(Finding(str(path), 0, "", "", str(error)))
    findings += _twice(groups)
    if groups:
        with _opened(dsn) as store:
            for group in groups:
                for rule in group.rules:
                    for message, is_warning in _about_rule(store, rule, settings):
                        findings.append(
                            Finding(str(group.file), rule.line, group.name, rule.name, message, is_warning)
                        )
    return CheckReport(
        tuple(map(str, paths)), len(groups), sum(len(group.rules) for group in groups), tuple(findings)
    )


@contextlib.contextmanager
def _opened(dsn: str | None) -> Iterator[Asks]:
    if dsn is None:
        with scratch_store() as scratch:
            yield scratch.store
        return
    store = open_store(dsn)
    try:
        yield store
    finally:
        store.close()


def _twice(groups: Sequence[RuleGroup]) -> Iterator[Finding]:
    first: dict[str, RuleGroup] = {}
    for group in groups:
        other = first.setdefault(group.name, group)
        if other is not group:
            message = f"is in {other.file} too; the name tells their states apart, so rename one of them"
            yield Finding(str(group.file), 0, group.name, "", message)


def _about_rule(store: Asks, rule: AlertRule, settings: Settings) -> Iterator[tuple[str, bool]]:
    if not rule.expression.looks_at_a_time:
        yield "expr does not use {at:DateTime64(3)}: late data and replays are read as of now", True
    try:
        sql = rule.expression.as_query(0)
        columns = read_columns(store.ask(sql, rule.expression.bind(settings, time.time())).schema)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        yield f"expr: {error}", False
        return
    yield from ((message, False) for message in _about_columns(rule, columns))
    for where, template in (*rule.labels.items(), *rule.annotations.items()):
        yield from ((f"{where}: {message}", False) for message in _about_text(rule, template, columns))


def _about_columns(rule: AlertRule, columns: Columns) -> Iterator[str]:
    if rule.no_data is NoData.ALERT and not columns.says_what_it_sees:
        yield "no_data: alert needs a column is_active: without it a series that is gone is fine"
    for name in rule.labels.keys() & set(columns.labels):
        yield f"labels.{name}: expr has a column {name}, which this would hide; rename one of them"


def _about_text(rule: AlertRule, template: Template, columns: Columns) -> Iterator[str]:
    known = {*columns.labels, *rule.labels, "alertname"}
    for name in sorted(template.labels - set(columns.labels)):
        yield f"$labels.{name} is no column of expr{_hint(name, known & set(columns.labels), '$labels.')}"
    for name in sorted(template.info - {column.removeprefix("info_") for column in columns.info}):
        names = {column.removeprefix("info_") for column in columns.info}
        yield f"$info.{name} is no column info_{name} of expr{_hint(name, names, '$info.')}"


def _hint(name: str, known: set[str], prefix: str) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    if near:
        return f"; did you mean {prefix}{near[0]}?"
    return f"; it has {', '.join(prefix + one for one in sorted(known))}" if known else "; it has none"
