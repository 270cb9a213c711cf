"""Everything known of each rank, side by side: its work, its passes, and who waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moescope.analysis.dispatch import WaitMatrix
from moescope.analysis.rank_load import RankWork
from moescope.analysis.rank_steps import RankSteps
from moescope.analysis.straggler_report import StragglerAnswer
from moescope.analysis.straggler_words import title
from moescope.schemas.attributes import DispatchStage

_NOT_KNOWN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """One rank. NaN where something is not known.

    Attributes:
        host: empty where it is not known.
        of_mean: its assignments over all layers, over the mean rank's.
        worst_layer: where it has most over the layer's mean rank, ``worst_of_mean``; None if not placed.
        pass_seconds: its typical forward pass, waiting included.
        times_awaited: by stage: what the others wait for it, over what is usual.
        lost_share: part of its time that each other rank loses to it.
        time_at_load: its expert time over what others need for the same load.
        named: what the straggler report says of it, sentences.
    """

    rank: int
    host: str
    of_mean: float
    worst_layer: int | None
    worst_of_mean: float
    pass_seconds: float
    times_awaited: Mapping[DispatchStage, float]
    lost_share: float
    time_at_load: float
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank waits for another in one stage.

    Attributes:
        peer: the other one.
        value: seconds a minute; multiples of the mean pair where the engine counts no time.
    """

    peer: int
    value: float


@dataclass(frozen=True, slots=True)
class RankWaits:
    """Whom a rank waits for in one stage and who waits for it, the longest first."""

    stage: DispatchStage
    is_time: bool
    waits_for: tuple[Wait, ...]
    awaited_by: tuple[Wait, ...]


def list_rank_facts(
    work: RankWork | None, steps: RankSteps | None, stragglers: StragglerAnswer
) -> tuple[RankFacts, ...]:
    """Every rank that anything is known of, in the order of their numbers."""
    signs = {one.rank: one for one in stragglers.ranks}
    named: dict[int, list[str]] = {}
    for one in stragglers.stragglers:
        for rank in one.ranks:
            named.setdefault(rank, []).append(title(one))
    known = {*signs, *named}
    known |= set() if work is None else set(work.ranks.tolist())
    known |= set() if steps is None else set(steps.ranks.tolist())
    facts = []
    for rank in sorted(known):
        of_mean, layer, worst = _work_of(work, rank)
        sign = signs.get(rank)
        facts.append(
            RankFacts(
                rank=rank,
                host="" if sign is None else sign.host,
                of_mean=of_mean,
                worst_layer=layer,
                worst_of_mean=worst,
                pass_seconds=_pass_of(steps, rank),
                times_awaited={} if sign is None else sign.times_awaited,
                lost_share=_NOT_KNOWN if sign is None else sign.lost_share,
                time_at_load=_NOT_KNOWN if sign is None else sign.time_at_load,
                named=tuple(named.get(rank, ())),
            )
        )
    return tuple(facts)


def list_rank_waits(
    waits: Mapping[DispatchStage, WaitMatrix], rank: int, seconds: float, limit: int
) -> tuple[RankWaits, ...]:
    """Whom a rank waits for and who waits for it, the ``limit`` longest of each, over ``seconds``."""
    found = []
    for stage, matrix in waits.items():
        position = np.flatnonzero(matrix.ranks == rank)
        if not len(position):
            continue
        cells = matrix.per_minute(seconds) if matrix.is_time else matrix.of_mean_pair
        row, column = cells[position[0]], cells[:, position[0]]
        found.append(
            RankWaits(
                *(stage, matrix.is_time),
                _longest(matrix, row, rank, limit),
                _longest(matrix, column, rank, limit),
            )
        )
    return tuple(found)


def _longest(
    matrix: WaitMatrix, values: np.ndarray[tuple[int], np.dtype[np.float64]], rank: int, limit: int
) -> tuple[Wait, ...]:
    order = np.argsort(-np.nan_to_num(values, nan=0.0), kind="stable")
    peers = [at for at in order if matrix.ranks[at] != rank and values[at] > 0]
    return tuple(Wait(int(matrix.ranks[at]), float(values[at])) for at in peers[:limit])


def _work_of(work: RankWork | None, rank: int) -> tuple[float, int | None, float]:
    position = None if work is None else work.position(rank)
    if work is None or position is None:
        return _NOT_KNOWN, None, _NOT_KNOWN
    layer = int(work.layers[work.worst_row[position]]) if len(work.layers) else None
    return float(work.of_mean[position]), layer, float(work.worst_of_mean[position])


def _pass_of(steps: RankSteps | None, rank: int) -> float:
    position = None if steps is None else steps.position(rank)
    return _NOT_KNOWN if steps is None or position is None else float(steps.typical_pass_seconds[position])
