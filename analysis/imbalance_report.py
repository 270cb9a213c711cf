"""The balance of layers, printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.activated_experts_report import activated_experts_dict, print_activated_experts
from moescope.analysis.idle_experts_report import idle_experts_dict, print_idle_experts
from moescope.analysis.imbalance import BALANCEDNESS_FORMULA, EXCESS_FORMULA, RATIO_FORMULA, Imbalance
from moescope.analysis.imbalance_answer import ImbalanceAnswer
from moescope.analysis.imbalance_conventions import SGLANG_FORMULA, VLLM_FORMULA, BalanceConventions
from moescope.analysis.imbalance_trend import ImbalanceTrend
from moescope.analysis.imbalance_trend_report import (
    history_dict,
    layer_trend_dict,
    print_drift,
    print_history,
    print_regret,
    regret_dict,
)
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.report_sections import DEFAULT_WIDTH, describe_scope, print_sections
from moescope.analysis.silent_ranks import describe_silent_ranks
from moescope.analysis.skew_report import print_skew, skew_dicts
from moescope.analysis.span_sections import UNKNOWN, json_number
from moescope.analysis.text_table import Column, render_table
from moescope.schemas.settings import Settings

_COLUMNS: Final = (
    *(Column("layer"), Column("max/mean"), Column("noise"), Column("net"), Column("mean/max")),
    *(Column("max/mean−1"), Column("busiest"), Column("mean load")),
)


@dataclass(frozen=True, slots=True)
class ImbalanceReport:
    """The balance of every layer of every scope in a window, the worst first."""

    answers: tuple[ImbalanceAnswer, ...]
    limit: int
    service: str | None
    settings: Settings

    @property
    def has_problem(self) -> bool:
        """Whether any layer is imbalanced."""
        judged = (answer.assessment.imbalance for answer in self.answers)
        return any(one is not None and one.is_imbalanced.any() for one in judged)

    def to_text(self, width: int = DEFAULT_WIDTH) -> str:
        """Tables for a terminal of that width."""
        of_assessment = {id(answer.assessment): answer for answer in self.answers}
        return print_sections(
            [answer.assessment for answer in self.answers],
            self.service,
            lambda one: self._section(of_assessment[id(one)], width),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape, as ``schemas/reports/imbalance.schema.json`` describes it; null is unknown."""
        return {
            "formula": {
                "ratio": RATIO_FORMULA,
                "balancedness": BALANCEDNESS_FORMULA,
                "excess": EXCESS_FORMULA,
                "vllm_balancedness": VLLM_FORMULA,
                "sglang_balancedness": SGLANG_FORMULA,
            },
            "acceptable_ratio": self.settings.imbalance_ratio,
            "scopes": [_scope_dict(answer) for answer in self.answers],
        }

    def _section(self, answer: ImbalanceAnswer, width: int) -> Iterator[str]:
        yield from self._balance(answer, width)
        assessment, trend = answer.assessment, answer.trend
        yield from print_skew(assessment)
        lines = list(print_idle_experts(assessment))
        if trend is not None and assessment.window.tokens.any():
            lines += print_drift(trend, assessment)
            lines += print_regret(trend.regret, assessment.window, self.settings.replan_min_gain)
        for line in lines:
            yield textwrap.fill(line, width)
        yield from print_activated_experts(answer, width)

    def _balance(self, answer: ImbalanceAnswer, width: int) -> Iterator[str]:
        assessment = answer.assessment
        imbalance, placement = assessment.imbalance, assessment.placement
        if imbalance is None or placement is None or answer.conventions is None:
            yield "No rank has said which experts it holds, so rank loads are unknown."
            return
        if answer.silent_ranks:
            said = describe_silent_ranks(answer.silent_ranks)
            yield textwrap.fill(
                f"{said}: no load is counted there since, so the others look busier than the mean, and "
                "experts without another copy look dead.",
                width,
            )
        yield textwrap.fill(self._verdict(answer, imbalance, placement), width)
        if answer.trend is not None:
            for line in print_history(answer.trend.history, assessment.window.layers):
                yield textwrap.fill(line, width)
        if np.isfinite(answer.conventions.mean_ratio):
            yield textwrap.fill(_conventions(answer.conventions), width)
        rows = _layer_rows(answer, imbalance, placement, self.settings.imbalance_ratio)[: self.limit]
        yield render_table(_columns(answer.trend), rows, width)
        if len(imbalance.ratio) > self.limit:
            yield f"… and {words.count(len(imbalance.ratio) - self.limit, 'more layer')}, better balanced."

    def _verdict(self, answer: ImbalanceAnswer, imbalance: Imbalance, placement: PlacementSnapshot) -> str:
        count = words.count(int(imbalance.is_imbalanced.sum()), "imbalanced layer")
        line = f"{count} of {len(imbalance.ratio)} over {len(placement.ranks)} ranks."
        row = int(np.nan_to_num(imbalance.net_ratio, nan=0.0).argmax()) if len(imbalance.ratio) else 0
        if imbalance.has_verdict.any():
            layer = answer.assessment.window.layers[row]
            line += (
                f" Worst: layer {layer}, where rank {placement.ranks[imbalance.hottest_rank[row]]} does "
                f"{imbalance.ratio[row]:.2f} × the mean rank's work, {imbalance.net_ratio[row]:.2f} × net of "
                f"noise."
            )
        return line + f" Up to {self.settings.imbalance_ratio:g} × net is acceptable."


