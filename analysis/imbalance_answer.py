"""One scope's answer to "is the work spread evenly": what is judged, what became of it, what a pass reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from moescope.analysis.activated_experts import ActivatedExperts, estimate_activated_experts, read_passes
from moescope.analysis.assessment import LoadAssessment, read_assessment
from moescope.analysis.expert_load import LoadScope
from moescope.analysis.imbalance import BoolArray
from moescope.analysis.imbalance_conventions import BalanceConventions, compare_conventions
from moescope.analysis.imbalance_trend import ImbalanceTrend, read_trend
from moescope.analysis.silent_ranks import read_silent_ranks
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class ImbalanceAnswer:
    """Everything about the balance of one scope in one window.

    Attributes:
        passes: forward passes of the group; None where no engine says.
        conventions: None without a placement.
        activated: None without a placement or passes.
        trend: None where only the window itself was looked at.
        silent_ranks: EP ranks that stopped to report while others went on.
    """

    assessment: LoadAssessment
    passes: int | None = None
    conventions: BalanceConventions | None = None
    activated: ActivatedExperts | None = None
    trend: ImbalanceTrend | None = None
    silent_ranks: tuple[int, ...] = ()

    @property
    def reads_are_worse(self) -> BoolArray | None:
        """Layers whose ranks differ more in the experts they read than in tokens, both net of noise.

        bool ``[layers]``, False without a verdict; None where it is not known.
        """
        imbalance = self.assessment.imbalance
        if self.activated is None or imbalance is None:
            return None
        worse: BoolArray = imbalance.has_verdict & (self.activated.net_ratio > imbalance.net_ratio)
        return worse


def answer_imbalance(
    assessment: LoadAssessment, *, passes: int | None = None, trend: ImbalanceTrend | None = None
) -> ImbalanceAnswer:
    """Put together what follows from an assessment, the passes in it and what became of it."""
    placement, imbalance = assessment.placement, assessment.imbalance
    if placement is None or imbalance is None:
        return ImbalanceAnswer(assessment, passes, trend=trend)
    activated = None
    if passes is not None:
        activated = estimate_activated_experts(
            assessment.window.tokens, placement.replicas, assessment.design_effect, passes
        )
    conventions = compare_conventions(imbalance.rank_loads, passes)
    return ImbalanceAnswer(assessment, passes, conventions, activated, trend)


def read_imbalance_answer(
    store: Store, scope: LoadScope, window_seconds: float, settings: Settings
) -> ImbalanceAnswer:
    """Read and judge the balance of one scope, now and over time.

    Raises:
        StoreError: the store cannot answer.
    """
    assessment = read_assessment(store, scope, window_seconds, settings)
    passes = read_passes(store, assessment.window, settings)
    answer = answer_imbalance(assessment, passes=passes, trend=read_trend(store, assessment, settings))
    return replace(answer, silent_ranks=read_silent_ranks(store, scope.service, scope.ep_group, settings))
