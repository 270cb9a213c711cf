"""How the choice of vLLM's routers reaches a counter.

The seam is vLLM's own, made for ``--enable-return-routed-experts``: ``bind_routed_experts_capturer`` gives
every router (and every kernel that routes by itself) a callback that gets the logical ids it selected, before
any mapping to physical experts. Shared experts never appear there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from moescope.collector.expert_load import ExpertCounter
from moescope.collector.hooks.vllm_batch import own_rows
from moescope.collector.hooks.vllm_layers import (
    CaptureFn,
    get_callback,
    name_of_hidden_routing,
    set_callback,
)
from moescope.collector.hooks.vllm_ranks import Ranks
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")


class RouterTap:
    """What vLLM takes for its capturer: hands each layer's ids to the counter.

    Nothing here depends on a step, so the calls can be captured in a CUDA graph and traced by torch.compile.
    """

    def __init__(self, counter: ExpertCounter, shape: ModelShape, ranks: Ranks) -> None:
        self._add = counter.add
        self._ordinal_of_layer = {layer: ordinal for ordinal, layer in enumerate(shape.moe_layers)}
        self._ranks = ranks
        self._may_be_gathered = ranks.dp_size > 1 or ranks.is_sequence_parallel
        self._before: list[tuple[Any, CaptureFn | None]] = []

    def capture(self, layer_id: int, topk_ids: Any) -> None:
        """Count one layer's choice: ids ``[tokens, top_k]``. Never raises into the forward pass."""
        try:
            if self._may_be_gathered:
                topk_ids = topk_ids[self._own_rows(topk_ids.shape[0])]
            self._add(self._ordinal_of_layer[layer_id], topk_ids)
        except Exception:
            logger.exception("moescope: layer %d cannot be counted; serving goes on uncounted", layer_id)
            self.unbind()

    def bind(self, model: Any, layers: Sequence[Any]) -> None:
        """Give every layer its callback, all or none; a callback that was there is called after ours.

        Raises:
            EngineNotSupportedError: a layer's kernel does not say which experts it routes to.
        """
        from vllm.model_executor.layers.fused_moe import routed_experts_capturer  # noqa: PLC0415 - lazy

        hidden = [name for name in map(name_of_hidden_routing, layers) if name]
        if hidden:
            raise EngineNotSupportedError(
                f"{hidden[0]} does not say which experts it routes to ({len(hidden)} of {len(layers)} MoE "
                "layers). Serve with a kernel that does, e.g. --moe-backend triton"
            )
        self._before = [(layer, get_callback(layer)) for layer in layers]
        try:
            routed_experts_capturer.bind_routed_experts_capturer(model, self)  # duck-typed on purpose
        except ValueError as error:
            self.unbind()
            raise EngineNotSupportedError(str(error)) from error
        for layer, before in self._before:
            if before is not None:
                set_callback(layer, _Both(get_callback(layer), before))

    def bind_again(self) -> None:
        """Come first again where vLLM has bound a capturer of its own since."""
        for layer, _ in self._before:
            there = get_callback(layer)
            if not self._is_ours(there):
                set_callback(layer, _Both(functools.partial(self.capture, layer.layer_id), there))

    def unbind(self) -> None:
        """Put back what was there."""
        for layer, before in self._before:
            set_callback(layer, before)
        self._before = []

    def _is_ours(self, callback: CaptureFn | None) -> bool:
        first = callback.first if isinstance(callback, _Both) else callback
        return isinstance(first, functools.partial) and getattr(first.func, "__self__", None) is self

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


class _Both:
    """Two callbacks in turn."""

    def __init__(self, first: CaptureFn | None, second: CaptureFn | None) -> None:
        self.first = first
        self.second = second

    def __call__(self, topk_ids: Any) -> None:
        if self.first is not None:
            self.first(topk_ids)
        if self.second is not None:
            self.second(topk_ids)


@functools.cache
def _warn_about_rows(num_ids: int, tokens: tuple[int, ...]) -> None:
    logger.warning(
        "moescope: %d routed rows fit neither this rank's nor all ranks' rows %s; they are not counted",
        num_ids,
        tokens,
    )
