"""A replication plan, printed: the advice first, then before and after, then what it costs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.analysis.placement_score import rank_loads
from moescope.analysis.plan_facts import list_facts
from moescope.analysis.plan_json import describe_plan
from moescope.analysis.plan_picture import draw_ranks
from moescope.analysis.plan_result import PlanResult
from moescope.analysis.report_sections import DEFAULT_WIDTH
from moescope.analysis.text_table import Column, render_table

_WORST_LAYERS: Final = 8
_NAMES: Final = 11
_SUMMARY: Final = (Column("", left=True), Column("before"), Column("after"), Column("bound"))
_LAYERS: Final = (
    *(Column("layer"), Column("before"), Column("after"), Column("bound"), Column("moved")),
    *(Column("hottest expert"), Column("of the load"), Column("copies")),
)


@dataclass(frozen=True, slots=True, eq=False)
class PlanReport:
    """A plan for a person, and for a program."""

    plan: PlanResult
    has_problem: bool = False

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """The plan for a terminal of that width."""
        parts = (
            textwrap.fill(self.plan.advice.sentence, width),
            "\n".join(self._heading(width)),
            self._summary(width),
            "\n".join(self._picture(width)),
            self._worst_layers(width),
            "\n".join(self._facts(width)),
        )
        return "\n\n".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """The shape of ``--format json``."""
        return describe_plan(self.plan)

    def _heading(self, width: int) -> Iterator[str]:
        plan, placement = self.plan, self.plan.placement
        load = "a forecast of the next window" if plan.planned_for == "forecast" else "this load"
        yield from textwrap.wrap(plan.source, width)
        yield from textwrap.wrap(
            f"{words.count(len(plan.layers), 'layer')} of {words.count(placement.num_experts, 'expert')} on "
            f"{words.count(placement.ep_size, 'rank')}, {placement.slots_per_rank} slots a rank, "
            f"{words.count(plan.redundant_experts, 'redundant expert')} a layer; planned for {load}.",
            width,
        )

    def _summary(self, width: int) -> str:
        plan = self.plan
        has_load = plan.tokens.any(axis=1)
        if not has_load.any():
            return ""
        columns = [one[has_load] for one in (plan.ratio_before, plan.ratio_after, plan.bound)]
        rows = [
            [
                f"mean of {words.count(int(has_load.sum()), 'layer')}",
                *(f"{one.mean():.3f}" for one in columns),
            ],
            ["worst layer", *(f"{one.max():.3f}" for one in columns)],
        ]
        if plan.noise_floor is not None:
            floor = f"{plan.noise_floor[has_load].mean():.3f}"
            rows.append(["uniform routing would show", floor, floor, ""])
        formula = f"{RATIO_FORMULA}; vLLM and SGLang report its inverse, TensorRT-LLM one less."
        return f"{render_table(_SUMMARY, rows, width)}\n{textwrap.fill(formula, width)}"

    def _picture(self, width: int) -> Iterator[str]:
        plan = self.plan
        row = int(np.argmax(plan.ratio_before))
        if plan.placement.ep_size < 2 or not plan.tokens[row].any():
            return
        before, after = (rank_loads(plan.tokens, one)[row] for one in (plan.before, plan.placement))
        yield f"Layer {plan.layers[row]}, the most uneven one before: load of its ranks"
        yield from draw_ranks(before / before.mean(), after / after.mean(), width)

    def _worst_layers(self, width: int) -> str:
        plan = self.plan
        order = np.argsort(-plan.ratio_before, kind="stable")[:_WORST_LAYERS]
        order = order[plan.tokens[order].any(axis=1)]
        if not len(order):
            return ""
        before, after = (one.replicas_per_layer_expert() for one in (plan.before, plan.placement))
        moved = plan.moved.sum(axis=1)
        rows = []
        for row in order:
            hottest = int(plan.tokens[row].argmax())
            share = float(plan.tokens[row, hottest] / plan.tokens[row].sum())
            ratios = (f"{one[row]:.3f}" for one in (plan.ratio_before, plan.ratio_after, plan.bound))
            copies = f"{before[row, hottest]} → {after[row, hottest]}"
            numbers = (words.integer(int(moved[row])), str(hottest), words.percent(share), copies)
            rows.append([str(plan.layers[row]), *ratios, *numbers])
        rest = len(plan.layers) - len(order)
        more = f"\n… and {words.count(rest, 'more layer')}, better balanced before." if rest else ""
        return render_table(_LAYERS, rows, width) + more

    def _facts(self, width: int) -> Iterator[str]:
        for name, text in list_facts(self.plan):
            unbroken = text.replace(" %", "\N{NO-BREAK SPACE}%")
            yield textwrap.fill(
                unbroken, width, initial_indent=f"{name:<{_NAMES}}", subsequent_indent=" " * _NAMES
            )
