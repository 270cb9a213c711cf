"""What a replication plan costs and brings, a line for each: moves, memory, safety, back-test."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moescope.analysis import words
from moescope.analysis.backtest import BacktestVerdict
from moescope.analysis.plan_result import PlanResult
from moescope.schemas.topology import EMPTY_SLOT


def list_facts(plan: PlanResult) -> Iterator[tuple[str, str]]:
    """Names and sentences, in the order in which they are printed; notes come last."""
    facts = (
        ("moves", _moves(plan)),
        ("memory", _memory(plan)),
        ("safety", _safety(plan)),
        ("back-test", _backtest(plan)),
        ("small step", _small_change(plan)),
        ("uneven", _uneven_split(plan)),
    )
    yield from ((name, text) for name, text in facts if text)
    yield from (("note", note) for note in plan.notes)


def _moves(plan: PlanResult) -> str:
    per_rank = plan.moved.sum(axis=0)
    held = int((plan.placement.physical_to_logical_map != EMPTY_SLOT).sum())
    text = (
        f"{words.integer(int(per_rank.sum()))} of {words.integer(held)} copies "
        f"({words.percent(plan.moved_share)}), {_span(int(per_rank.min()), int(per_rank.max()))} a rank"
    )
    sizes = plan.moved_bytes_per_rank
    if sizes is not None:
        text += f"; {words.si_bytes(float(sizes.sum()))}, up to {words.si_bytes(float(sizes.max()))} a rank"
    return text if plan.is_before_known else f"{text}; from experts in order, as what is there is not known"


def _span(low: int, high: int) -> str:
    return words.integer(low) if low == high else f"{words.integer(low)} to {words.integer(high)}"


def _memory(plan: PlanResult) -> str:
    before, after = plan.memory_per_rank(plan.before), plan.memory_per_rank(plan.placement)
    if before is None or after is None:
        return "not known; give the size of one expert with --expert-bytes"
    return (
        f"experts take up to {words.si_bytes(float(after.max()))} a rank, "
        f"{words.si_bytes(float(before.max()))} before"
    )


def _safety(plan: PlanResult) -> str:
    def change(name: str) -> str:
        before, after = getattr(plan.coverage_before, name), getattr(plan.coverage, name)
        return f"{words.percent(before)} → {words.percent(after)}"

    text = f"traffic of experts with copies on two ranks: {change('traffic_on_two_ranks')}"
    if plan.nodes > 1:
        text += f", on two of {plan.nodes} nodes: {change('traffic_on_two_nodes')}"
    if plan.coverage.hot_experts:
        place = "nodes" if plan.nodes > 1 else "ranks"
        hot = words.count(plan.coverage.hot_experts, "hot expert")
        text += f"; of {hot} on two {place}: {change(f'hot_on_two_{place}')}"
    return text


def _backtest(plan: PlanResult) -> str:
    tested = plan.backtest
    if tested is None or not len(tested.ratio_before):
        return "none: it takes counts of several windows, [windows, layers, experts] or a store"
    before, after = np.nanmean(tested.ratio_before), np.nanmean(tested.ratio_after)
    pairs = words.count(len(tested.ratio_before), "time")
    text = f"planned on what was known, scored on the next window, {pairs}: {before:.3f} → {after:.3f}"
    if np.isfinite(tested.gain_low):
        text += f"; 90 % of windows gain {tested.gain_low:.3f} … {tested.gain_high:.3f}"
    text += f"; beyond noise {tested.net_gain:.3f}"
    if tested.verdict is BacktestVerdict.TOO_LITTLE_DATA:
        text += "; too little data to judge by"
    return text


def _small_change(plan: PlanResult) -> str:
    change = plan.small_change
    if change is None:
        return ""
    return (
        f"--max-moved 5% moves {words.integer(change.moved)} copies and gets "
        f"max / mean to {plan.effect.mean(change.ratio):.3f} on this load"
    )


def _uneven_split(plan: PlanResult) -> str:
    if plan.uneven is None:
        return ""
    ratio = plan.effect.mean(plan.uneven.ratio_uneven)
    return f"split unevenly over the copies, this placement reaches {ratio:.3f}; {plan.uneven.label}"
