"""No GPU is here: NVML is a mock, named so, that answers as the module ``pynvml`` does."""

import sys
from types import SimpleNamespace

import pytest

from moescope.collector.gpu import watch_gpu
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import DIRECTION, HW_ID

GIB = 2**30


class NvmlError(Exception):
    pass


class MockNvml:
    """Two GPUs, the second without NVLink."""

    NVMLError = NvmlError
    NVML_SUCCESS = 0
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
    uuids = ("GPU-13", "GPU-23")

    def __init__(self):
        self.sent_kib = 100
        self.has_driver = True

    def nvmlInit(self):  # noqa: N802 - NVML's names
        if not self.has_driver:
            raise NvmlError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return self.uuids.index(uuid.decode())

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return self.uuids[handle]

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return SimpleNamespace(gpu=79 - handle)

    def nvmlDeviceGetMemoryInfo(self, _handle):  # noqa: N802
        return SimpleNamespace(used=13 * GIB, total=79 * GIB)

    def nvmlDeviceGetFieldValues(self, handle, fields):  # noqa: N802
        if handle == 1:
            raise NvmlError("Not Supported")
        assert [scope for _, scope in fields] == [2**32 - 1] * 2
        moved = {138: self.sent_kib, 139: 5}
        return [
            SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=moved[field])) for field, _ in fields
        ]


class Meter(Tally):
    """A tally that reads what is polled before a window is closed."""

    def __init__(self):
        super().__init__()
        self.looks = []

    def poll(self, look):
        self.looks.append(look)

    def values(self):
        for look in self.looks:
            look()
        return {(r.metric.name, *r.attributes.values()): r.value for r in self.close_window(snapshot=True)}


@pytest.fixture
def nvml(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    mock = MockNvml()
    monkeypatch.setitem(sys.modules, "pynvml", mock)
    return mock


def test_a_gpu_reports_under_its_own_id(nvml):
    meter = Meter()

    watch = watch_gpu(meter, 0)

    assert watch.ids == ["GPU-13"]
    assert meter.values() == {
        (metrics.GPU_UTILIZATION.name, "GPU-13"): 0.79,
        (metrics.GPU_MEMORY_USAGE.name, "GPU-13"): 13 * GIB,
        (metrics.GPU_MEMORY_LIMIT.name, "GPU-13"): 79 * GIB,
        (metrics.GPU_IO.name, "GPU-13", "transmit"): 0,
        (metrics.GPU_IO.name, "GPU-13", "receive"): 0,
    }


def test_bytes_moved_before_the_first_reading_are_not_this_engines(nvml):
    meter = Meter()
    watch_gpu(meter, 0)
    nvml.sent_kib += 23

    assert meter.values()[metrics.GPU_IO.name, "GPU-13", "transmit"] == 23 * 1024
    assert meter.values()[metrics.GPU_IO.name, "GPU-13", "transmit"] == 0


def test_a_count_that_starts_again_takes_nothing_back(nvml):
    meter = Meter()
    watch_gpu(meter, 0)
    nvml.sent_kib = 5

    assert (metrics.GPU_IO.name, "GPU-13", "transmit") not in meter.values()


def test_all_that_the_process_sees_are_reported_and_none_other(nvml, monkeypatch):
    assert watch_gpu(Meter()).ids == ["GPU-13", "GPU-23"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-23")
    assert watch_gpu(Meter()).ids == ["GPU-23"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 0")
    assert watch_gpu(Meter(), 0).ids == ["GPU-23"]


def test_a_gpu_without_links_reports_all_else(nvml):
    meter = Meter()
    watch_gpu(meter, 1)

    names = {name for name, *_ in meter.values()}

    assert names == {
        m.name for m in (metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_USAGE, metrics.GPU_MEMORY_LIMIT)
    }


def test_without_a_driver_or_the_package_there_is_nothing_and_no_error(nvml, monkeypatch):
    meter = Meter()
    nvml.has_driver = False
    assert watch_gpu(meter, 0) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # cannot be imported
    assert watch_gpu(meter, 0) is None

    assert meter.values() == {}


def test_the_attributes_are_those_of_the_convention():
    assert metrics.GPU_IO.attributes == (HW_ID, DIRECTION)


def test_a_gpu_that_cannot_be_read_keeps_no_other_from_it(nvml, monkeypatch):
    def read(handle):
        if handle == 1:
            raise NvmlError("GPU is lost")
        return SimpleNamespace(gpu=79)

    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", read)
    meter = Meter()
    watch_gpu(meter)
    assert {uuid for _, uuid, *_ in meter.values()} == {"GPU-13"}

    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert meter.values()[metrics.GPU_UTILIZATION.name, "GPU-23"] == 0.78


def test_what_a_lost_gpu_said_last_is_not_said_again(nvml, monkeypatch, caplog):
    caplog.set_level("INFO", "moescope")
    meter = Meter()
    watch_gpu(meter)
    assert {uuid for _, uuid, *_ in meter.values()} == {"GPU-13", "GPU-23"}

    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda handle: 1 / handle and None)

    for _ in range(2):
        assert meter.values() == {}
    assert len(caplog.messages) == 2  # each once


def test_gpus_of_which_none_can_be_read_are_not_asked_again(nvml, monkeypatch):
    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", lambda _: 1 / 0)
    meter = Meter()

    assert watch_gpu(meter) is None
    assert meter.values() == {}
    assert meter.looks == []
