"""What fires, since when, what to do about it, and what fired before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import streamlit as st

from moescope.analysis.alert_records import Alerts, AlertState
from moescope.analysis.runbook import nearest
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.alerts import draw_history
from moescope.dashboard.loaders_alerts import load_alert_history, load_alerts, load_runbook
from moescope.dashboard.panels.alert_list import (
    show_alerts,
    show_headline,
    show_no_source,
    show_rules,
    show_section,
    show_sources,
)
from moescope.dashboard.states import run_guarded
from moescope.dashboard.view import REFRESH_SECONDS, RUNBOOK

_HISTORY: Final = {"6h": 21_600, "24h": 86_400, "7d": 604_800}


def _render() -> None:
    _show_runbook(st.query_params.get(RUNBOOK, ""))

    @st.fragment(run_every=REFRESH_SECONDS)
    def refreshed() -> None:
        run_guarded(_show)

    refreshed()


def _show_runbook(name: str) -> None:
    """The section that a link names, as a pager's link does."""
    if not name:
        return
    sections = load_runbook()
    section = sections.get(name)
    if section is None:
        near = nearest(name, sections)
        hint = f" Is it [{near}](alerts?runbook={near})?" if near else ""
        st.warning(f"The runbook has no section `{name}`.{hint}", icon=":material/menu_book:")
        return
    firing = [alert for alert in load_alerts().told if alert.runbook == name]
    service = firing[0].labels.get("service", "") if firing else ""
    with st.container(border=True, gap="small"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.subheader(f":material/menu_book: {name}", anchor=False)
            st.button("Close", icon=":material/close:", on_click=_close_runbook, type="tertiary")
        if not firing:
            st.caption("Nothing of this alert fires or is pending now.")
        show_section(section.for_service(service))


def _close_runbook() -> None:
    st.query_params.pop(RUNBOOK, None)


def _show() -> None:
    alerts = load_alerts()
    show_headline(alerts)
    show_sources(alerts.sources)
    if not alerts.rules:
        show_no_source()
        return
    runbook = load_runbook()
    for state in (AlertState.FIRING, AlertState.NO_DATA, AlertState.PENDING):
        show_alerts([alert for alert in alerts.told if alert.state is state], runbook, key=state.value)
    if alerts.untold:
        with st.expander(
            f"Silenced or inhibited ({len(alerts.untold)})",
            icon=":material/notifications_off:",
            key="alerts-untold",
        ):
            show_alerts(alerts.untold, runbook, key="untold")
    _show_history(alerts)
    show_rules(alerts)


def _show_history(alerts: Alerts) -> None:
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.subheader("History", anchor=False)
            chosen = st.segmented_control(
                "Time",
                list(_HISTORY),
                default="24h",
                required=True,
                key="history",
                bind="query-params",
                label_visibility="collapsed",
            )
        seconds = _HISTORY[chosen or "24h"]
        spans = load_alert_history(seconds, frozenset(rule.name for rule in alerts.rules))
        if not spans:
            st.caption(f"Nothing was pending or fired within {chosen}.")
            return
        now = datetime.now(UTC)
        show_figure(
            draw_history(spans, now - timedelta(seconds=seconds), now),
            key="alert_history",
            alt="A row for each alert, with bars while it was pending, firing or without data.",
        )


run_guarded(_render)
