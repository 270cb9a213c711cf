"""Where SGLang holds the copies of each expert, and which expert a copy's id means.

SGLang's routers hand out physical ids wherever a copy is chosen by its expert location metadata. EPLB writes
new maps into the same tensors, layer by layer, so what a CUDA graph has captured follows them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from moescope.schemas.errors import PlacementError
from moescope.schemas.records import IntArray
from moescope.schemas.topology import ModelShape, Placement

logger = logging.getLogger("moescope")

_LOOK_EVERY_SECONDS: Final = 10.0
_NO_EXPERT: Final = -1


class LogicalIds:
    """Translates physical ids on their own device, without waiting for it.

    Args:
        physical_to_logical_map: int ``[layers, physical]``, SGLang's own tensor; followed, not copied.
    """

    def __init__(self, physical_to_logical_map: Any) -> None:
        self._per_layer = tuple(physical_to_logical_map.unbind(0))
        self._last = physical_to_logical_map.shape[1] - 1

    def translate(self, layer: int, topk_ids: Any) -> Any:
        """Logical ids of one layer's choice, −1 for what is no physical expert; the model's layer index."""
        known = topk_ids.clamp(0, self._last)
        logical = self._per_layer[layer][known.long()]
        return torch.where(known == topk_ids, logical, _NO_EXPERT)


class PlacementWatch:
    """Follows the map that SGLang keeps on the host beside the one on the device.

    Args:
        metadata: SGLang's expert location metadata.
        publish: called with each new placement, on the thread that calls :meth:`look`.
        clock: seconds.
    """

    def __init__(
        self,
        metadata: Any,
        shape: ModelShape,
        ep_size: int,
        publish: Callable[[Placement], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metadata = metadata
        self._shape = shape
        self._ep_size = ep_size
        self._publish = publish
        self._clock = clock
        self._look_at = clock()
        self._last: IntArray | None = None

    def look(self) -> None:
        """Publish the placement if it changed. Called once a pass; almost always one comparison."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_EVERY_SECONDS
        table = map_of(self._metadata, self._shape)
        if self._last is not None and np.array_equal(table, self._last):
            return
        try:
            placement = Placement(table, self._ep_size, self._shape.num_experts)
        except PlacementError as reason:
            logger.debug("moescope: this placement is left out: %s", reason)
            return
        self._last = table
        self._publish(placement)


def map_of(metadata: Any, shape: ModelShape) -> IntArray:
    """The map of the layers with experts: int64 ``[num_moe_layers, physical]``, caller-owned."""
    table = metadata.physical_to_logical_map_cpu.numpy()
    return np.array(table[list(shape.moe_layers)], dtype=np.int64)


def hands_out_physical_ids() -> bool:
    """Whether SGLang's routers choose copies, so that ids are physical ones."""
    from sglang.srt.runtime_context import get_exec  # noqa: PLC0415 - engines are imported where they are there

    return get_exec().moe.ep_dispatch_algorithm is not None
