"""vLLM's routers: which layers have one, and how its choice reaches a counter.

The seam is vLLM's own, made for ``--enable-return-routed-experts``: ``bind_routed_experts_capturer`` gives
every router (and every kernel that routes by itself) a callback that gets the logical ids it selected, before
any mapping to physical experts. Shared experts never appear there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from moescope.collector.expert_load import ExpertCounter
from moescope.collector.hooks.vllm_batch import own_rows
from moescope.collector.hooks.vllm_ranks import Ranks
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")

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


class RouterTap:
    """What vLLM takes for its capturer: hands each layer's ids to the counter.

    Nothing here depends on a step, so the calls can be captured in a CUDA graph and traced by torch.compile.
    """

    def __init__(self, counter: ExpertCounter, shape: ModelShape, ranks: Ranks) -> None:
        self._add = counter.add
        self._ordinal_of_layer = {layer: ordinal for ordinal, layer in enumerate(shape.moe_layers)}
        self._ranks = ranks
        self._may_be_gathered = ranks.dp_size > 1 or ranks.is_sequence_parallel
        self._layers: Sequence[Any] = ()
        self._before: list[tuple[Any, CaptureFn | None]] = []

    def capture(self, layer_id: int, topk_ids: Any) -> None:
        """Count one layer's choice: ids ``[tokens, top_k]``."""
        if self._may_be_gathered:
            topk_ids = topk_ids[self._own_rows(topk_ids.shape[0])]
        self._add(self._ordinal_of_layer[layer_id], topk_ids)

    def bind(self, model: Any, layers: Sequence[Any]) -> None:
        """Give every layer its callback, all or none; a callback that was there is called after ours.

        Raises:
            EngineNotSupportedError: a layer's kernel does not say which experts it routes to.
        """
        from vllm.model_executor.layers.fused_moe import routed_experts_capturer  # noqa: PLC0415 - lazy

        self._layers = layers
        self._before = [(layer, fn_of(layer)) for layer in layers]
        try:
            routed_experts_capturer.bind_routed_experts_capturer(model, self)  # duck-typed on purpose
        except ValueError as error:
            self.unbind()
            raise EngineNotSupportedError(_what_to_do(layers, error)) from error
        for layer, before in self._before:
            if before is not None:
                set_fn(layer, _chain(fn_of(layer), before))

    def bind_again(self) -> None:
        """Come first again where vLLM has bound a capturer of its own since."""
        for layer in self._layers:
            there = fn_of(layer)
            if not _is_ours(there, self):
                set_fn(layer, _chain(functools.partial(self.capture, layer.layer_id), there))

    def unbind(self) -> None:
        """Put back what was there."""
        for layer, before in self._before:
            set_fn(layer, before)

    def _own_rows(self, num_ids: int) -> slice:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415 - lazy

        metadata = get_forward_context().dp_metadata
        if metadata is None:
            return slice(0, num_ids)
        ranks = self._ranks
        tokens = metadata.num_tokens_across_dp_cpu.tolist()  # on the host: no synchronisation
        rows = own_rows(num_ids, tokens, ranks.dp_rank, ranks.tp_rank, ranks.sp_size)
        if rows is None:
            _warn_about_rows(num_ids, tuple(tokens))
            return slice(0, 0)
        return rows


def fn_of(layer: Any) -> CaptureFn | None:
    """The callback of a layer, if it has one."""
    holder = _holder_of(layer)
    fn: CaptureFn | None = getattr(holder, "capture_fn", None)
    return fn


def set_fn(layer: Any, fn: CaptureFn | None) -> None:
    """Replace the callback of a layer."""
    holder = _holder_of(layer)
    if holder is not None:
        holder.capture_fn = fn
    if fn is None and _is_monolithic(layer):
        layer.routed_experts.routing_sink = None


def _holder_of(layer: Any) -> Any:
    """Where the callback is: on the layer itself, on its kernel's sink, or on its router."""
    if not hasattr(layer, "routed_experts"):
        return layer
    return layer.routed_experts.routing_sink if _is_monolithic(layer) else layer.router


def _is_monolithic(layer: Any) -> bool:
    return hasattr(layer, "routed_experts") and bool(layer.routed_experts.quant_method.is_monolithic)


def _size_of(layer: Any) -> tuple[int, int]:
    config = getattr(layer, "moe_config", None)
    if config is None:
        return int(layer.num_logical_experts), int(layer.top_k)
    return int(config.num_logical_experts), int(config.experts_per_token)


def _is_ours(fn: CaptureFn | None, tap: RouterTap) -> bool:
    first = getattr(fn, "first", fn)
    return getattr(getattr(first, "func", None), "__self__", None) is tap


class _chain:  # noqa: N801 - a callable; a class only so that its first part can be looked at
    """Call two callbacks in turn."""

    def __init__(self, first: CaptureFn | None, second: CaptureFn | None) -> None:
        self.first = first
        self.second = second

    def __call__(self, topk_ids: Any) -> None:
        if self.first is not None:
            self.first(topk_ids)
        if self.second is not None:
            self.second(topk_ids)


def _what_to_do(layers: Sequence[Any], error: ValueError) -> str:
    names = [_kernel_of(layer) for layer in layers if not _is_observable(layer)]
    if not names:
        return str(error)
    return (
        f"{names[0]} does not say which experts it routes to ({len(names)} of {len(layers)} MoE layers). "
        "Serve with a kernel that does, e.g. --moe-backend triton"
    )


def _is_observable(layer: Any) -> bool:
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter  # noqa: PLC0415 - lazy

    if not hasattr(layer, "routed_experts"):
        return True
    if not _is_monolithic(layer):
        return isinstance(layer.router, BaseRouter)
    replay = getattr(_monolithic_experts(layer), "supports_routing_replay_capture", None)
    return bool(replay and replay())


def _kernel_of(layer: Any) -> str:
    part = _monolithic_experts(layer) if _is_monolithic(layer) else layer.router
    return f"{type(part).__name__} of {layer.layer_name}"


def _monolithic_experts(layer: Any) -> Any:
    kernel = getattr(layer.routed_experts.quant_method, "moe_kernel", None)
    return getattr(getattr(kernel, "impl", None), "fused_experts", None)


@functools.cache
def _warn_about_rows(num_ids: int, tokens: tuple[int, ...]) -> None:
    logger.warning(
        "moescope: %d routed rows fit neither this rank's nor all ranks' rows %s; they are not counted",
        num_ids,
        tokens,
    )
