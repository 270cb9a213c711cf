"""Who waits for whom in a simulated fleet, and how long dispatches and combines take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moescope.schemas.attributes import DispatchStage
from moescope.schemas.metrics import DISPATCH_DURATION
from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.step_time import StepTime


def wait_ns(
    step: StepTime, steps: IntArray, jitter: FloatArray, is_alive: npt.NDArray[np.bool_]
) -> dict[DispatchStage, IntArray]:
    """How long each rank waited for each peer: int64 ``[ep_size, ep_size]``, row = who waited.

    A rank waits for a peer that is later than itself, for as long as it is later: the late rank itself waits
    least. In a dispatch it waits only for tokens that are routed to it, in a combine only for experts that
    its own tokens chose. Every peer is also a little late now and then; a dead one is not waited for at all.

    Args:
        step: one pass.
        steps: int64 ``[ep_size]``: passes of each rank in the window.
        jitter: float64 ``[ep_size]``: seconds per layer that each rank is late by chance, on average.
        is_alive: bool ``[ep_size]``: ranks that take part.
    """
    late_dense = np.maximum(step.dense[None, :] - step.dense[:, None], 0)
    late_dense *= np.repeat(step.needs.sum(axis=1), step.tensor_parallel, axis=0).T
    late_experts = np.zeros_like(late_dense)
    for layer, by_rank in enumerate(step.experts):
        needs = np.repeat(step.needs[:, layer], step.tensor_parallel, axis=0)
        late_experts += np.maximum(by_rank[None, :] - by_rank[:, None], 0) * needs
    by_chance = jitter[None, :] * len(step.experts)
    both_live = is_alive[:, None] & is_alive[None, :]
    waits = {}
    for stage, late in ((DispatchStage.DISPATCH, late_dense), (DispatchStage.COMBINE, late_experts)):
        seconds = np.where(both_live, late + by_chance, 0)
        np.fill_diagonal(seconds, 0)
        waits[stage] = np.rint(seconds * steps[:, None] * 1e9).astype(np.int64)
    return waits


def duration_buckets(seconds: FloatArray, steps: IntArray) -> tuple[IntArray, FloatArray]:
    """Every call of a window as distributions.

    Args:
        seconds: float64 ``[ep_size, num_moe_layers]``: one call of each layer.
        steps: int64 ``[ep_size]``: passes of each rank in the window, each a call per layer.

    Returns:
        int64 ``[ep_size, buckets]`` of ``moe.dispatch.duration``, and their sums in seconds ``[ep_size]``.
    """
    bounds = np.asarray(DISPATCH_DURATION.bounds)
    ranks, _ = seconds.shape
    width = len(bounds) + 1
    bucket = np.searchsorted(bounds, seconds, side="left") + np.arange(ranks)[:, None] * width
    counts = np.bincount(bucket.ravel(), minlength=ranks * width).reshape(ranks, width)
    return counts.astype(np.int64) * steps[:, None], seconds.sum(axis=1) * steps
