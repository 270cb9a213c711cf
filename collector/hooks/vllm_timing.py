"""Where vLLM's time goes: the seams of its modular MoE kernels, and the model runner's forward pass.

A modular kernel has three parts, whatever the all-to-all behind them: prepare (dispatch), the grouped
experts, finalize (combine). Its methods are Python and run where the layer runs eagerly. They do not run
inside a replayed CUDA graph, a monolithic kernel does not have them, and on the CPU torch.compile traces
through them: there dispatch, expert and combine times are not reported, and one line says so.

Dispatch and combine include waiting for the slowest rank, and where vLLM overlaps its shared experts with
them, those. A rank that idles in step with the others computes their tokens untimed: only passes with load of
a rank's own are looked into.

A step is one ``execute_model`` of the model runner: the forward pass with the preparation of its inputs. On
the CPU that is its time by the clock; on CUDA, where it only launches, the time between two events in the
engine's stream.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from moescope.collector.device_clock import clock_of
from moescope.collector.hooks import vllm_layers
from moescope.collector.pass_timing import PassTiming, Seam
from moescope.collector.recorder import Meter
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.settings import Settings
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")


def time_passes(
    meter: Meter, worker: Any, shape: ModelShape, layers: Sequence[Any], settings: Settings
) -> PassTiming | None:
    """Make the timing of one worker; None where its device has no clock here."""
    clock = clock_of(worker.device.type)
    if clock is None:
        logger.info("moescope: steps are not timed on %s, only on CUDA and the CPU", worker.device.type)
        return None
    timing = PassTiming(
        meter,
        clock,
        shape.num_layers,
        sample=settings.timing_sample,
        by_layer=settings.traffic_by_layer,
    )
    reason = why_layers_are_not_timed(worker, layers)
    if reason:
        logger.info("moescope: times of dispatch, experts and combine are not reported: %s", reason)
    else:
        timing.watch([seam for layer in layers for seam in seams_of(layer)])
    return timing


def why_layers_are_not_timed(worker: Any, layers: Sequence[Any]) -> str:
    """The reason in words; empty where they are."""
    if is_traced(worker.vllm_config):
        return "torch.compile traces through the layers on the CPU; serve with --enforce-eager to time them"
    hidden = [layer for layer in layers if not _is_modular(layer)]
    if not hidden:
        return ""
    kernel = _kernel_of(hidden[0])
    name = type(getattr(kernel, "fused_experts", None) or hidden[0]).__name__
    return f"{name} computes dispatch, experts and combine as one ({len(hidden)} of {len(layers)} MoE layers)"


def is_traced(vllm_config: Any) -> bool:
    """Whether torch.compile sees what happens between the layers: on the CPU, unless the engine is eager."""
    from vllm.platforms import current_platform  # noqa: PLC0415 - engines are imported where they are there

    mode = getattr(getattr(vllm_config, "compilation_config", None), "mode", 0)
    return bool(current_platform.is_cpu() and mode)


def seams_of(layer: Any) -> list[Seam]:
    """The methods of one layer's kernel to be timed; no exchange where its tokens stay on this rank."""
    from vllm.model_executor.layers.fused_moe.prepare_finalize import no_dp_ep  # noqa: PLC0415 - lazy

    impl, number = _kernel_of(layer).impl, int(layer.layer_id)
    experts = Seam(impl, "_fused_experts", number)
    if isinstance(impl.prepare_finalize, no_dp_ep.MoEPrepareAndFinalizeNoDPEPModular):
        return [experts]
    return [
        Seam(impl, "_prepare", number, DispatchStage.DISPATCH),
        experts,
        Seam(impl, "_finalize", number, DispatchStage.COMBINE),
    ]


def _kernel_of(layer: Any) -> Any:
    method = getattr(getattr(layer, "routed_experts", None), "quant_method", None)
    return getattr(method, "moe_kernel", None)


def _is_modular(layer: Any) -> bool:
    impl = getattr(_kernel_of(layer), "impl", None)
    names = ("_prepare", "_fused_experts", "_finalize")
    return not vllm_layers.is_monolithic(layer) and all(callable(getattr(impl, name, None)) for name in names)
