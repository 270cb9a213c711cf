"""Make a plan of a load: choose what to plan for, plan, test it on the past, weigh it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from moescope.analysis.backtest import Backtest, backtest, sum_of_windows
from moescope.analysis.forecast import forecast_load
from moescope.analysis.imbalance import estimate_noise_floor
from moescope.analysis.plan_result import PlanResult, SmallChange
from moescope.analysis.replan import align_slots, replan
from moescope.analysis.replication import PlanRules, plan_replication
from moescope.analysis.replication_coverage import measure_coverage
from moescope.analysis.uneven_split import split_unevenly
from moescope.exporters.placement_slots import fill_empty_slots
from moescope.planning.current import Start, find_start, widen
from moescope.planning.load import PlanLoad
from moescope.planning.request import PlanRequest
from moescope.planning.windows import PlannedFor, choose_load, group_windows
from moescope.schemas.errors import UsageError
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement

Progress = Callable[[str, int, int | None], None]

_SMALL_SHARE: Final = 0.05
"""Part of the experts that a re-plan may move to be shown beside a plan that moves more."""


def make_plan(
    load: PlanLoad, request: PlanRequest, progress: Progress, *, is_weighed: bool = True
) -> PlanResult:
    """Plan the copies of a load's experts.

    Args:
        load: of one window or several.
        request: what is asked of the plan.
        progress: told what is being done, how much of it is done, and how much there is; what it raises
            ends the planning.
        is_weighed: whether the plan is tested on the past and set beside others; its placement is the same.

    Raises:
        UsageError: rules that no plan can keep, or something that must be said and is not.
    """
    load = group_windows(load, request.windows)
    return _Making(load, request, find_start(load, request), progress, is_weighed).make()


@dataclass(frozen=True, slots=True, eq=False)
class _Making:
    load: PlanLoad
    request: PlanRequest
    start: Start
    progress: Progress
    is_weighed: bool

    def make(self) -> PlanResult:
        wanted = choose_load(self.load)
        rules = self._rules()
        full = plan_replication(
            wanted.tokens, rules, lambda done, total: self.progress("planning", done, total)
        )
        placement = self._placement(wanted.tokens, full.placement)
        placement, notes = self._fill(wanted.tokens, placement)
        if full.is_cut_short:
            notes += ("--time-budget ended the search; a longer one may find a better plan.",)
        before = self.start.placement
        coverages = [
            measure_coverage(wanted.tokens, one, nodes=rules.nodes, hot_ratio=rules.hot_expert_ratio)
            for one in (before, placement)
        ]

        return PlanResult(
            source=self.load.source,
            planned_for="forecast" if wanted.is_forecast else "sum",
            windows=len(self.load.tokens),
            layers=self.load.layers,
            tokens=wanted.tokens,
            before=before,
            is_before_known=self.start.is_known,
            placement=placement,
            bound=full.bound,
            noise_floor=self._noise_floor(wanted),
            design_effect=self._design_effect(),
            bytes_per_expert=self._bytes(),
            coverage_before=coverages[0],
            coverage=coverages[1],
            nodes=rules.nodes,
            backtest=self._backtest(rules),
            uneven=split_unevenly(wanted.tokens, placement) if self.request.is_split_uneven else None,
            small_change=self._small_change(wanted.tokens, placement),
            notes=(*self.load.notes, *self.start.notes, *notes),
        )

    @property
    def _ranks(self) -> int:
        return self.start.placement.ep_size

    def _rules(self) -> PlanRules:
        request, redundant = self.request, self.request.redundant_experts
        if redundant is None:
            redundant = self.start.redundant_experts
        if request.max_moved is not None and request.slots_per_rank is None:
            # A re-plan uses every slot that there is.
            redundant = self._slots_per_rank(redundant) * self._ranks - self.load.experts
        sizes = self._bytes()
        if request.memory_budget_bytes is not None and sizes is None:
            raise UsageError("--memory-budget needs the size of one expert; give it with --expert-bytes")
        return PlanRules(
            ranks=self._ranks,
            redundant_experts=redundant,
            uses_every_copy=request.output_format.is_engine,
            slots_per_rank=request.slots_per_rank,
            nodes=request.nodes or self.load.nodes or 1,
            expert_groups=request.expert_groups,
            cover_nodes=request.cover_nodes,
            bytes_per_expert=sizes,
            memory_budget_bytes=request.memory_budget_bytes,
            time_budget_seconds=request.time_budget_seconds,
        )

    def _slots_per_rank(self, redundant: int) -> int:
        if self.request.slots_per_rank is not None:
            return max(self.request.slots_per_rank)
        return max(-(-(self.load.experts + redundant) // self._ranks), self.start.placement.slots_per_rank)

    def _bytes(self) -> FloatArray | None:
        if self.request.expert_bytes is not None:
            return np.full(len(self.load.layers), self.request.expert_bytes)
        return self.load.bytes_per_expert

    def _placement(self, tokens: FloatArray, full: Placement) -> Placement:
        """The plan that is asked for: all of it in the slots where least moves, or a few moves."""
        nodes = self.request.nodes or self.load.nodes or 1
        if self.request.max_moved is None:
            is_uneven = self.request.slots_per_rank is not None
            return align_slots(self.start.placement, full, relabel_ranks=not is_uneven, nodes=nodes)
        limit = self.request.max_moved
        if limit.size_bytes is not None and self._bytes() is None:
            raise UsageError(
                "--max-moved in bytes needs the size of one expert; give it with --expert-bytes, or write a "
                "share, as in --max-moved 2%"
            )
        return replan(
            tokens,
            widen(self.start.placement, full.slots_per_rank),
            max_moved_share=limit.share,
            max_moved_bytes=limit.size_bytes,
            bytes_per_expert=self._bytes(),
        ).placement

    def _fill(self, tokens: FloatArray, placement: Placement) -> tuple[Placement, tuple[str, ...]]:
        empty = int((placement.physical_to_logical_map == EMPTY_SLOT).sum())
        if not empty or not self.request.output_format.is_engine:
            return placement, ()
        if self.request.memory_budget_bytes is not None:
            raise UsageError(
                f"--memory-budget leaves {empty} slots empty, and engines need every slot filled; raise it, "
                "plan fewer --redundant-experts, or write --format json"
            )
        filled = fill_empty_slots(placement, tokens)
        redundant = filled.physical_to_logical_map.shape[1] - filled.num_experts
        note = (
            f"Engines need every slot filled: {empty} empty ones hold copies of the coldest experts, "
            f"{redundant} redundant experts in all; --redundant-experts {redundant} would put them to use."
        )
        return filled, (note,)

    def _design_effect(self) -> FloatArray:
        effect = self.load.design_effect
        return np.full(len(self.load.layers), np.nan) if effect is None else effect

    def _noise_floor(self, wanted: PlannedFor) -> FloatArray | None:
        if not self.load.is_counts:
            return None
        mean = wanted.tokens.sum(axis=1) / self._ranks
        effect = np.nan_to_num(self._design_effect(), nan=1.0)
        floor = estimate_noise_floor(np.where(mean > 0, mean, 1), self._ranks, effect)
        return np.where(mean > 0, floor, 1.0)

    def _backtest(self, rules: PlanRules) -> Backtest | None:
        """Plan on each window as on the last one, with a share of the time for each."""
        pairs = len(self.load.tokens) - 1
        if pairs < 1 or not self.load.is_counts or not self.is_weighed:
            return None
        quick = replace(rules, time_budget_seconds=rules.time_budget_seconds / pairs)
        return backtest(
            self.load.tokens.astype(np.int64),
            self.start.placement,
            lambda tokens: self._placement(tokens, plan_replication(tokens, quick).placement),
            design_effect=self._design_effect(),
            plan_for=self._forecast if self.load.is_forecast_fair else sum_of_windows,
            progress=lambda done, total: self.progress("back-testing", done, total),
        )

    def _forecast(self, tokens_per_window: IntArray) -> FloatArray:
        return forecast_load(tokens_per_window, self.load.design_effect).tokens

    def _small_change(self, tokens: FloatArray, planned: Placement) -> SmallChange | None:
        """A few moves instead, where the plan moves many and what is there is known."""
        if self.request.max_moved is not None or not self.start.is_known or not self.is_weighed:
            return None
        self.progress("weighing a small change", 0, 1)
        few = replan(
            tokens,
            widen(self.start.placement, planned.slots_per_rank),
            max_moved_share=_SMALL_SHARE,
        )
        self.progress("weighing a small change", 1, 1)
        return SmallChange(int(few.moved_per_layer.sum()), few.moved_share, few.ratio_after)
