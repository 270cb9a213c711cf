"""What somebody can choose of a plan, of one group: from how little to how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from moescope.planning.load import PlanLoad
from moescope.schemas.topology import EMPTY_SLOT, Placement

MOVE_LIMITS: Final = ("0.5%", "1%", "2%", "5%", "10%", "20%")
"""More than that moves nearly as much as a plan from scratch."""
USUAL_MOVE_LIMIT: Final = "5%"
"""Reaches the balance of a plan from scratch on the next window, at a twentieth of its moves."""

_MORE_SLOTS: Final = 8
"""Slots of a rank and layer beyond those for one copy each, up to which is offered."""
_SCALES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """What there is to choose from.

    Attributes:
        ranks: of the group.
        redundant_now: copies of a layer beyond one per expert, the most of any layer.
        redundant_most: so many are offered at most.
        redundant_step: whole slots on every rank, where there are whole ones now.
        budgets: memory of a rank's experts in sizes that ``--memory-budget`` reads, rising; empty where the
            size of an expert is not known.
        nodes: nodes that ranks live on; 1 where that is not known.
    """

    ranks: int
    redundant_now: int
    redundant_most: int
    redundant_step: int
    budgets: tuple[str, ...]
    nodes: int


def list_choices(load: PlanLoad) -> PlanChoices | None:
    """What can be chosen for a load; None where the current placement is not known, nor the ranks."""
    if load.current is None:
        return None
    ranks, experts = load.current.ep_size, load.experts
    now = _count_redundant(load.current)
    step = ranks if now % ranks == 0 and experts % ranks == 0 else 1
    most = min(max(now, _MORE_SLOTS * ranks), experts * (ranks - 1)) // step * step
    return PlanChoices(ranks, now, most, step, _list_budgets(load, ranks), load.nodes or 1)


def spell_bytes(value: float) -> str:
    """``90.6GB``, rounded up to three or four digits: a budget that is read back holds ``value``."""
    scale, unit = next(((scale, unit) for scale, unit in _SCALES if value >= scale), _SCALES[-1])
    return f"{math.ceil(value / scale * 10 - 1e-9) / 10:g}{unit}"


def _list_budgets(load: PlanLoad, ranks: int) -> tuple[str, ...]:
    """Room for one copy of every expert, and for one slot more of each layer at a time."""
    sizes = load.bytes_per_expert
    if sizes is None or not (sizes > 0).all():
        return ()
    least = -(-load.experts // ranks)
    of_all_layers = float(sizes.sum())
    budgets = (spell_bytes(slots * of_all_layers) for slots in range(least, least + _MORE_SLOTS + 1))
    return tuple(dict.fromkeys(budgets))


def _count_redundant(placement: Placement) -> int:
    held = (placement.physical_to_logical_map != EMPTY_SLOT).sum(axis=1)
    return int(held.max()) - placement.num_experts
