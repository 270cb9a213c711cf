import os
from collections.abc import Callable

import pytest

from moescope.collector.process_recorder import ProcessRecorder
from moescope.schemas import metrics
from moescope.schemas.attributes import POOL, RESULT, Component
from moescope.schemas.identity import ProcessIdentity
from moescope.schemas.records import Attempt, Measurement, Record, Window
from moescope.schemas.settings import Settings


class KeepingExporter:
    """Takes every window, and remembers who sent it."""

    pending_bytes = 0

    def __init__(self, identity: ProcessIdentity) -> None:
        self.identity = identity
        self.windows: list[Window] = []

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        self.windows.append(window)
        return Attempt(delivered=True)

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        raise AssertionError("nothing was pending")

    def close(self) -> None:
        """Let go of nothing."""

    def values(self) -> list[tuple[str, float]]:
        return [
            (record.metric.name, record.value)
            for window in self.windows
            for record in window.records
            if isinstance(record, Measurement) and not record.metric.name.startswith("moe.telemetry")
        ]


@pytest.fixture
def exporters() -> list[KeepingExporter]:
    return []


@pytest.fixture
def recorder(exporters: list[KeepingExporter]):
    def make(identity: ProcessIdentity) -> KeepingExporter:
        exporters.append(KeepingExporter(identity))
        return exporters[-1]

    made = ProcessRecorder(ProcessIdentity("svc", Component.FRONTEND), make, Settings())
    yield made
    made.close()


def test_what_was_added_goes_out_with_the_window(recorder: ProcessRecorder, exporters: list[KeepingExporter]):
    recorder.add(metrics.PREFIX_CACHE_TOKENS, 13, {RESULT: "hit"})
    recorder.set_state(metrics.REQUESTS_RUNNING, 7)

    assert recorder.flush()

    assert exporters[0].values() == [("moe.prefix_cache.tokens", 13), ("moe.requests.running", 7)]
    assert exporters[0].identity.resource_attributes()["moe.component"] == "frontend"


def test_a_reading_is_taken_before_each_window(recorder: ProcessRecorder, exporters: list[KeepingExporter]):
    used = iter([13, 23])
    recorder.poll(lambda: recorder.set_state(metrics.MEMORY_USAGE, next(used), {POOL: "weights"}))

    assert recorder.flush()
    assert recorder.flush()

    assert [value for _, value in exporters[0].values()] == [13, 23]


def test_states_of_a_reading_that_fails_are_forgotten_until_it_works_again(
    recorder: ProcessRecorder, exporters: list[KeepingExporter], caplog: pytest.LogCaptureFixture
):
    readings = iter([13, None, None, 23])

    def look() -> None:
        reading = next(readings)
        if reading is None:
            raise RuntimeError("the driver is away")
        recorder.set_state(metrics.MEMORY_USAGE, reading, {POOL: "weights"})

    recorder.poll(look)
    recorder.poll(lambda: recorder.set_state(metrics.REQUESTS_WAITING, 3))
    for _ in range(4):
        assert recorder.flush()

    windows = [
        {record.metric.name: record.value for record in window.records if isinstance(record, Measurement)}
        for window in exporters[0].windows
    ]
    assert [window.get("moe.memory.usage") for window in windows] == [13, None, None, 23]
    assert [window["moe.requests.waiting"] for window in windows] == [3, 3, 3, 3]
    assert [record.message for record in caplog.records] == [
        "moescope: one reading failed and is left out until it works again"
    ]


def test_another_source_is_asked_whenever_a_window_is_closed(
    recorder: ProcessRecorder, exporters: list[KeepingExporter]
):
    class Source:
        def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:
            return (Measurement(metrics.TOKENS, 79),)

        def reset(self) -> None:
            """Have nothing to forget."""

    recorder.add_source(Source())

    assert recorder.flush()

    assert exporters[0].values() == [("moe.tokens", 79)]


def run_in_child(body: Callable[[], bool]) -> int:
    pid = os.fork()
    if pid == 0:
        is_right = False
        try:
            is_right = body()
        finally:
            os._exit(0 if is_right else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_reports_as_itself_and_only_what_it_added(
    recorder: ProcessRecorder, exporters: list[KeepingExporter]
):
    recorder.start()
    recorder.add(metrics.PREFIX_CACHE_TOKENS, 13, {RESULT: "hit"})

    def child() -> bool:
        recorder.add(metrics.PREFIX_CACHE_TOKENS, 79, {RESULT: "hit"})
        parent, own = exporters
        return (
            recorder.flush()
            and own.values() == [("moe.prefix_cache.tokens", 79)]
            and own.identity.instance != parent.identity.instance
        )

    assert run_in_child(child) == 0
    assert recorder.flush()
    assert exporters[0].values() == [("moe.prefix_cache.tokens", 13)]
