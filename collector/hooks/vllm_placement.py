"""Where vLLM holds the copies of each expert: by rule, or by the maps of its expert load balancer (EPLB)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from moescope.collector.device_copy import DeviceCopy
from moescope.schemas.errors import PlacementError
from moescope.schemas.records import IntArray
from moescope.schemas.topology import EMPTY_SLOT, ModelShape, Placement, place_contiguously

logger = logging.getLogger("moescope")

_LOOK_EVERY_SECONDS: Final = 10.0


def placement_by_rule(shape: ModelShape, ep_size: int, layers: Sequence[Any]) -> Placement:
    """The placement of a model without EPLB, by the strategy that its layers settled for."""
    managers = [getattr(layer, "expert_map_manager", None) for layer in layers]
    if any(getattr(manager, "placement_strategy", "linear") == "round_robin" for manager in managers):
        return place_round_robin(shape, ep_size)
    return place_contiguously(shape, ep_size)


def place_round_robin(shape: ModelShape, ep_size: int) -> Placement:
    """Place expert e on rank ``e mod ep_size``, one copy each."""
    slots = -(-shape.num_experts // ep_size)
    table = np.full((ep_size, slots), EMPTY_SLOT, dtype=np.int64)
    experts = np.arange(shape.num_experts)
    table[experts % ep_size, experts // ep_size] = experts
    return Placement(np.tile(table.reshape(1, -1), (shape.num_moe_layers, 1)), ep_size, shape.num_experts)


class EplbWatch:
    """Follows EPLB's live map without waiting for the device.

    EPLB moves experts layer by layer over many steps and tells nobody, so the map is looked at every few
    seconds: one step starts a copy, a later one picks it up.

    Args:
        state: EPLB's state of the watched model; its ``physical_to_logical_map`` is int ``[layers, slots]``.
        publish: called with each new placement.
        clock: seconds.
    """

    def __init__(
        self,
        state: Any,
        shape: ModelShape,
        ep_size: int,
        publish: Callable[[Placement], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._shape = shape
        self._ep_size = ep_size
        self._publish = publish
        self._clock = clock
        self._look_at = clock()
        self._last: IntArray | None = None
        self._under_way: DeviceCopy | None = None

    def look(self) -> None:
        """Publish the placement if it changed. Called once a step; almost always one comparison."""
        if self._under_way is None:
            if self._clock() >= self._look_at:
                self._look_at = self._clock() + _LOOK_EVERY_SECONDS
                # A new one each time: EPLB replaces the tensor when the number of slots changes.
                self._under_way = DeviceCopy(self._state.physical_to_logical_map.contiguous())
                self._under_way.start()
            return
        table = self._under_way.poll()
        if table is not None:
            self._under_way = None
            self._compare(table)

    def _compare(self, table: IntArray) -> None:
        if self._last is not None and np.array_equal(table, self._last):
            return
        try:
            placement = Placement(table, self._ep_size, self._shape.num_experts)
        except PlacementError:
            # A layer was being moved while it was copied; the next look sees it whole.
            logger.debug("moescope: EPLB is moving experts; looking again in %g s", _LOOK_EVERY_SECONDS)
            return
        self._last = table
        self._publish(placement)


def find_eplb_state(runner: Any, model: Any) -> Any | None:
    """EPLB's state of ``model``, or None where EPLB is off or does not know the model."""
    state = getattr(runner, "eplb_state", None)
    models = list(getattr(state, "model_states", {}).values())
    modules = {id(module) for module in model.modules()}
    return next((m for m in models if id(m.model) in modules), None)
