"""Read single parts of what Prometheus, Alertmanager and `moescope alerts run` say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from moescope.analysis.alert_records import AlertSeverity, AlertState, EvidenceLink, Silence

NAME: Final = "alertname"
SEVERITY: Final = "severity"
RUNBOOK: Final = "runbook"

_FIRST: Final = ("service", "ep_group", "phase", "layer", "expert", "ep_rank")
_OURS: Final = re.compile(r"\b(?:moe|moescope|gen_ai_server)_\w+|_moe_\w+|:moe_\w+")
_FRACTION: Final = re.compile(r"\.(\d{6})\d+")
_SEVERITIES: Final = {
    "page": AlertSeverity.PAGE,
    "critical": AlertSeverity.PAGE,
    "ticket": AlertSeverity.TICKET,
    "warning": AlertSeverity.TICKET,
}
_STATES: Final = {
    "firing": AlertState.FIRING,
    "pending": AlertState.PENDING,
    "no_data": AlertState.NO_DATA,
    "nodata": AlertState.NO_DATA,
}


def moment(text: object) -> datetime | None:
    """Return an RFC 3339 time, None where it is none or the zero that Go writes."""
    if not isinstance(text, str):
        return None
    try:
        # Go writes nanoseconds, of which Python reads six digits.
        read = datetime.fromisoformat(_FRACTION.sub(r".\1", text))
    except ValueError:
        return None
    return None if read.year <= 1 else read if read.tzinfo else read.replace(tzinfo=UTC)


def state_of(word: object) -> AlertState:
    """Return a state by the word of any source."""
    return _STATES.get(str(word).lower(), AlertState.INACTIVE)


def severity_of(labels: Mapping[str, str]) -> AlertSeverity:
    """Return whom an alert is for."""
    return _SEVERITIES.get(labels.get(SEVERITY, "").lower(), AlertSeverity.OTHER)


def about(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that say what an alert is about, the deployment first."""
    names = [name for name in labels if name not in {NAME, SEVERITY}]
    return {name: labels[name] for name in sorted(names, key=_rank_of_label)}


def is_about_moescope(rule: Mapping[str, Any]) -> bool:
    """Whether a rule looks at moescope's metrics; a Prometheus often has others too."""
    link = str(rule.get("annotations", {}).get("runbook_url", ""))
    return bool(_OURS.search(str(rule.get("query", "")))) or runbook_in(link) is not None


def runbook_in(link: str) -> str | None:
    """Return the runbook's heading that a link names, None where it is no link to the Alerts page."""
    parts = urlsplit(link)
    if not parts.path.endswith("/alerts"):
        return None
    return dict(parse_qsl(parts.query)).get(RUNBOOK)


def evidence(link: str) -> EvidenceLink | None:
    """Return where a ``dashboard_url`` leads, None where it is no address."""
    parts = urlsplit(link)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        return None
    return EvidenceLink(parts.path.rstrip("/").rpartition("/")[2], dict(parse_qsl(parts.query)), link)


def silence_link(alertmanager: str, labels: Mapping[str, str]) -> str:
    """Return the address of Alertmanager's form for a silence, with these labels filled in."""
    if not alertmanager:
        return ""
    named = {name: value for name, value in labels.items() if name != SEVERITY}
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in sorted(named.items()))
    return f"{alertmanager}/#/silences/new?filter={quote('{' + pairs + '}', safe='')}"


def silence_of(said: Mapping[str, Any]) -> Silence:
    """Return a silence as Alertmanager's API v2 says it."""
    return Silence(str(said.get("comment", "")), str(said.get("createdBy", "")), moment(said.get("endsAt")))


def matches(silence: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether every matcher of a silence holds for these labels; a label that is not there is empty."""
    return all(_holds(matcher, labels) for matcher in silence.get("matchers", ()))


def _rank_of_label(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _holds(matcher: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(str(matcher.get("name")), "")
    wanted = str(matcher.get("value", ""))
    try:
        is_like = bool(re.fullmatch(wanted, value)) if matcher.get("isRegex") else value == wanted
    except re.error:
        return False
    return is_like == bool(matcher.get("isEqual", True))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
