"""Who reports, process by process, and which experts failed over."""

from __future__ import annotations

from typing import Final

import pandas as pd
import streamlit as st

from moescope.analysis import words
from moescope.analysis.failover import Failovers
from moescope.analysis.quality import InstanceHealth, Quality
from moescope.schemas import metrics

_MAX_HEIGHT: Final = 420
_ROW_HEIGHT: Final = 35


def show_processes(quality: Quality) -> None:
    """Draw one row a process, those with a problem first."""
    with st.container(border=True, gap="xsmall"):
        st.subheader("Processes", anchor=False)
        if not quality.instances:
            st.caption("No process reported within the raw retention.")
            return
        st.caption(
            "Reconciled: the assignments counted at the router are the scheduled tokens × top-k × MoE "
            "layers. Only ranks that route tokens count both."
        )
        rows = sorted(quality.instances, key=_worst_first)
        st.dataframe(
            _frame(rows),
            hide_index=True,
            height=min(_MAX_HEIGHT, _ROW_HEIGHT * (len(rows) + 1) + 3),
            key="processes",
            column_config={
                "": st.column_config.TextColumn(width=24, help="● a problem"),
                "EP rank": st.column_config.NumberColumn(width=64),
                "Last window": st.column_config.TextColumn(help="Time since the end of its newest window."),
                "Missing": st.column_config.NumberColumn(
                    help="Expected minus counted assignments; a step under way may be missing for one window."
                ),
                "Failures": st.column_config.NumberColumn(
                    help=f"`{metrics.TELEMETRY_EXPORT_FAILURES.name}`: "
                    f"{metrics.TELEMETRY_EXPORT_FAILURES.description}"
                ),
                "Export": st.column_config.TextColumn(
                    help=f"Mean `{metrics.TELEMETRY_EXPORT_DURATION.name}`: "
                    f"{metrics.TELEMETRY_EXPORT_DURATION.description}"
                ),
                "Waited": st.column_config.TextColumn(
                    help=f"`{metrics.TELEMETRY_QUEUE_SIZE.name}`: {metrics.TELEMETRY_QUEUE_SIZE.description}"
                ),
            },
            alt="Every process that reports: what it is, when it was last heard, and whether it adds up.",
        )


def show_failovers(failovers: Failovers) -> None:
    """Draw the experts that other copies served for; nothing where there were none."""
    if not failovers.total:
        return
    with st.container(border=True, gap="xsmall"):
        st.subheader("Failovers", anchor=False)
        reasons = ", ".join(
            f"{words.integer(number)} {reason.value.replace('_', ' ')}"
            for reason, number in failovers.by_reason.items()
        )
        st.caption(
            f"{words.count(failovers.total, 'time')} another copy served in place of the one that should "
            f"have: {reasons}."
        )
        st.dataframe(
            pd.DataFrame(
                {
                    "EP group": [one.ep_group for one in failovers.experts],
                    "Layer": [one.layer for one in failovers.experts],
                    "Expert": [one.expert for one in failovers.experts],
                    "Reason": [one.reason.value for one in failovers.experts],
                    "Failovers": [one.failovers for one in failovers.experts],
                }
            ),
            hide_index=True,
            height=min(_MAX_HEIGHT, _ROW_HEIGHT * (len(failovers.experts) + 1) + 3),
            key="failovers",
            alt="Experts that other copies served for, and why.",
        )


def _frame(rows: list[InstanceHealth]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "": ["●" if one.has_problem else "" for one in rows],
            "State": [one.state.value for one in rows],
            "Component": [one.component.value for one in rows],
            "EP group": [one.ep_group for one in rows],
            "EP rank": [one.ep_rank for one in rows],
            "Last window": [f"{words.duration(max(one.lag_seconds, 0))} ago" for one in rows],
            "Windows": [one.windows for one in rows],
            "Tokens": [words.compact(one.tokens) if one.tokens else "" for one in rows],
            "Excluded": [words.compact(one.excluded_tokens) if one.excluded_tokens else "" for one in rows],
            "Reconciled": [one.reconciliation for one in rows],
            "Missing": [one.missing_assignments for one in rows],
            "Failures": [one.export_failures for one in rows],
            "Export": [words.seconds(one.export_seconds) if one.export_seconds >= 0 else "" for one in rows],
            "Waited": [
                words.si_bytes(one.most_waiting_bytes) if one.most_waiting_bytes else "" for one in rows
            ],
            "Instance": [one.instance for one in rows],
        }
    )


def _worst_first(one: InstanceHealth) -> tuple[bool, str, str, int]:
    return (not one.has_problem, one.component.value, one.ep_group, one.ep_rank)
