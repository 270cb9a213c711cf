"""``hw.gpu.*``: what NVML says of the GPUs that this process uses.

Only where the package nvidia-ml-py (``pip install 'moescope[gpu]'``) finds a driver and a device. NVML counts
since the driver was loaded, for all processes: the first reading is where counting begins.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from typing import Any, Final

from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import DIRECTION, HW_ID, Direction

logger = logging.getLogger("moescope")

_KIB: Final = 1024
_STATES: Final = (metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_USAGE, metrics.GPU_MEMORY_LIMIT)


class GpuWatch:
    """Reads some GPUs when it is asked to: on the reporter's thread, before a window is closed.

    Args:
        meter: where the numbers go.
        nvml: the module ``pynvml``, initialised.
        handles: NVML's handles of the devices.
    """

    def __init__(self, meter: Meter, nvml: Any, handles: Sequence[Any]) -> None:
        self._meter = meter
        self._nvml = nvml
        self._handles = {_text(nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}
        self._moved_before: dict[tuple[str, Direction], int] = {}
        self._failed: set[str] = set()

    @property
    def ids(self) -> list[str]:
        """The devices' UUIDs."""
        return list(self._handles)

    def read(self) -> None:
        """Report utilization, memory and the bytes moved over NVLink since the last reading.

        One GPU that cannot be read keeps no other from it: it is said once, nothing more is reported of it,
        and it is tried again the next time.
        """
        for uuid, handle in self._handles.items():
            try:
                self._read(uuid, handle)
            except Exception as reason:
                self._forget(uuid, reason)
            else:
                self._failed.discard(uuid)

    @property
    def can_read(self) -> bool:
        """Whether the last reading told anything."""
        return len(self._failed) < len(self._handles)

    def _read(self, uuid: str, handle: Any) -> None:
        attributes = {HW_ID: uuid}
        busy = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        values = (busy / 100, memory.used, memory.total)
        for metric, value in zip(_STATES, values, strict=True):
            self._meter.set_state(metric, value, attributes)
        self._read_links(uuid, handle)

    def _forget(self, uuid: str, reason: Exception) -> None:
        for metric in _STATES:
            self._meter.forget_state(metric, {HW_ID: uuid})
        if uuid not in self._failed:
            self._failed.add(uuid)
            logger.info("moescope: no metrics of %s for now: %s", uuid, reason)

    def _read_links(self, uuid: str, handle: Any) -> None:
        for direction, moved in self._moved(handle).items():
            before = self._moved_before.get((uuid, direction))
            self._moved_before[uuid, direction] = moved
            if before is not None and moved >= before:  # it starts again when the driver does
                self._meter.add(metrics.GPU_IO, moved - before, {HW_ID: uuid, DIRECTION: direction.value})

    def _moved(self, handle: Any) -> dict[Direction, int]:
        """Bytes over all NVLinks so far, by direction; of those that this device counts."""
        fields = {
            Direction.TRANSMIT: self._nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            Direction.RECEIVE: self._nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        }
        all_links = 2**32 - 1  # the scope that adds up the links
        try:
            answers = self._nvml.nvmlDeviceGetFieldValues(
                handle, [(field, all_links) for field in fields.values()]
            )
        except self._nvml.NVMLError:  # a device without NVLink
            return {}
        return {
            direction: int(answer.value.ullVal) * _KIB
            for direction, answer in zip(fields, answers, strict=True)
            if answer.nvmlReturn == self._nvml.NVML_SUCCESS
        }


def watch_gpu(meter: Meter, index: int | None = None) -> GpuWatch | None:
    """Report the GPU that is this process's ``index``-th, or all that it sees; None where there is no NVML.

    Args:
        meter: where the numbers go.
        index: as CUDA counts, within ``CUDA_VISIBLE_DEVICES``.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        watch = GpuWatch(meter, nvml, _find_handles(nvml, index))
        watch.read()
    except Exception as reason:
        logger.debug("moescope: no GPU metrics: %s", reason)
        return None
    if not watch.can_read:
        return None
    meter.poll(watch.read)
    return watch


def _find_handles(nvml: Any, index: int | None) -> list[Any]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible is not None else None
    if names is None:
        names = [str(number) for number in range(nvml.nvmlDeviceGetCount())]
    if index is not None:
        names = [names[index]]
    return [_handle_of(nvml, name) for name in names if name]


def _handle_of(nvml: Any, name: str) -> Any:
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name.encode())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
