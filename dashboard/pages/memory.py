"""Where a rank's bytes are, which pool is fullest, and what the caches do."""

from __future__ import annotations

import streamlit as st

from moescope.analysis import words
from moescope.analysis.cache_state import CacheHistory
from moescope.analysis.memory import PoolHistory
from moescope.analysis.memory_outlook_report import forecast_sentences
from moescope.analysis.memory_report import MemoryAnswer
from moescope.analysis.prefix_cache import RATIO_FORMULA
from moescope.dashboard import loaders, missing
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.memory import (
    POOL_WORDS,
    draw_cache_history,
    draw_occupancy,
    draw_pool_history,
    draw_pools,
    draw_prefix_cache,
)
from moescope.dashboard.labels import time_label
from moescope.dashboard.states import run_guarded, show_empty_store
from moescope.dashboard.view import (
    View,
    choose_named_group,
    choose_service,
    choose_window,
    filter_row,
    find_deployment,
)


def _render() -> None:
    deployments = loaders.load_deployments()
    if not deployments:
        show_empty_store("telemetry", loaders.load_deployments)
        return
    with filter_row():
        service = choose_service(deployments)
        ep_group = choose_named_group(find_deployment(deployments, service).ep_groups)
        view = choose_window(deployments, service)

    @st.fragment(run_every=view.refresh_seconds)
    def refreshed() -> None:
        run_guarded(lambda: _show(view, ep_group))

    refreshed()


def _show(view: View, ep_group: str) -> None:
    span = view.cover(find_deployment(loaders.load_deployments(), view.service), ep_group)
    answer, pools, caches = loaders.load_memory(span)
    st.caption(
        f"{words.duration(span.seconds)} to {time_label(span.end)}; states are the newest of each rank."
    )
    _show_pools(answer, pools)
    _show_caches(answer, caches)
    _show_prefix_cache(answer)


def _show_pools(answer: MemoryAnswer, history: PoolHistory) -> None:
    memory = answer.pools
    if not len(memory.ranks):
        missing.show_missing(missing.POOLS)
        return
    _show_verdict(answer)
    with st.container(border=True, gap="xsmall"):
        st.subheader("Pools of each rank", anchor=False)
        show_figure(
            draw_pools(memory, full_ratio=answer.full_ratio),
            key="pools",
            alt="Bytes in use by rank and pool, stacked, with limits, and how full each pool is.",
        )
        show_figure(
            draw_pool_history(history, full_ratio=answer.full_ratio),
            key="pool_history",
            alt="How full the fullest rank's pool of each kind was over time.",
        )


def _show_verdict(answer: MemoryAnswer) -> None:
    memory = answer.pools
    if memory.fullest is None:
        st.subheader("No pool has a limit", anchor=False)
        return
    fullest = (
        f"{POOL_WORDS[memory.fullest.pool]} of rank {memory.fullest.rank}, "
        f"{words.percent(memory.fullest.ratio)} of its limit"
    )
    if memory.full:
        icon, text = ":red[:material/error:]", f"{words.count(len(memory.full), 'pool')} full"
    else:
        icon, text = ":green[:material/check_circle:]", "Every pool has room"
    st.subheader(f"{icon} {text}", anchor=False)
    st.caption(
        f"Fullest: {fullest}. Full is a pool that can grow above {words.percent(answer.full_ratio)} of its "
        "limit; weights are loaded once."
    )
    st.caption(" ".join(forecast_sentences(answer.outlook.forecasts)))


def _show_caches(answer: MemoryAnswer, history: CacheHistory) -> None:
    with st.container(border=True, gap="xsmall"):
        st.subheader("KDA state and MLA KV cache", anchor=False)
        caches = answer.caches
        if not (caches.kda_slots.is_stored or caches.mla_blocks.is_stored):
            missing.show_missing(missing.CACHES)
            return
        st.caption(
            "Never one number: a KDA state slot is copied when two requests share it, MLA KV cache blocks "
            "grow with the context. A scheduler reports both under its engine's first rank."
        )
        show_figure(
            draw_occupancy(caches),
            key="occupancy",
            alt="KDA state slots and MLA KV cache blocks in use by rank, each with its limit.",
        )
        show_figure(
            draw_cache_history(history),
            key="cache_history",
            alt="How full both caches were over time, and how many KDA state slots were copied.",
        )


def _show_prefix_cache(answer: MemoryAnswer) -> None:
    cache = answer.prefix_cache
    with st.container(border=True, gap="xsmall"):
        st.subheader("Prefix cache", anchor=False)
        if cache.ratio is None:
            missing.show_missing(missing.PREFIX_CACHE)
            return
        st.caption(
            f"{words.percent(cache.ratio)} of {words.compact(cache.looked_up)} prompt tokens were found "
            f"({RATIO_FORMULA}). Tokens computed again after a preemption are no hits."
        )
        show_figure(
            draw_prefix_cache(cache),
            key="prefix_cache",
            alt="Prompt tokens that hit, partly hit or missed the prefix cache over time.",
        )


run_guarded(_render)
