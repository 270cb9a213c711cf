"""What one slow rank does to everybody's passes, TTFT and TPOT: a prediction from measured times.

**A layer of a pass** is the rank's own dense part, an exchange, the experts, an exchange back. The pass goes
on when the last result has come: it waits for the slowest of the ranks that hold an expert which any of its
tokens chose. For a rank that a token reaches with the chance q, a pass of n tokens needs it with the chance
1 − (1 − q)^n. The mean of the slowest is Σ over the ranks, the slowest first, of its time × the chance that
it is needed and none of the slower ones is.

**What is taken apart**: of the measured pass, the exchange (twice the shortest mean dispatch: the rank that
comes last waits least, so its dispatch is nearly without waiting) and the expected slowest expert kernel; the
rest is the dense part. **What is changed**: dense part and experts of one rank take k times as long.

**What follows in decode**: where as many requests arrive as before and each takes longer, more of them run at
once (Little's law), so a pass has more tokens, needs more ranks and activates more experts. Kernels that read
weights take as long as the experts that they activate are many: Σ 1 − exp(−n·pₑ) of them for n tokens that
choose e with the chance pₑ. The pass is solved for with the batch that it makes; both figures are given, at
once and settled. Prefill chunks keep their size.

**Assumptions**: arrivals and routing stay as they are, links are not slower. In an engine in lock step every
pass waits for every rank; then all are hit as the lock-step figure says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.analysis.frozen import lock, locked_float64
from moescope.schemas.errors import ShapeError
from moescope.schemas.records import FloatArray

_REFINEMENTS: Final = 4
_ROUNDS: Final = 60
_SETTLED: Final = 1e-4
MODEL_WORDS: Final = (
    "a layer waits for the slowest rank that its tokens need; arrivals and routing stay as they are, and "
    "decode batches grow as passes get longer"
)


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Measured passes of one EP group and phase.

    Attributes:
        step_seconds: float64 ``[ranks]``, one pass of each rank, on average.
        tokens_per_step: float64 ``[ranks]``, token rows of one pass.
        expert_seconds: float64 ``[layers, ranks]``, expert kernels of one pass.
        exchange_seconds: one dispatch or one combine without waiting.
        reach: float64 ``[layers, ranks]``, chance that a token needs the rank.
        num_layers: of the model, those without routed experts included.
        busy_share: float64 ``[ranks]``, part of the time that these passes take.
        activated: float64 ``[2, points]``: multiples of the batch, and experts that it activates over those
            of the batch as it is; None where batches do not grow.
    """

    step_seconds: FloatArray
    tokens_per_step: FloatArray
    expert_seconds: FloatArray
    exchange_seconds: float
    reach: FloatArray
    num_layers: int
    busy_share: FloatArray
    activated: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class SlowPass:
    """Predicted passes while one rank is slow.

    Attributes:
        rank: row of the slow rank; ``times_slower`` its factor.
        at_once: float64 ``[ranks]``, pass of each rank over what it was, with the batches as they are.
        ratio: float64 ``[ranks]``, the same once batches have grown with it.
        lock_step_ratio: the same of all ranks where every pass waits for every rank.
        touching_share: share of the tokens that need the rank in one layer, mean over the layers.
        touching_any_share: share of the tokens that need it in at least one layer, if layers are independent.
        needing_share: float64 ``[ranks]``, chance that a pass of each rank needs it in a layer, on average.
    """

    rank: int
    times_slower: float
    at_once: FloatArray
    ratio: FloatArray
    lock_step_ratio: float
    touching_share: float
    touching_any_share: float
    needing_share: FloatArray


@dataclass(frozen=True, slots=True)
class SlowRequests:
    """What requests of each rank feel; float64 ``[ranks]``, NaN where it cannot be said.

    Attributes:
        ttft_ratio: TTFT over what it was; infinite where prompts come faster than they can be computed.
        tpot_ratio: TPOT over what it was; infinite where prefill leaves no time to decode.
    """

    ttft_ratio: FloatArray
    tpot_ratio: FloatArray


def slow_down(times: PassTimes, rank: int, times_slower: float) -> SlowPass:
    """Predict the passes of every rank while ``rank`` takes ``times_slower`` times as long.

    Raises:
        ShapeError: a rank outside the axis, or a factor below 1.
    """
    ranks = len(times.step_seconds)
    if not 0 <= rank < ranks:
        raise ShapeError(f"rank {rank}: the passes of the ranks 0 … {ranks - 1} are known")
    if not times_slower >= 1:
        raise ShapeError(f"{times_slower:g} times slower is not slower; use a factor of 1 or more")
    slowness = np.ones(ranks)
    slowness[rank] = times_slower
    needs = chance_of_need(times.reach, times.tokens_per_step)
    always = np.ones_like(needs)
    at_once, ratio = _settle(times, slowness, needs)
    in_step = _settle(times, slowness, always)[1]
    reach = times.reach[:, rank]
    with np.errstate(divide="ignore"):
        untouched = float(np.exp(np.log1p(-reach).sum()))
    return SlowPass(
        *(rank, times_slower, lock(at_once), lock(ratio), float(in_step.max())),
        *(float(reach.mean()) if len(reach) else 0.0, 1 - untouched),
        lock(needs[:, :, rank].mean(axis=1)),
    )


