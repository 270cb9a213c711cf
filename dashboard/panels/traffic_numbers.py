"""What a phase's traffic comes to, in one row."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.rank_io import RankTraffic, TrafficValue, find_busiest_pair
from moescope.analysis.traffic_report import DEDUP_FORMULA, TrafficAnswer
from moescope.schemas import metrics

_UNKNOWN = "–"


def show_traffic_numbers(answer: TrafficAnswer, traffic: RankTraffic) -> None:
    """Draw rate, size of a token, deduplication, what leaves the node, and the busiest pair."""
    with st.container(border=True, gap="xsmall"):
        rate, token, dedup, node, pair = st.columns(5)
        rate.metric(
            "Sent",
            f"{words.si_bytes(traffic.bytes_per_second)}/s",
            help=f"`{metrics.RANK_IO.name}`: {metrics.RANK_IO.description}",
        )
        rate.caption(f"by {words.count(traffic.num_reporting, 'rank')}")
        size = traffic.bytes_per_token
        token.metric(
            "A token",
            _UNKNOWN if size is None else words.si_bytes(size),
            help="Bytes sent per deduplicated token.",
        )
        token.caption("each time that it is sent to a rank")
        dedup.metric(
            "Assignments a token",
            _UNKNOWN if traffic.dedup_factor is None else f"{traffic.dedup_factor:.2f} ×",
            help=f"{DEDUP_FORMULA}: what would travel without deduplication, against what does.",
        )
        dedup.caption("saved by sending each token once")
        leaves = answer.leaves_node(traffic)
        node.metric(
            "Leaves the node",
            _UNKNOWN if leaves is None else words.percent(leaves),
            help="Part of the bytes sent to ranks on other hosts (`host.name` of the ranks).",
        )
        node.caption("hosts of some ranks are unknown" if leaves is None else "of the bytes sent")
        _show_pair(pair, traffic)


def _show_pair(column: st.delta_generator.DeltaGenerator, traffic: RankTraffic) -> None:
    busiest = find_busiest_pair(traffic, TrafficValue.BYTES_SENT)
    column.metric(
        "Busiest pair",
        _UNKNOWN if busiest is None else f"{busiest.rank} → {busiest.peer}",
        help="The two ranks between which most bytes travel, one way.",
    )
    if busiest is not None:
        column.caption(f"{busiest.times_mean:.2f} × the mean pair")