def _conventions(one: BalanceConventions) -> str:
    text = (
        f"All layers: max / mean {one.mean_ratio:.2f} on average. In engines' words: TensorRT-LLM (max / "
        f"mean − 1) {one.mean_excess:.2f}, vLLM (Σ mean / Σ max over layers) {one.vllm_balancedness:.2f}, "
        f"SGLang (mean of mean / max) {one.sglang_balancedness:.2f}."
    )
    if np.isnan(one.single_pass_balancedness):
        return text
    return (
        f"{text} They look at single passes, where noise makes the last about "
        f"{one.single_pass_balancedness:.2f}."
    )


def _columns(trend: ImbalanceTrend | None) -> tuple[Column, ...]:
    seconds = 0.0 if trend is None else len(trend.history.starts_ms) * trend.history.seconds
    over_time = f"net, {words.duration(seconds)}" if seconds else ""
    return (*_COLUMNS, Column(over_time, left=True), Column("verdict", left=True))


def _layer_rows(
    answer: ImbalanceAnswer, imbalance: Imbalance, placement: PlacementSnapshot, acceptable: float
) -> list[list[str]]:
    order = np.argsort(-np.nan_to_num(imbalance.net_ratio, nan=0.0), kind="stable")
    history = None if answer.trend is None else answer.trend.history
    nets = imbalance.net_ratio[imbalance.has_verdict]
    top = max(acceptable, float(nets.max(initial=1.0)))
    return [
        [
            str(answer.assessment.window.layers[row]),
            _number(imbalance.ratio[row]),
            _number(imbalance.noise_floor[row]),
            _number(imbalance.net_ratio[row]),
            _number(imbalance.balancedness[row]),
            _number(imbalance.ratio[row] - 1),
            f"rank {placement.ranks[imbalance.hottest_rank[row]]}",
            words.compact(imbalance.rank_loads[row].mean()),
            "" if history is None else words.trace(history.net_ratio[:, row].tolist(), 1.0, top),
            imbalance.verdicts[row].value,
        ]
        for row in order
    ]


def _scope_dict(answer: ImbalanceAnswer) -> dict[str, Any]:
    assessment = answer.assessment
    return describe_scope(assessment) | {
        "silent_ranks": list(answer.silent_ranks),
        "passes": answer.passes,
        "conventions": _conventions_dict(answer.conventions),
        "over_time": history_dict(answer.trend),
        "layers": _layers_dict(answer),
        "skew": skew_dicts(assessment),
        "idle_experts": idle_experts_dict(assessment),
        "regret": regret_dict(answer.trend, assessment.window.layers),
        "activated_experts": activated_experts_dict(answer),
    }


def _conventions_dict(one: BalanceConventions | None) -> dict[str, float | None] | None:
    if one is None:
        return None
    return {
        "mean_ratio": json_number(one.mean_ratio),
        "mean_excess": json_number(one.mean_excess),
        "vllm_balancedness": json_number(one.vllm_balancedness),
        "sglang_balancedness": json_number(one.sglang_balancedness),
        "single_pass_balancedness": json_number(one.single_pass_balancedness),
    }


def _layers_dict(answer: ImbalanceAnswer) -> list[dict[str, Any]]:
    assessment = answer.assessment
    imbalance, placement = assessment.imbalance, assessment.placement
    if imbalance is None or placement is None:
        return []
    return [
        {
            "layer": int(layer),
            "ratio": json_number(imbalance.ratio[row]),
            "noise_floor": json_number(imbalance.noise_floor[row]),
            "net_ratio": json_number(imbalance.net_ratio[row]),
            "balancedness": json_number(imbalance.balancedness[row]),
            "excess": json_number(imbalance.ratio[row] - 1),
            "hottest_rank": int(placement.ranks[imbalance.hottest_rank[row]]),
            "mean_rank_load": float(imbalance.rank_loads[row].mean()),
            "design_effect": json_number(assessment.design_effect[row]),
            "verdict": imbalance.verdicts[row].value,
        }
        | layer_trend_dict(answer.trend, row)
        for row, layer in enumerate(assessment.window.layers)
    ]


def _number(value: float) -> str:
    return UNKNOWN if np.isnan(value) else f"{value:.2f}"
