"""One loss: what goes with it, what each strategy makes of it, and what would protect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd
import streamlit as st

from moescope.analysis import words
from moescope.analysis.failover_advice import advise
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_losses import Loss
from moescope.analysis.failover_picture import LossPicture
from moescope.analysis.failover_words import RATIO_FORMULA, describe_outcome, name_of, summarise_loss
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.failover import draw_lost_layers, draw_reload, draw_survivors
from moescope.dashboard.links import REPLICATION, link_to
from moescope.schemas import metrics

STRATEGY_WORDS: Final = {
    FailoverStrategy.REASSIGN: "Load again",
    FailoverStrategy.BLOCK: "Wait",
    FailoverStrategy.FALLBACK: "Fall back",
}
"""Short names of ``reassign_to_redundant_worker``, ``block`` and ``fallback_expert``."""
_UNKNOWN: Final = "–"


def show_loss(loss: Loss, facts: FailoverFacts) -> None:
    """Draw what goes with it whatever is done."""
    st.subheader(f"What happens when {name_of(loss)} fails?", anchor=False)
    lost, traffic, tokens, requests, own = st.columns(5)
    lost.metric(
        "Experts lost",
        words.integer(loss.lost_experts),
        help="In all layers together, those without a copy on a rank that stays.",
    )
    lost.caption(f"{words.integer(loss.covered_experts)} more have a copy elsewhere")
    traffic.metric(
        "Traffic lost",
        words.percent(loss.traffic_share),
        help=f"Part of `{metrics.EXPERT_TOKENS.name}` that went to lost experts.",
    )
    traffic.caption(f"{words.percent(loss.taken_over_share)} taken over by copies")
    tokens.metric(
        "Tokens hit",
        words.percent(loss.tokens_hit.expected),
        help="Need a lost expert in some layer; draws and layers taken as independent, which overstates.",
    )
    tokens.caption(f"at least {words.percent(loss.tokens_hit.low)}")
    hit = loss.requests_hit
    requests.metric(
        "Requests hit",
        _UNKNOWN if hit is None else words.percent(hit.independent),
        help="Have a token that needs a lost expert: at most so many, if their tokens choose independently.",
    )
    requests.caption("their length is not known" if hit is None else f"at least {words.percent(hit.alike)}")
    own.metric(
        "Own requests",
        words.percent(loss.own_share),
        help="Part of the work whose requests run on what is lost: these fail whatever is done.",
    )
    own.caption("fail whatever is done")
    st.markdown(summarise_loss(loss, facts))


def show_strategies(loss: Loss) -> None:
    """Draw the three strategies side by side."""
    for column, outcome in zip(st.columns(len(loss.outcomes)), loss.outcomes.values(), strict=True):
        with column.container(border=True, height="stretch", gap="xsmall"):
            st.markdown(f"**{STRATEGY_WORDS[outcome.strategy]}** `{outcome.strategy.value}`")
            text = describe_outcome(loss, outcome)
            st.markdown(f"{text[:1].upper()}{text[1:]}")


def show_picture(picture: LossPicture, loss: Loss) -> None:
    """Draw the ranks and layers of the loss under one strategy."""
    left, right = st.columns(2, gap="medium")
    with left:
        show_figure(
            draw_survivors(picture),
            key="survivors",
            alt=f"Load of each rank before and after {name_of(loss)} is lost.",
        )
    with right:
        if picture.loads_again:
            show_figure(
                draw_reload(picture),
                key="reload",
                alt="Weights that each rank loads again, and the memory that is free there.",
            )
        elif loss.lost_experts:
            show_figure(
                draw_lost_layers(picture),
                key="lost_layers",
                alt="Part of each layer's traffic that goes to lost experts.",
            )
    st.caption(f"Imbalance: {RATIO_FORMULA}.")


def show_lost_experts(picture: LossPicture) -> None:
    """Draw the lost experts that are missed most; nothing where none is lost."""
    if not picture.lost:
        return
    st.dataframe(
        pd.DataFrame(
            {
                "Layer": [one.layer for one in picture.lost],
                "Expert": [one.expert for one in picture.lost],
                "Of its layer": [words.percent(one.layer_share) for one in picture.lost],
            }
        ),
        hide_index=True,
        height=246,
        key="lost_experts",
        column_config={
            "Of its layer": st.column_config.TextColumn(
                help="Part of the layer's assignments that went to this expert."
            )
        },
        alt="Experts that would be lost, those with most of their layer's traffic first.",
    )


def show_protection(loss: Loss, facts: FailoverFacts, params: Mapping[str, str]) -> None:
    """Draw what to do when it happens, and what would have protected; with the way to plan it."""
    for sentence in advise(loss, facts):
        st.markdown(sentence)
    if loss.lost_experts and len(facts.ranks) > 1:
        link_to(REPLICATION, "Plan the copies that would protect", params)
