"""What the placement that an engine serves from costs now, against one a few moves away.

Drift by itself harms nobody: a placement may suit the new traffic as well as the old. And an uneven layer is
no reason to move experts where no move helps. Regret is what is left: balance that a few transfers would win.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.frozen import lock
from moescope.analysis.imbalance import BoolArray, subtract_noise_floor
from moescope.analysis.placement_score import balance_ratio
from moescope.analysis.replan import replan
from moescope.schemas.records import FloatArray, IntArray
from moescope.schemas.topology import EMPTY_SLOT, Placement

MOVED_SHARE = 0.02
"""Physical experts that may move: 2 % win most of what a plan from scratch does (planner's notes, §5)."""


@dataclass(frozen=True, slots=True)
class Regret:
    """What a few moves would win on a window's own counts. Arrays are ``[layers]``, read-only.

    The figures are of the window that the moves were chosen for: a reason to look, no forecast. What a plan
    is worth on the next window, a back-test says.

    Attributes:
        ratio_now: float64, max / mean rank load with the current placement; 1 without tokens.
        ratio_after_moves: float64, after the moves, nowhere above ``ratio_now``.
        regret: float64, the fall of max / mean net of the noise floor; 0 where it is unknown.
        moved_per_layer: int64, copies that ranks would have to receive.
        moved_share: of the physical experts.
        only_replicas_help: bool, an uneven layer that no placement of single copies can even out.
    """

    ratio_now: FloatArray
    ratio_after_moves: FloatArray
    regret: FloatArray
    moved_per_layer: IntArray
    moved_share: float
    only_replicas_help: BoolArray

    @property
    def moved(self) -> int:
        """Copies to move, of all layers."""
        return int(self.moved_per_layer.sum())

    @property
    def mean(self) -> float:
        """Regret averaged over layers: the part of the experts' time in a pass that the moves would save.

        A pass waits for the fullest rank of each layer in turn, so its time goes with the sum of max / mean.
        """
        return float(self.regret.mean()) if len(self.regret) else 0.0


def estimate_regret(
    tokens_per_layer_expert: IntArray,
    placement: Placement,
    noise_floor: FloatArray,
    *,
    moved_share: float = MOVED_SHARE,
    rows: IntArray | None = None,
) -> Regret:
    """Compare the current placement with the best one that is few moves away, on one window's counts.

    regret = net(now) − net(after), where net takes the noise floor out of a max / mean as
    :func:`moescope.analysis.imbalance.subtract_noise_floor` does: moves that only fit the noise win nothing.

    Args:
        tokens_per_layer_expert: int64 ``[layers, experts]``.
        placement: what the engine serves from.
        noise_floor: float64 ``[layers]``, max / mean that uniform routing would show; NaN where there is
            nothing to say, and no regret then.
        moved_share: physical experts that may move, as a share of those of all layers.
        rows: int64, layers that may change; all if None. A few of the worst are looked at much sooner, and
            their regret is a lower bound of that of all.
    """
    table = placement.physical_to_logical_map
    rows = np.arange(len(table)) if rows is None else rows
    some = Placement(table[rows], placement.ep_size, placement.num_experts)
    share = min(moved_share * len(table) / max(len(rows), 1), 1.0)
    plan = replan(tokens_per_layer_expert[rows], some, max_moved_share=share)
    now = balance_ratio(tokens_per_layer_expert, placement)
    after, moved = now.copy(), np.zeros(len(table), dtype=np.int64)
    stuck = np.zeros(len(table), dtype=np.bool_)
    after[rows], moved[rows], stuck[rows] = plan.ratio_after, plan.moved_per_layer, plan.only_replicas_help
    floor = np.maximum(noise_floor, 1.0)  # NaN stays
    fall = subtract_noise_floor(now, floor) - subtract_noise_floor(after, floor)
    regret = np.nan_to_num(np.maximum(fall, 0.0), nan=0.0)
    copies = int((table != EMPTY_SLOT).sum())
    return Regret(
        *(lock(now), lock(after), lock(regret), lock(moved), int(moved.sum()) / max(copies, 1), lock(stuck))
    )
