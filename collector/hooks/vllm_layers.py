"""vLLM's modules that route: where they are in a model, what they choose from, where their callback hangs.

There are three kinds. A ``MoERunner`` with a router of its own calls the router's ``capture_fn``; one with a
monolithic kernel, which routes by itself, calls its ``routing_sink``'s, if the kernel reports its routing at
all; a few models' kernels are no ``MoERunner`` and carry ``layer_id`` and ``capture_fn`` themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import ModelShape

CaptureFn: TypeAlias = Callable[[Any], None]


def find_moe_layers(model: Any) -> list[Any]:
    """The modules of ``model`` that route, in layer order. Each has a ``layer_id``."""
    from vllm.model_executor.layers.fused_moe import routed_experts_capturer as capturer  # noqa: PLC0415 - lazy
    from vllm.model_executor.layers.fused_moe.layer import MoERunner  # noqa: PLC0415 - lazy

    kinds = (MoERunner, capturer.RoutedExpertsCaptureSource)
    return sorted((m for m in model.modules() if isinstance(m, kinds)), key=lambda m: m.layer_id)


def shape_of(name: str, num_layers: int, layers: Sequence[Any]) -> ModelShape:
    """Read the shape off the modules that route.

    Raises:
        EngineNotSupportedError: the layers differ from each other, or two of them share one index.
    """
    sizes = {_size_of(layer) for layer in layers}
    ids = [int(layer.layer_id) for layer in layers]
    if len(sizes) > 1:
        raise EngineNotSupportedError(f"the MoE layers of {name} differ in (experts, top-k): {sorted(sizes)}")
    if len(set(ids)) < len(ids):
        doubled = next(i for i in ids if ids.count(i) > 1)
        raise EngineNotSupportedError(f"layer {doubled} of {name} has more than one router")
    num_experts, top_k = sizes.pop()
    return ModelShape(name, max(num_layers, ids[-1] + 1), tuple(ids), num_experts, top_k)


def is_sequence_parallel(model: Any, layers: Sequence[Any]) -> bool:
    """Whether the model splits the rows of a batch over its tensor-parallel ranks before it routes them."""
    if any(hasattr(m, "moe_config") and m.moe_config.is_sequence_parallel for m in layers):
        return True
    # Kernels that are no MoERunner do not say it themselves; their model does.
    return any(getattr(m, "use_sequence_parallel", False) is True for m in model.modules())


def get_callback(layer: Any) -> CaptureFn | None:
    """What a layer calls with the ids that it selected."""
    callback: CaptureFn | None = getattr(_holder_of(layer), "capture_fn", None)
    return callback


def set_callback(layer: Any, callback: CaptureFn | None) -> None:
    """Replace what a layer calls with the ids that it selected."""
    if callback is None and is_monolithic(layer):
        layer.routed_experts.routing_sink = None
    else:
        _holder_of(layer).capture_fn = callback


def is_monolithic(layer: Any) -> bool:
    """Whether the layer's kernel routes by itself."""
    return hasattr(layer, "routed_experts") and bool(layer.routed_experts.quant_method.is_monolithic)


def name_of_hidden_routing(layer: Any) -> str | None:
    """The kernel and layer whose routing cannot be observed; None where it can."""
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter  # noqa: PLC0415 - lazy

    if not hasattr(layer, "routed_experts"):
        return None
    if is_monolithic(layer):
        kernel = getattr(layer.routed_experts.quant_method, "moe_kernel", None)
        part = getattr(getattr(kernel, "impl", None), "fused_experts", None)
        replays = getattr(part, "supports_routing_replay_capture", None)
        can_observe = replays is not None and replays()
    else:
        part = layer.router
        can_observe = isinstance(part, BaseRouter)
    return None if can_observe else f"{type(part).__name__} of {layer.layer_name}"


def _holder_of(layer: Any) -> Any:
    if not hasattr(layer, "routed_experts"):
        return layer
    return layer.routed_experts.routing_sink if is_monolithic(layer) else layer.router


def _size_of(layer: Any) -> tuple[int, int]:
    config = getattr(layer, "moe_config", None)
    if config is None:
        return int(layer.num_logical_experts), int(layer.top_k)
    return int(config.num_logical_experts), int(config.experts_per_token)
