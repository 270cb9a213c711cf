"""Where SGLang's time goes: each forward pass, and the three parts of its MoE layers.

A layer of routed experts has a dispatcher, whose ``dispatch`` and ``combine`` are the exchanges between the
ranks, and its own ``run_moe_core``, which is the grouped kernel. They are Python and run where the layer runs
eagerly; inside a replayed CUDA graph, which is every decode pass of most deployments and many a prefill, they
do not, and one line says so. Without an all-to-all there is no exchange to time: the dispatcher then only
hands on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from moescope.collector.device_clock import clock_of
from moescope.collector.pass_timing import PassTiming, Seam
from moescope.collector.recorder import Meter
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.settings import Settings
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")


def time_passes(
    meter: Meter, device: Any, shape: ModelShape, seams: Sequence[Seam], settings: Settings
) -> PassTiming | None:
    """Make the timing of one rank; None where its device has no clock here."""
    kind = torch.device(device).type
    clock = clock_of(kind)
    if clock is None:
        logger.info("moescope: passes are not timed on %s, only on CUDA and the CPU", kind)
        return None
    timing = PassTiming(
        meter, clock, shape.num_layers, sample=settings.timing_sample, by_layer=settings.traffic_by_layer
    )
    timing.watch(seams)
    return timing


def seams_of(experts: Sequence[Any], *, has_exchange: bool) -> list[Seam]:
    """The methods to time.

    Args:
        experts: the model's modules that hold routed experts.
        has_exchange: whether ranks send tokens to each other around them.
    """
    seams = [Seam(module, "run_moe_core", int(module.layer_id)) for module in experts]
    if has_exchange:
        for module in experts:
            dispatcher, layer = module.dispatcher, int(module.layer_id)
            seams.append(Seam(dispatcher, "dispatch", layer, DispatchStage.DISPATCH))
            seams.append(Seam(dispatcher, "combine", layer, DispatchStage.COMBINE))
    return seams
