import logging
import threading

import pytest

from moescope.collector.reporter import Reporter
from moescope.schemas import metrics
from moescope.schemas.records import Attempt, Measurement, Record, Window

NS = 1_000_000_000


class CountingSource:
    """A source whose windows say how often it was asked."""

    def __init__(self) -> None:
        self.total = 0
        self.snapshots: list[bool] = []

    def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:
        self.snapshots.append(snapshot)
        total, self.total = self.total, 0
        return (Measurement(metrics.TOKENS, total),)


class InMemoryExporter:
    """Takes windows, or refuses them for a while as an endpoint that is away does."""

    def __init__(self) -> None:
        self.taken: list[Window] = []
        self.answers: list[Attempt] = []
        self.attempts = 0
        self.is_closed = False
        self._frozen: Window | None = None
        self.taken_one = threading.Event()

    @property
    def pending_bytes(self) -> int:
        return 13 if self._frozen else 0

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        assert self._frozen is None, "a second window must not be closed while one is pending"
        self._frozen = window
        return self.retry()

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        self.attempts += 1
        if self.answers and not (answer := self.answers.pop(0)).delivered:
            return answer
        self.taken.append(self._frozen)
        self._frozen = None
        self.taken_one.set()
        return Attempt(delivered=True)

    def close(self) -> None:
        self.is_closed = True


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000 * NS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_reporter(clock: Clock, **kwargs) -> tuple[Reporter, CountingSource, InMemoryExporter]:
    source, exporter = CountingSource(), InMemoryExporter()
    kwargs = {"interval_seconds": 10, "clock_ns": clock, **kwargs}
    return Reporter(source, exporter, **kwargs), source, exporter


def value_of(window: Window, metric: metrics.Metric) -> int:
    return sum(record.value for record in window.records if record.metric is metric)


AWAY = Attempt(delivered=False, reason="unavailable")


def test_windows_are_contiguous(clock: Clock):
    reporter, _, exporter = make_reporter(clock)

    for _ in range(3):
        clock.now_ns += 10 * NS
        assert reporter.flush(1)

    spans = [(window.start_ns, window.end_ns) for window in exporter.taken]
    assert spans == [(1000 * NS, 1010 * NS), (1010 * NS, 1020 * NS), (1020 * NS, 1030 * NS)]


def test_clock_that_goes_back_still_gives_windows_in_order(clock: Clock):
    reporter, _, exporter = make_reporter(clock)
    clock.now_ns -= 3600 * NS
    reporter.flush(1)

    assert exporter.taken[0].end_ns == exporter.taken[0].start_ns + 1


def test_nothing_is_lost_while_the_endpoint_is_away(clock: Clock):
    reporter, source, exporter = make_reporter(clock)
    exporter.answers = [AWAY] * 3
    source.total = 13
    assert not reporter.flush(0), "the first window is frozen"
    source.total = 23
    assert not reporter.flush(0), "what came after it stays in the counters"
    source.total += 79

    assert reporter.flush(1)

    assert [value_of(window, metrics.TOKENS) for window in exporter.taken] == [13, 23 + 79]
    assert value_of(exporter.taken[1], metrics.TELEMETRY_EXPORT_FAILURES) == 3


def test_every_window_is_measured(clock: Clock):
    reporter, _, exporter = make_reporter(clock)
    exporter.answers = [AWAY]
    reporter.flush(0)
    reporter.flush(1)
    reporter.flush(1)

    durations = [
        record.bucket_counts.sum()
        for window in exporter.taken
        for record in window.records
        if record.metric is metrics.TELEMETRY_EXPORT_DURATION
    ]
    assert durations == [0, 1, 1], "one a window, its failed attempts included"


def test_queue_size_is_the_most_that_waited_since_the_window_before(clock: Clock):
    reporter, _, exporter = make_reporter(clock)
    reporter.flush(1)
    exporter.answers = [AWAY]
    reporter.flush(1)
    reporter.flush(1)
    reporter.flush(1)

    assert [value_of(window, metrics.TELEMETRY_QUEUE_SIZE) for window in exporter.taken] == [0, 0, 13, 0]


def test_every_nth_window_carries_the_snapshot(clock: Clock):
    reporter, source, _ = make_reporter(clock, snapshot_every_windows=3)

    for _ in range(7):
        reporter.flush(1)

    assert source.snapshots == [True, False, False, True, False, False, True]


def test_close_flushes_and_lets_go(clock: Clock):
    reporter, source, exporter = make_reporter(clock)
    reporter.start()
    source.total = 13

    assert reporter.close(1)

    assert value_of(exporter.taken[-1], metrics.TOKENS) == 13
    assert exporter.is_closed
    assert not reporter.is_running


def test_close_says_when_the_last_window_is_lost(clock: Clock, caplog: pytest.LogCaptureFixture):
    reporter, _, exporter = make_reporter(clock)
    exporter.answers = [AWAY] * 100

    assert not reporter.close(0)
    assert "lost with this process" in caplog.text


def test_thread_survives_a_source_that_fails(caplog: pytest.LogCaptureFixture):
    class FailingOnce(CountingSource):
        def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:
            if not self.snapshots:
                self.snapshots.append(snapshot)
                raise RuntimeError("device is gone")
            return super().close_window(snapshot=snapshot)

    exporter = InMemoryExporter()
    reporter = Reporter(FailingOnce(), exporter, interval_seconds=0.05)
    with caplog.at_level(logging.WARNING, logger="moescope"):
        reporter.start()
        assert exporter.taken_one.wait(10)
    reporter.close(1)

    assert "device is gone" in caplog.text
    assert value_of(exporter.taken[0], metrics.TELEMETRY_EXPORT_FAILURES) == 1


def test_outage_is_logged_once_and_its_end_once(clock: Clock, caplog: pytest.LogCaptureFixture):
    reporter, _, exporter = make_reporter(clock)
    exporter.answers = [AWAY] * 3
    with caplog.at_level(logging.INFO, logger="moescope"):
        for _ in range(3):
            reporter.flush(0)
        reporter.flush(1)

    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "unavailable" in said[0]
    assert "nothing was lost" in said[1]


def test_receivers_wish_for_a_pause_is_kept(clock: Clock):
    reporter, _, exporter = make_reporter(clock)
    exporter.answers = [Attempt(delivered=False, reason="resource_exhausted", retry_after_seconds=0.01)] * 5

    assert reporter.flush(5)
    assert exporter.attempts == 6


def test_windows_close_on_whole_multiples_of_the_interval():
    exporter = InMemoryExporter()
    reporter = Reporter(CountingSource(), exporter, interval_seconds=0.25)
    reporter.start()
    assert exporter.taken_one.wait(10)
    reporter.close(1)

    past_the_multiple_ns = exporter.taken[0].end_ns % (NS // 4)
    assert past_the_multiple_ns < NS // 5, "a window ends when a multiple has just passed, not at random"
