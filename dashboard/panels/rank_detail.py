"""One rank: what it has to do, how it keeps up, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.rank_facts import RankFacts, RankWaits, Wait, list_rank_waits
from moescope.analysis.rank_load import RankWork
from moescope.analysis.rank_steps import RankSteps
from moescope.analysis.traffic_report import TrafficAnswer
from moescope.dashboard import carry, loaders_ranks
from moescope.dashboard.carry import RANK
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.rank_times import draw_one_rank
from moescope.dashboard.links import EXPERT_LOAD, link_to
from moescope.dashboard.view import View, link_params
from moescope.schemas import metrics

_UNKNOWN: Final = "–"
_WORST_LAYERS: Final = 8
_LONGEST_WAITS: Final = 5
_TABLE_HEIGHT: Final = 35 * (_WORST_LAYERS + 1) + 3


def choose_rank(facts: Sequence[RankFacts]) -> int | None:
    """Draw the choice of a rank, which lives in the address; None where nobody chose one."""
    ranks = [one.rank for one in facts]
    on_change = carry.prepare_choice(RANK, ranks, None)
    chosen = st.selectbox(
        "Look at rank",
        ranks,
        index=None,
        placeholder="none chosen",
        key=RANK,
        on_change=on_change,
        width=200,
    )
    return None if chosen is None else int(chosen)


def pick_rank(rank: int) -> None:
    """Choose a rank from a callback."""
    carry.point_at(rank=rank)


def show_rank(
    view: View,
    rank: int,
    facts: Sequence[RankFacts],
    traffic: TrafficAnswer,
    *,
    assessment: LoadAssessment | None,
    work: RankWork | None,
    steps: RankSteps | None,
) -> None:
    """Draw one rank's numbers, its history, its worst layers and its waits."""
    one = next(fact for fact in facts if fact.rank == rank)
    with st.container(border=True, gap="small"):
        host = f" on {one.host}" if one.host else ""
        st.subheader(f"Rank {rank}{host}", anchor=False)
        st.caption(" ".join(one.named) or "Nothing is said against it.")
        _show_numbers(one)
        history = None
        if assessment is not None and work is not None:
            history = loaders_ranks.load_rank_history(assessment)
        if history is not None or steps is not None:
            show_figure(
                draw_one_rank(rank, history, steps),
                key="one_rank",
                alt=f"Work, forward passes, dispatch and combine of rank {rank} over time.",
            )
        left, right = st.columns(2)
        with left:
            if assessment is not None and work is not None:
                _show_worst_layers(view, rank, work, assessment)
        with right:
            _show_waits(list_rank_waits(traffic.waits, rank, traffic.span.seconds, _LONGEST_WAITS))


def _show_numbers(one: RankFacts) -> None:
    columns = st.columns(5)
    columns[0].metric("Work", _times(one.of_mean), help="Its assignments over all layers, × the mean rank's.")
    columns[1].metric(
        "Worst layer",
        _times(one.worst_of_mean),
        help="What it has in the layer where it has most over the mean, × that layer's mean rank.",
    )
    columns[2].metric(
        "Forward pass",
        _UNKNOWN if _is_unknown(one.pass_seconds) else words.seconds(one.pass_seconds),
        help=f"Median of `{metrics.STEP_DURATION.name}`, waiting included.",
    )
    awaited = [value for value in one.times_awaited.values() if not _is_unknown(value)]
    columns[3].metric(
        "The others wait for it",
        _times(max(awaited)) if awaited else _UNKNOWN,
        help="× the usual wait for a rank, in dispatch or combine, whichever is more.",
    )
    columns[4].metric(
        "Costs others",
        _UNKNOWN if _is_unknown(one.lost_share) else words.percent(one.lost_share),
        help="Part of its time that each other rank loses to it.",
    )
    if one.worst_layer is not None:
        columns[1].caption(f"layer {one.worst_layer}")


def _show_worst_layers(view: View, rank: int, work: RankWork, assessment: LoadAssessment) -> None:
    position = work.position(rank)
    if position is None:
        return
    rows = work.worst_rows_of(position, _WORST_LAYERS)
    of_mean = work.of_layer_mean[rows, position]
    st.markdown("**Layers in which it has most over the mean**")
    st.dataframe(
        pd.DataFrame(
            {
                "Layer": work.layers[rows],
                "× the layer's mean rank": of_mean,
            }
        ),
        hide_index=True,
        height=_TABLE_HEIGHT,
        key="worst_layers",
        column_config={
            "× the layer's mean rank": st.column_config.ProgressColumn(
                format="%.2f ×",
                min_value=0,
                max_value=max(2.0, *of_mean.tolist()),
            )
        },
        alt=f"Layers in which rank {rank} has most over the mean rank.",
    )
    scope = assessment.window.scope
    params = link_params(view, ep_group=scope.ep_group, phase=scope.phase)
    link_to(EXPERT_LOAD, "Which experts make it so", params)


def _show_waits(waits: Sequence[RankWaits]) -> None:
    for of_stage in waits:
        unit = "a minute" if of_stage.is_time else "× the mean pair"
        st.markdown(f"**In {of_stage.stage.value}** ({unit})")
        st.markdown(
            f"It waits for {_listed(of_stage.waits_for, is_time=of_stage.is_time)}.  \n"
            f"It is awaited by {_listed(of_stage.awaited_by, is_time=of_stage.is_time)}."
        )


def _listed(waits: Sequence[Wait], is_time: bool) -> str:
    if not waits:
        return "nobody"
    named = [
        f"rank {one.peer} ({words.seconds(one.value) if is_time else f'{one.value:.2f} ×'})" for one in waits
    ]
    return ", ".join(named)


def _times(value: float) -> str:
    return _UNKNOWN if _is_unknown(value) else f"{value:.2f} ×"


def _is_unknown(value: float) -> bool:
    return value != value  # noqa: PLR0124 - NaN
