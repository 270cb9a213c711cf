"""How each rank did in the newest windows: the table beside the verdicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from moescope.analysis.medians import median_of_known
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules
from moescope.analysis.straggler_signals import Signs, measure_experts
from moescope.schemas.attributes import DispatchStage


@dataclass(frozen=True, slots=True)
class RankSigns:
    """One rank, medians over the newest windows. NaN where something is not known.

    Attributes:
        host: empty where it is not known.
        times_awaited: by stage: what the others wait for it, over what is usual.
        lost_share: part of its time that each other rank loses to it; 0 where it is not late.
        time_at_load: its expert time over what others need for the same load.
        load_of_median: its assignments over the median rank's.
    """

    rank: int
    host: str
    times_awaited: Mapping[DispatchStage, float]
    lost_share: float
    time_at_load: float
    load_of_median: float

    @property
    def worst(self) -> float:
        """The largest of ``times_awaited``, or else the time at equal load."""
        known = [value for value in self.times_awaited.values() if not np.isnan(value)]
        return max(known) if known else float(np.nan_to_num(self.time_at_load))


def can_judge(evidence: StragglerEvidence, signs: Signs | None) -> bool:
    """Whether anything is known that tells one rank's lateness from another's."""
    has_experts = any(one.expert_seconds is not None for one in evidence.times.values())
    return signs is not None and (bool(signs.stages) or has_experts)


def list_rank_signs(
    evidence: StragglerEvidence, signs: Signs, rules: StragglerRules, limit: int, named: Collection[int] = ()
) -> tuple[RankSigns, ...]:
    """The ``limit`` ranks for which the others wait longest, those first; before them those that are named.

    Empty where nothing is known that could be shown.
    """
    if not can_judge(evidence, signs):
        return ()
    newest = np.arange(evidence.num_windows) >= evidence.num_windows - rules.recent_windows
    awaited = {stage: median_of_known(one.ratio[newest], 0) for stage, one in signs.stages.items()}
    worst = np.zeros(evidence.num_ranks)
    for ratios in awaited.values():
        worst = np.fmax(worst, ratios)
    lost = median_of_known(signs.lost_share(evidence.seconds)[newest], 0) if signs.stages else worst * np.nan
    worst[np.isin(evidence.ranks, list(named))] += np.nanmax(worst, initial=0) + 1
    return tuple(
        RankSigns(
            int(evidence.ranks[rank]),
            evidence.hosts[rank] if evidence.hosts else "",
            {stage: float(ratios[rank]) for stage, ratios in awaited.items()},
            float(lost[rank]),
            float(median_of_known(measure_experts(evidence, int(rank), newest)[0], 0)),
            float(signs.load[rank]),
        )
        for rank in np.argsort(-worst, kind="stable")[:limit]
    )