def slow_requests(
    prefill: tuple[PassTimes, SlowPass] | None,
    decode: tuple[PassTimes, SlowPass] | None,
    *,
    ttft_seconds: float,
    queue_seconds: float,
) -> SlowRequests:
    """Predict what requests of each rank feel.

    TPOT is the decode pass over the part of the time that prefill leaves. TTFT is the queue and the rest; the
    rest grows as prefill passes do, the queue as that of one server with Poisson arrivals at the load ρ,
    W ∝ s·ρ / (1 − ρ) (Pollaczek and Khinchine, the spread of lengths unchanged).

    Args:
        prefill: times and prediction; None where the group does not prefill.
        decode: likewise.
        ttft_seconds: mean TTFT now; NaN where it is not known.
        queue_seconds: mean time in the queue now, a part of it; NaN counts as none.
    """
    known = prefill or decode
    ranks = len(known[0].step_seconds) if known else 0
    ttft, tpot = np.full(ranks, np.nan), np.full(ranks, np.nan)
    before = after = np.zeros(ranks)
    if prefill is not None:
        times, slow = prefill
        before, after = times.busy_share, times.busy_share * slow.ratio
        queue = min(max(np.nan_to_num(queue_seconds), 0.0), ttft_seconds)
        longer = slow.ratio**2 * np.divide(1 - before, 1 - after, out=np.full(ranks, np.inf), where=after < 1)
        waits = queue * longer if queue else np.where(after < 1, 0.0, np.inf)
        ttft = (waits + (ttft_seconds - queue) * slow.ratio) / ttft_seconds
    if decode is not None:
        left = np.divide(1 - before, 1 - after, out=np.full(ranks, np.inf), where=after < 1)
        tpot = decode[1].ratio * np.where(before < 1, left, 1.0)
    return SlowRequests(locked_float64(ttft), locked_float64(tpot))


def chance_of_need(reach: FloatArray, tokens_per_step: FloatArray) -> FloatArray:
    """Chance that a pass of each rank needs a rank in a layer: float64 ``[ranks, layers, ranks]``."""
    with np.errstate(divide="ignore"):
        spared = np.log1p(-np.clip(reach, 0.0, 1.0))
    needs: FloatArray = -np.expm1(np.maximum(tokens_per_step, 1.0)[:, None, None] * spared)
    return needs


def mean_of_slowest(values: FloatArray, chances: FloatArray) -> FloatArray:
    """Mean of the largest value of the last axis that is there; 0 where none is.

    Args:
        values: float64 ``[…, n]``, not negative.
        chances: the same shape, of each to be there, whatever the others are.
    """
    order = np.argsort(-values, axis=-1, kind="stable")
    value, there = np.take_along_axis(values, order, -1), np.take_along_axis(chances, order, -1)
    absent = np.cumprod(1 - there, axis=-1)
    none_slower = np.concatenate([np.ones_like(absent[..., :1]), absent[..., :-1]], axis=-1)
    mean: FloatArray = (value * there * none_slower).sum(axis=-1)
    return mean


def _settle(times: PassTimes, slowness: FloatArray, needs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Passes over what they were, at once and with the batches that they make: float64 ``[ranks]`` each."""
    dense = _dense_seconds(times, needs)
    exchanges = 2 * len(times.reach) * times.exchange_seconds

    def passes(experts: FloatArray, needs: FloatArray, slowness: FloatArray | float) -> FloatArray:
        own = dense * slowness
        return times.num_layers * own + _waits(own, experts * slowness, needs) + exchanges

    before = passes(times.expert_seconds, needs, np.ones(len(dense)))
    at_once = ratio = passes(times.expert_seconds, needs, slowness) / before
    for _ in range(_ROUNDS if times.activated is not None else 0):
        growth = float(np.average(ratio, weights=np.maximum(times.tokens_per_step, 1e-9)))
        more = np.interp(growth, *times.activated) if times.activated is not None else 1.0
        grown = 1 - (1 - needs) ** ratio[:, None, None]
        settled = passes(times.expert_seconds * more, grown, slowness) / before
        is_settled = np.allclose(settled, ratio, rtol=_SETTLED)
        ratio = settled
        if is_settled:
            break
    return at_once, ratio


def _dense_seconds(times: PassTimes, needs: FloatArray) -> FloatArray:
    """What is left of a measured pass, by layer of the model: float64 ``[ranks]``, not below 0."""
    exchanges = 2 * len(times.reach) * times.exchange_seconds
    dense = np.full(len(times.step_seconds), times.step_seconds.min(initial=np.inf) / times.num_layers)
    for _ in range(_REFINEMENTS):
        waits = _waits(dense, times.expert_seconds, needs)
        dense = np.maximum(times.step_seconds - exchanges - waits, 0.0) / times.num_layers
    return dense


def _waits(dense: FloatArray, experts: FloatArray, needs: FloatArray) -> FloatArray:
    """From the end of each rank's dense part to the last result it needs, all layers: ``[ranks]``."""
    late = np.maximum(dense[None, :] - dense[:, None], 0.0)[:, None, :]
    waits: FloatArray = mean_of_slowest(late + experts, needs).sum(axis=1)
    return waits
