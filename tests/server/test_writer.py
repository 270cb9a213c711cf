"""The queue in front of the store: bounded, batched, each request once."""

import threading
from concurrent.futures import wait

import pyarrow as pa
import pytest

from moescope.schemas.errors import QueueFullError, RequestRefusedError, StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.server.answers import failure_of, status_message
from moescope.server.landed_request import LandedRequest
from moescope.server.own_metrics import OwnMetrics
from moescope.server.writer import Writer

TABLE = pa.table({"Value": [13.0]})


def request(number: int, size: int = 100) -> LandedRequest:
    return LandedRequest(number.to_bytes(16, "big"), {"otel_metrics_gauge": TABLE}, size)


class FakeStore:
    """Takes batches while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[int]] = []
        self.error: Exception | None = None

    def commit(self, requests) -> None:
        self.entered.release()
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.batches.append([int.from_bytes(item.digest, "big") for item in requests])


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def writer(store):
    made = Writer(
        store, Settings(ingest_threads=1, ingest_queue_requests=5, ingest_batch_requests=3), OwnMetrics()
    )
    yield made
    store.gate.set()
    made.close()


def busy(writer: Writer, store: FakeStore):
    """Give the only thread something to hold on to."""
    future = writer.submit(request(0))
    assert store.entered.acquire(timeout=10)
    return future


def test_waiting_requests_are_stored_together_in_their_order(writer, store):
    futures = [busy(writer, store), *(writer.submit(request(number)) for number in range(1, 6))]
    store.gate.set()
    assert not wait(futures, 10).not_done
    assert store.batches == [[0], [1, 2, 3], [4, 5]]


def test_request_is_done_only_when_it_is_stored(writer, store):
    future = busy(writer, store)
    assert not future.done()
    store.gate.set()
    assert future.result(10) is None


def test_full_queue_refuses_and_says_when_to_come_again(writer, store):
    busy(writer, store)
    for number in range(1, 6):
        writer.submit(request(number))
    with pytest.raises(QueueFullError, match=r"5 requests .*ingest_queue_requests=5") as caught:
        writer.submit(request(6))
    assert caught.value.retryable
    assert caught.value.retry_after_seconds > 0


def test_queue_is_bounded_in_bytes_too(writer, store):
    busy(writer, store)
    writer.submit(request(1, size=400 * 2**20))
    with pytest.raises(QueueFullError):
        writer.submit(request(2, size=200 * 2**20))


def test_large_requests_are_not_stored_together(writer, store):
    futures = [busy(writer, store), *(writer.submit(request(n, size=60 * 2**20)) for n in (1, 2))]
    store.gate.set()
    wait(futures, 10)
    assert store.batches == [[0], [1], [2]]


def test_request_that_comes_again_while_it_waits_is_stored_once(writer, store):
    busy(writer, store)
    first = writer.submit(request(13))
    assert writer.submit(request(13)) is first
    store.gate.set()
    first.result(10)
    assert store.batches == [[0], [13]]


def test_failure_reaches_every_request_of_the_batch_and_later_ones_are_tried(writer, store):
    store.error = StoreUnavailableError("no space left on device")
    futures = [busy(writer, store), writer.submit(request(1)), writer.submit(request(2))]
    store.gate.set()
    for future in futures:
        assert isinstance(future.exception(10), StoreUnavailableError)
    store.error = None
    writer.submit(request(1)).result(10)
    assert store.batches == [[1]]


def test_unexpected_failure_is_one_that_may_be_tried_again(writer, store):
    store.error = ZeroDivisionError("a bug")
    store.gate.set()
    assert isinstance(writer.submit(request(1)).exception(10), StoreUnavailableError)


def test_closing_stores_what_waits_and_takes_nothing_new(writer, store):
    futures = [busy(writer, store), writer.submit(request(1))]
    closing = threading.Thread(target=writer.close)
    closing.start()
    store.gate.set()
    closing.join(10)
    assert all(future.done() for future in futures)
    with pytest.raises(StoreUnavailableError, match="shutting down"):
        writer.submit(request(2))


def test_depth_is_on_the_metrics_page(store):
    metrics = OwnMetrics()
    writer = Writer(store, Settings(ingest_threads=1), metrics)
    busy(writer, store)
    writer.submit(request(1))
    assert b"moescope_ingest_queue_requests 1.0" in metrics.page()
    store.gate.set()
    writer.close()


def test_only_the_refused_request_of_a_batch_is_told_so_and_not_to_come_again(writer, store):
    first = busy(writer, store)
    good, bad = writer.submit(request(13)), writer.submit(request(23))
    store.error = RequestRefusedError("refused", digests=frozenset({request(23).digest}))
    store.gate.set()
    assert first.result(10) is None
    assert good.result(10) is None
    error = bad.exception(10)
    failure = failure_of(error)
    assert (failure.outcome, failure.http_status, failure.grpc_code.name) == (
        *("refused", 400),
        "INVALID_ARGUMENT",
    )
    assert list(status_message(failure, str(error)).details) == []
