"""The answer to a protocol as text, the worst first, and as JSON."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from moescope.analysis import words
from moescope.analysis.readiness import Readiness
from moescope.analysis.readiness_check import Bound, Check, CheckStatus, Section, Unit
from moescope.analysis.text_table import Column, render_table

_RED, _GREEN, _YELLOW, _BOLD, _PLAIN = "\033[31m", "\033[32m", "\033[33m", "\033[1m", "\033[0m"
_COLOURS: Final = {
    CheckStatus.FAILED: _RED,
    CheckStatus.NOT_CHECKED: _YELLOW,
    CheckStatus.PASSED: _GREEN,
}
_COLUMNS: Final = (
    *(Column("check", left=True), Column("measured"), Column("limit", left=True), Column("of", left=True)),
)
_INDENT: Final = "    "
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


def as_text(readiness: Readiness, width: int, *, has_colour: bool = False) -> str:
    """The answer for a person: what to do comes before what is well."""
    paint = _paint if has_colour else _leave
    failed, unknown, passed = (
        [check for check in readiness.checks if check.status is status] for status in CheckStatus
    )
    failed.sort(key=lambda check: (_is_forecast(check), -_how_far_beyond(check)))
    parts = ["\n".join(_heading(readiness, width, paint))]
    if failed:
        parts.append("\n".join(_details("failed", failed, width, paint)))
    if unknown:
        parts.append("\n".join(_details("not checked", unknown, width, paint)))
    if passed:
        rows = [[_name(check), _measured(check), _limit(check), _unit(check)] for check in passed]
        table = render_table(_COLUMNS, rows, width - len("  "))
        parts.append(f"{paint(CheckStatus.PASSED, 'passed')}\n{textwrap.indent(table, '  ')}")
    return "\n\n".join(parts)


def _heading(readiness: Readiness, width: int, paint: Any) -> Iterator[str]:
    counts = ", ".join(f"{readiness.count(status)} {status.value}" for status in CheckStatus)
    verdict = "READY" if readiness.is_ready else "NOT READY"
    colour = CheckStatus.PASSED if readiness.is_ready else CheckStatus.FAILED
    yield f"{paint(colour, verdict)}  {_clean(readiness.protocol.name)}: {counts}"
    yield _fill(readiness.source, width, "")
    if not readiness.is_ready and not readiness.count(CheckStatus.FAILED):
        why = "--strict counts what was not checked as failed" if readiness.is_strict else "nothing passed"
        yield f"Not ready because {why}."


def _details(title: str, checks: list[Check], width: int, paint: Any) -> Iterator[str]:
    yield paint(checks[0].status, title)
    for (evidence, action), alike in groupby(checks, key=lambda check: (check.evidence, check.action)):
        for check in alike:
            yield _fill(f"{_name(check)}{_comparison(check)}", width, _INDENT, first="  ")
        yield _fill(evidence, width, _INDENT)
        if action:
            yield _fill(f"→ {action}", width, f"{_INDENT}  ", first=_INDENT)


def _fill(text: str, width: int, indent: str, first: str | None = None) -> str:
    return textwrap.fill(
        _clean(text),
        width,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _name(check: Check) -> str:
    scope = f" [{check.scope}]" if check.scope else ""
    return f"{check.section.value}.{check.name}{scope}"


def _comparison(check: Check) -> str:
    if check.measured is None or check.limit is None or check.bound is None:
        return ""
    return f": {_measured(check)}, {_limit(check)} is asked for"


def _measured(check: Check) -> str:
    return "fine" if check.measured is None else _amount(check.measured, check.unit)


def _limit(check: Check) -> str:
    if check.limit is None or check.bound is None:
        return ""
    amount = _amount(check.limit, check.unit)
    return amount if check.bound is Bound.EXACTLY else f"{check.bound.value} {amount}"


def _unit(check: Check) -> str:
    """What the table's numbers are, where it does not stand beside them."""
    return {
        None: "",
        Unit.EXPERTS: "experts",
        Unit.RANKS: "ranks",
        Unit.REQUESTS: "requests",
    }.get(check.unit, "" if check.unit in {Unit.SHARE, Unit.SECONDS, Unit.TIMES} else str(check.unit))


def _amount(value: float, unit: Unit | None) -> str:
    if math.isinf(value):
        return "without end"
    if unit is Unit.SHARE:
        return words.percent(value)
    if unit is Unit.SECONDS:
        return words.seconds(value) if value < 60 else words.duration(value)
    if unit in {Unit.EXPERTS, Unit.RANKS, Unit.REQUESTS}:
        return words.integer(round(value))
    return f"{value:.2f}{' ×' if unit is Unit.TIMES else ''}"


def _clean(text: str) -> str:
    """Without what a terminal would take for a command: names come from whoever sent telemetry."""
    return _CONTROL.sub("", text)


def _is_forecast(check: Check) -> bool:
    """What is wrong now comes before what would be wrong if something failed."""
    return check.section is Section.PARTIAL_FAILURE and check.name != "worker_slow"


def _how_far_beyond(check: Check) -> float:
    """How many times the limit; what has no number comes first, it is there or it is not."""
    if check.measured is None or not check.limit or not check.measured:
        return math.inf
    times = check.measured / check.limit
    return max(times, 1 / times)


def _paint(status: CheckStatus, text: str) -> str:
    return f"{_BOLD}{_COLOURS[status]}{text}{_PLAIN}"


def _leave(_: CheckStatus, text: str) -> str:
    return text


def as_dict(readiness: Readiness) -> dict[str, Any]:
    """The JSON shape, ``schemas/reports/check.schema.json``."""
    return {
        "ready": readiness.is_ready,
        "strict": readiness.is_strict,
        "protocol": readiness.protocol.name,
        "source": readiness.source,
        "failed": readiness.count(CheckStatus.FAILED),
        "not_checked": readiness.count(CheckStatus.NOT_CHECKED),
        "passed": readiness.count(CheckStatus.PASSED),
        "checks": [_check_dict(check) for check in readiness.checks],
    }


def _check_dict(check: Check) -> dict[str, Any]:
    return {
        "section": check.section.value,
        "name": check.name,
        "scope": check.scope,
        "status": check.status.value.replace(" ", "_"),
        "measured": _finite(check.measured),
        "limit": _finite(check.limit),
        "unit": None if check.unit is None else check.unit.value,
        "bound": None if check.bound is None else check.bound.value.replace(" ", "_"),
        "evidence": check.evidence,
        "action": check.action,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
