"""Who fires now: rules of `moescope alerts run` and Prometheus, with what Alertmanager says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from moescope.analysis.alert_http import addresses, get_json
from moescope.analysis.alert_parts import (
    NAME,
    about,
    evidence,
    is_about_moescope,
    matches,
    moment,
    runbook_in,
    severity_of,
    silence_link,
    silence_of,
    state_of,
)
from moescope.analysis.alert_records import (
    Alerts,
    AlertSeverity,
    AlertState,
    RuleState,
    ShownAlert,
    Silence,
    SourceState,
)
from moescope.analysis.store import without_password
from moescope.schemas.errors import AlertSourceError
from moescope.schemas.settings import Settings

_OURS: Final = "moescope alerts run"
_PROMETHEUS: Final = "Prometheus"
_ALERTMANAGER: Final = "Alertmanager"
_WAY_OUT: Final = {
    _OURS: "Start `moescope alerts run`, or name a Prometheus in `MOESCOPE_ALERT_SOURCES`.",
    _ALERTMANAGER: "Silences are not known. `MOESCOPE_ALERTMANAGER_URL` says where it is.",
}
_ORDER: Final = list(AlertState)
_SEVERITY_ORDER: Final = list(AlertSeverity)


@dataclass(frozen=True, slots=True)
class _Told:
    """What an Alertmanager has: its alerts and its active silences, as its API v2 says them."""

    address: str
    alerts: Sequence[Mapping[str, Any]]
    silences: Mapping[str, Mapping[str, Any]]


def read_alerts(settings: Settings) -> Alerts:
    """Ask every source of the settings, and the first Alertmanager, for what is now.

    A source that gives no answer is named in the result, with the way out; the others are shown all the same.
    """
    told, states = _read_alertmanager(settings)
    shown: list[ShownAlert] = []
    rules: list[RuleState] = []
    sources: list[SourceState] = []
    for address in addresses(settings.alert_sources):
        try:
            source, its_rules, its_alerts = _read_source(address, settings, told)
        except AlertSourceError as error:
            sources.append(_silent_source(address, error))
            continue
        sources.append(source)
        rules += its_rules
        shown += its_alerts
    active = sorted((alert for alert in shown if alert.state is not AlertState.INACTIVE), key=_urgency)
    return Alerts(
        tuple(alert for alert in active if alert.is_told),
        tuple(alert for alert in active if not alert.is_told),
        tuple(rules),
        (*sources, *states),
    )


def _read_source(
    address: str, settings: Settings, told: _Told | None
) -> tuple[SourceState, list[RuleState], list[ShownAlert]]:
    answer = get_json(address, "/api/v1/rules", settings, {"type": "alert"})
    label = without_password(address)
    try:
        groups: Sequence[Mapping[str, Any]] = answer["data"]["groups"]
        is_ours = _is_ours(groups)
        found = list(_rules(groups, is_ours=is_ours))
        rules = [_rule_state(group, rule, label) for group, rule in found]
        alerts = [_shown(alert, rule, label, told) for _, rule in found for alert in rule.get("alerts", ())]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise AlertSourceError(
            f"{label} answers, but is neither Prometheus nor `moescope alerts run`"
        ) from None
    return SourceState(label, _OURS if is_ours else _PROMETHEUS, len(found), ""), rules, alerts


def _is_ours(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Only `moescope alerts run` says what a rule does without data."""
    return any("noData" in rule for group in groups for rule in group.get("rules", ()))


def _rules(
    groups: Sequence[Mapping[str, Any]], *, is_ours: bool
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for group in groups:
        for rule in group.get("rules", ()):
            if rule.get("type", "alerting") == "alerting" and (is_ours or is_about_moescope(rule)):
                yield group, rule


def _rule_state(group: Mapping[str, Any], rule: Mapping[str, Any], source: str) -> RuleState:
    return RuleState(
        str(rule.get("name", "")),
        str(group.get("name", "")),
        source,
        state_of(rule.get("state")),
        str(rule.get("lastError") or "") if rule.get("health") == "err" else "",
        moment(rule.get("lastEvaluation")),
    )


def _shown(alert: Mapping[str, Any], rule: Mapping[str, Any], source: str, told: _Told | None) -> ShownAlert:
    labels = {str(name): str(value) for name, value in alert.get("labels", {}).items()}
    annotations = alert.get("annotations", {})
    name = labels.get(NAME) or str(rule.get("name", ""))
    silences, is_inhibited = _kept_quiet(labels, told)
    return ShownAlert(
        name=name,
        severity=severity_of(labels),
        state=state_of(alert.get("state")),
        labels=about(labels),
        summary=str(annotations.get("summary") or name),
        description=str(annotations.get("description", "")),
        value=str(alert.get("value", "")),
        since=moment(alert.get("activeAt")),
        runbook=runbook_in(str(annotations.get("runbook_url", ""))) or name,
        evidence=evidence(str(annotations.get("dashboard_url", ""))),
        silence_link=silence_link(told.address if told else "", {NAME: name, **labels}),
        silences=silences,
        is_inhibited=is_inhibited,
        source=source,
    )


def _kept_quiet(labels: Mapping[str, str], told: _Told | None) -> tuple[tuple[Silence, ...], bool]:
    """Which silences hold for an alert, and whether another one inhibits it.

    An Alertmanager knows best, once it has the alert: there it may carry more labels, those that are added
    on the way. Of one that it does not have yet, its matchers decide.
    """
    if told is None:
        return (), False
    pairs = labels.items()
    known = [one for one in told.alerts if pairs <= one.get("labels", {}).items()]
    if known:
        status = min(known, key=lambda one: len(one["labels"])).get("status", {})
        named = [told.silences[one] for one in status.get("silencedBy", ()) if one in told.silences]
        return tuple(map(silence_of, named)), bool(status.get("inhibitedBy"))
    return tuple(silence_of(one) for one in told.silences.values() if matches(one, labels)), False


def _read_alertmanager(settings: Settings) -> tuple[_Told | None, tuple[SourceState, ...]]:
    configured = addresses(settings.alertmanager_url)
    if not configured:
        return None, ()
    address, label = configured[0], without_password(configured[0])
    try:
        alerts = get_json(address, "/api/v2/alerts", settings)
        silences = get_json(address, "/api/v2/silences", settings)
        active = {one["id"]: one for one in silences if one["status"]["state"] == "active"}
        for alert in alerts:
            alert["labels"].items()
    except AlertSourceError as error:
        problem = f"{error}. {_WAY_OUT[_ALERTMANAGER]}"
        return _Told(label, (), {}), (SourceState(label, _ALERTMANAGER, 0, problem),)
    except (AttributeError, KeyError, TypeError):
        problem = f"{label} answers, but is no Alertmanager. {_WAY_OUT[_ALERTMANAGER]}"
        return None, (SourceState(label, _ALERTMANAGER, 0, problem),)
    return _Told(label, alerts, active), (SourceState(label, _ALERTMANAGER, 0, ""),)


def _silent_source(address: str, error: AlertSourceError) -> SourceState:
    return SourceState(without_password(address), "", 0, f"{error}. {_WAY_OUT[_OURS]}")


def _urgency(alert: ShownAlert) -> tuple[int, int, datetime, str]:
    since = alert.since or datetime.now(UTC)
    return (_ORDER.index(alert.state), _SEVERITY_ORDER.index(alert.severity), since, alert.name)
