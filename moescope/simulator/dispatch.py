"""Who waits for whom in a simulated fleet, and how long dispatches and combines take."""

from __future__ import annotations

import numpy as np

from moescope.schemas.attributes import DispatchStage
from moescope.schemas.metrics import DISPATCH_DURATION
from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.step_time import StepTime


def wait_ns(step: StepTime, steps: int, jitter: FloatArray) -> dict[DispatchStage, IntArray]:
    """How long each rank waited for each peer: int64 ``[ep_size, ep_size]``, row = who waited.

    A rank waits for a peer that is later than itself, for as long as it is later: the late rank itself waits
    least. Every peer is also a little late now and then.

    Args:
        step: one pass.
        steps: passes of the window.
        jitter: float64 ``[ep_size]``: seconds per layer that each rank is late by chance, on average.
    """
    layers = len(step.experts)
    late_dense = np.maximum(step.dense[None, :] - step.dense[:, None], 0) * layers
    late_experts = np.zeros_like(late_dense)
    for by_rank in step.experts:
        late_experts += np.maximum(by_rank[None, :] - by_rank[:, None], 0)
    by_chance = jitter[None, :] * layers
    waits = {}
    for stage, late in ((DispatchStage.DISPATCH, late_dense), (DispatchStage.COMBINE, late_experts)):
        seconds = late + by_chance
        np.fill_diagonal(seconds, 0)
        waits[stage] = np.rint(seconds * steps * 1e9).astype(np.int64)
    return waits


def duration_buckets(seconds: FloatArray, steps: int) -> tuple[IntArray, FloatArray]:
    """Every call of a window as distributions.

    Args:
        seconds: float64 ``[ep_size, num_moe_layers]``: one call of each layer.
        steps: passes of the window, each a call per layer.

    Returns:
        int64 ``[ep_size, buckets]`` of ``moe.dispatch.duration``, and their sums in seconds ``[ep_size]``.
    """
    bounds = np.asarray(DISPATCH_DURATION.bounds)
    ranks, _ = seconds.shape
    width = len(bounds) + 1
    bucket = np.searchsorted(bounds, seconds, side="left") + np.arange(ranks)[:, None] * width
    counts = np.bincount(bucket.ravel(), minlength=ranks * width).reshape(ranks, width)
    return counts.astype(np.int64) * steps, seconds.sum(axis=1) * steps
