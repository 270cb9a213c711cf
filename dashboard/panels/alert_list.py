"""Alerts as cards: what is wrong, since when, the evidence, what to do, and a way to silence it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from moescope.analysis.alert_records import Alerts, AlertSeverity, AlertState, ShownAlert, SourceState
from moescope.analysis.alert_words import headline, quiet_words, rest, rule_words, state_words, value_words
from moescope.analysis.runbook import RunbookSection
from moescope.dashboard.labels import time_label
from moescope.dashboard.links import PAGES, SQL, link_to
from moescope.dashboard.view import QUERY

_SEVERITY: Final = {
    AlertSeverity.PAGE: ("red", ":material/error:"),
    AlertSeverity.TICKET: ("orange", ":material/warning:"),
    AlertSeverity.OTHER: ("gray", ":material/info:"),
}
_STATE_ICON: Final = {
    AlertState.NO_DATA: ":gray[:material/visibility_off:]",
    AlertState.PENDING: ":blue[:material/hourglass_top:]",
}
_PAGE_BY_STEM: Final = {page.file.rpartition("/")[2].removesuffix(".py"): page for page in PAGES}


def show_headline(alerts: Alerts) -> None:
    """Say how bad it is."""
    firing = [alert for alert in alerts.told if alert.state is AlertState.FIRING]
    worst = min((list(AlertSeverity).index(alert.severity) for alert in firing), default=None)
    icon = ":green[:material/check_circle:]"
    if worst is not None:
        color, symbol = _SEVERITY[list(AlertSeverity)[worst]]
        icon = f":{color}[{symbol}]"
    elif alerts.count(AlertState.NO_DATA) or not alerts.rules:
        icon = _STATE_ICON[AlertState.NO_DATA]
    title = headline(alerts) if alerts.rules else "Nobody watches"
    st.subheader(f"{icon} {title}", anchor=False)
    if alerts.rules:
        st.caption(rest(alerts))


def show_sources(sources: Sequence[SourceState]) -> None:
    """Name the sources that give no answer."""
    for source in sources:
        if source.problem:
            st.warning(_plain(source.problem), icon=":material/link_off:")


def show_no_source() -> None:
    """No rules anywhere: say how to get some."""
    with st.container(border=True):
        st.markdown(
            "Rules over the store, for single experts, need nothing else. They say here what they find, and "
            "tell an Alertmanager if `MOESCOPE_ALERTMANAGER_URL` names one:"
        )
        st.code("moescope alerts run", language="bash")
        st.markdown(
            "Rules over `/metrics` are in `deploy/prometheus/`. A Prometheus that loads them is read too:"
        )
        st.code("export MOESCOPE_ALERT_SOURCES=http://127.0.0.1:9465,http://127.0.0.1:9090", language="bash")


def show_alerts(alerts: Sequence[ShownAlert], runbook: Mapping[str, RunbookSection], *, key: str) -> None:
    """Draw a card for each alert."""
    for number, alert in enumerate(alerts):
        _show_alert(alert, runbook.get(alert.runbook), f"{key}-{number}")


def show_section(section: RunbookSection) -> None:
    """Draw a section of the runbook with its statements one click from running."""
    st.markdown(section.text)
    for number, statement in enumerate(section.statements, 1):
        label = (
            "Open the statement in SQL" if len(section.statements) == 1 else f"Open statement {number} in SQL"
        )
        link_to(SQL, label, {QUERY: statement})


def show_rules(alerts: Alerts) -> None:
    """List every rule with its state, those that cannot be evaluated first."""
    rules = sorted(alerts.rules, key=lambda rule: (not rule.error, rule.source, rule.group))
    broken = [rule for rule in rules if rule.error]
    for rule in broken:
        st.error(f"`{rule.name}` cannot be evaluated: {_plain(rule.error)}", icon=":material/error:")
    with st.expander(f"Rules ({len(rules)})", icon=":material/rule:", key="alert-rules"):
        st.dataframe(
            [
                {
                    "Rule": rule.name,
                    "State": rule_words(rule),
                    "Group": rule.group,
                    "Evaluated by": rule.source,
                    "Last evaluation": time_label(rule.last_evaluation) if rule.last_evaluation else "never",
                }
                for rule in rules
            ],
            hide_index=True,
            key="alert-rule-table",
            alt="Every alert rule with its state, group, evaluator and last evaluation.",
        )


def _show_alert(alert: ShownAlert, section: RunbookSection | None, key: str) -> None:
    color, symbol = _SEVERITY[alert.severity]
    icon = _STATE_ICON.get(alert.state, f":{color}[{symbol}]")
    with st.container(border=True, gap="xsmall", key=f"alert-{key}"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.markdown(f"{icon}&ensp;**{_plain(alert.summary)}**")
            since = f", since {time_label(alert.since)}" if alert.since else ""
            st.caption(f"{state_words(alert)}{since}", width="content")
        st.markdown(_badges(alert, color))
        if alert.description:
            st.markdown(_plain(alert.description))
        quiet = quiet_words(alert)
        if quiet:
            st.caption(f":material/notifications_off: {_plain(quiet)}")
        _show_ways(alert)
        if section is not None:
            with st.expander("What to do", icon=":material/menu_book:", key=f"runbook-{key}"):
                show_section(section.for_service(alert.labels.get("service", "")))


def _show_ways(alert: ShownAlert) -> None:
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        if alert.evidence is not None:
            page = _PAGE_BY_STEM.get(alert.evidence.page)
            if page is not None:
                link_to(page, f"Evidence on {page.title}", alert.evidence.params)
            else:
                st.markdown(f"[Evidence]({alert.evidence.url})", width="content")
        if alert.silence_link and alert.is_told:
            st.markdown(f":material/notifications_off: [Silence]({alert.silence_link})", width="content")


def _badges(alert: ShownAlert, color: str) -> str:
    parts = [f":{color}-badge[{alert.severity.value}]", f":gray-badge[{_plain(alert.name)}]"]
    parts += [f":gray-badge[{_plain(name)} {_plain(value)}]" for name, value in alert.labels.items()]
    if alert.value:
        parts.append(f":blue-badge[value {_plain(value_words(alert))}]")
    return " ".join(parts)


def _plain(text: str) -> str:
    """Text of others as Markdown that shows it as it is; code in backticks stays code."""
    escaped = text
    for sign in "$[]<":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped
