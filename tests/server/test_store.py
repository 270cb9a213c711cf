"""One contract, two stores: the embedded engine, and a ClickHouse over HTTP. The same test bodies."""

import itertools
import time

import numpy as np
import pytest

from moescope.schemas import migrate
from moescope.schemas.errors import QueryError, RequestRefusedError, SettingError, StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.server.data_directory import DataDirectory
from moescope.server.embedded_store import EmbeddedStore
from moescope.server.engine import Engine
from moescope.server.landed_request import LandedRequest, digest_of
from moescope.server.landing import land
from moescope.server.otlp_decode import Encoding, decode
from moescope.server.own_metrics import OwnMetrics
from moescope.server.remote_store import RemoteStore, redact
from tests.server.otlp_requests import counter, expert_request, gauge, request_of, resource_of

COUNTS = np.array([[13, 0, 23, 79], [1, 2, 3, 4]])
_NUMBERS = itertools.count()


def landed(body: bytes) -> LandedRequest:
    blocks = decode(body, Encoding.PROTOBUF)
    return LandedRequest(digest_of(body), land(blocks, max_request_bytes=2**24), len(body))


class StoreUnderTest:
    """A store, a way to ask it, and a way to close and open it again."""

    def __init__(self, open_store, rows_of) -> None:
        self.open = open_store
        self.store = open_store()
        self.rows_of = rows_of

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    def sums(self) -> dict[str, int]:
        """Landing table, derived table and every roll-up."""
        tiers = {
            f"expert_load_{tier}": "SELECT sum(arraySum(t)) FROM (SELECT sumForEachMerge(tokens) AS t FROM "
            f"{{database}}.expert_load_{tier} GROUP BY layer)"
            for tier in ("1m", "10m", "1h")
        }
        queries = {
            "landing": "SELECT sum(Count) FROM {database}.otel_metrics_histogram",
            "expert_load": "SELECT sum(assignments) FROM {database}.expert_load",
            **tiers,
        }
        return {name: int(self.rows_of(query)[0][0]) for name, query in queries.items()}


@pytest.fixture(scope="module")
def writable_server(make_server):
    return make_server(sql_read_only=False)


@pytest.fixture(params=["embedded", "http"])
def store(request, writable_server, tmp_path):
    """Each test has a database of its own in the module's engine."""
    settings = Settings(database=f"store_{next(_NUMBERS)}")

    def rows_of(query: str):
        return writable_server.sql(query.format(database=settings.database))

    if request.param == "http":
        dsn = f"http://127.0.0.1:{writable_server.ports.sql}/moescope"
        yield StoreUnderTest(lambda: RemoteStore(dsn, settings), rows_of)
        return
    engine = Engine(writable_server.engine_folder, settings)
    directory = DataDirectory(tmp_path)
    yield StoreUnderTest(lambda: EmbeddedStore(engine, directory), rows_of)
    directory.close()
    engine.close()


def everywhere(total: int) -> dict[str, int]:
    return dict.fromkeys(
        ("landing", "expert_load", "expert_load_1m", "expert_load_10m", "expert_load_1h"), total
    )


def test_requests_reach_every_table(store):
    store.store.commit([landed(expert_request("svc", COUNTS)), landed(expert_request("svc", COUNTS * 2))])
    assert store.sums() == everywhere(3 * 125)


def test_same_request_is_stored_once(store):
    request = landed(expert_request("svc", COUNTS))
    for _ in range(3):
        store.store.commit([request])
    assert store.sums() == everywhere(125)


def test_same_request_is_stored_once_across_a_restart(store):
    request = landed(expert_request("svc", COUNTS))
    store.store.commit([request])
    store.reopen()
    store.store.commit([request])
    assert store.sums() == everywhere(125)


def test_repeated_request_among_new_ones_is_stored_once(store):
    end_ns = time.time_ns()
    first, second, third = (
        landed(expert_request("svc", COUNTS * factor, end_ns=end_ns)) for factor in (1, 10, 100)
    )
    store.store.commit([first, second])
    store.store.commit([third, first])
    store.store.commit([second, third])
    assert store.sums() == everywhere(111 * 125)


def test_equal_rows_of_different_requests_are_all_stored(store):
    end_ns = time.time_ns()
    requests = [
        landed(expert_request("svc", COUNTS, instance=name, end_ns=end_ns)) for name in ("one", "two")
    ]
    store.store.commit(requests)
    assert store.sums() == everywhere(2 * 125)


def test_every_kind_of_point_lands_in_its_table(store):
    body = request_of(resource_of("svc", "one"), counter(79), gauge(0.5)).SerializeToString()
    store.store.commit([landed(body), landed(expert_request("svc", COUNTS))])
    assert store.rows_of("SELECT Value, IsMonotonic FROM {database}.otel_metrics_sum") == [[79, True]]
    assert store.rows_of("SELECT Value FROM {database}.otel_metrics_gauge") == [[0.5]]
    assert store.rows_of("SELECT tokens FROM {database}.token_count") == [[79]]


def test_windows_of_several_days_are_stored_once_each(store):
    now = time.time_ns()
    day = 86_400 * 10**9
    requests = [
        landed(expert_request("svc", COUNTS, instance=str(days), end_ns=now - days * day))
        for days in range(3)
    ]
    store.store.commit(requests)
    store.store.commit([requests[1]])
    # Raw rows beyond their time to live may be gone already; the hours are kept.
    assert store.sums()["expert_load_1h"] == 3 * 125


def test_store_that_answers_is_ready(store):
    assert store.store.check() is None


def test_schema_is_complete_after_opening(store):
    (applied,) = store.rows_of("SELECT count() FROM {database}.moescope_migrations")
    assert applied == [len(migrate.list_migrations())]


@pytest.fixture
def embedded(writable_server, tmp_path):
    engine = Engine(writable_server.engine_folder, Settings(database=f"store_{next(_NUMBERS)}"))
    directory = DataDirectory(tmp_path)
    yield engine, directory
    directory.close()
    engine.close()


def landing_sum(engine: Engine) -> str:
    return engine.scalar(f"SELECT sum(Count) FROM {engine.database}.otel_metrics_histogram")


def roll_up_sum(engine: Engine) -> str:
    return engine.scalar(f"SELECT arraySum(sumForEachMerge(tokens)) FROM {engine.database}.expert_load_1h")


def test_batch_left_in_the_journal_is_stored_at_the_next_start(embedded, monkeypatch):
    engine, directory = embedded
    store = EmbeddedStore(engine, directory)
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "_store", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.commit([landed(expert_request("svc", COUNTS))])
    assert landing_sum(engine) == "0"

    store = EmbeddedStore(engine, directory)
    assert store.resumed_batches == 1
    assert (landing_sum(engine), roll_up_sum(engine)) == ("125", "125")
    store.commit([landed(expert_request("svc", COUNTS * 2))])
    assert (landing_sum(engine), roll_up_sum(engine)) == ("375", "375")


def test_batch_stored_before_the_crash_is_not_stored_again(embedded, monkeypatch):
    engine, directory = embedded
    store = EmbeddedStore(engine, directory)
    request = landed(expert_request("svc", COUNTS))
    with monkeypatch.context() as patch:
        # The crash falls between the engine's answer and the note of it.
        patch.setattr(
            "moescope.server.stored_requests.StoredRequests.add",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            store.commit([request])
    assert landing_sum(engine) == "125"

    store = EmbeddedStore(engine, directory)
    assert store.resumed_batches == 1
    store.commit([request])
    assert (landing_sum(engine), roll_up_sum(engine)) == ("125", "125")


def test_batch_that_a_view_refuses_is_set_aside_whole_and_completed_when_moved_back(embedded):
    engine, directory = embedded
    store = EmbeddedStore(engine, directory)
    with engine.handle() as handle:
        handle.query(
            f"CREATE MATERIALIZED VIEW {engine.database}.broken TO {engine.database}.expert_load_1h AS "
            f"SELECT toDateTime64(throwIf(1), 0, 'UTC') AS time FROM {engine.database}.expert_load"
        )
    requests = [landed(expert_request("svc", COUNTS * factor)) for factor in (1, 2)]
    with pytest.raises(RequestRefusedError):
        store.commit(requests)
    assert landing_sum(engine) == "375"
    assert store.check() is None
    with engine.handle() as handle:
        handle.query(f"DROP VIEW {engine.database}.broken")
    for path in (directory.journal / "refused").iterdir():
        path.rename(directory.journal / path.name)
    store = EmbeddedStore(engine, directory)
    store.commit(requests)
    assert (landing_sum(engine), roll_up_sum(engine)) == ("375", "375")


def refuse_instance(engine: Engine, instance: str) -> None:
    """Make the landing table refuse the rows of one instance, and no others."""
    with engine.handle() as handle:
        handle.query(
            f"ALTER TABLE {engine.database}.otel_metrics_histogram ADD CONSTRAINT refuse "
            f"CHECK ResourceAttributes['service.instance.id'] != '{instance}'"
        )


def test_refused_request_is_set_aside_and_the_others_are_stored_once(embedded):
    engine, directory = embedded
    metrics = OwnMetrics()
    store = EmbeddedStore(engine, directory, metrics)
    refuse_instance(engine, "bad")
    good, bad, more = (
        landed(expert_request("svc", COUNTS * factor, instance=instance))
        for factor, instance in ((1, "a"), (10, "bad"), (100, "c"))
    )
    with pytest.raises(RequestRefusedError, match="not stored") as caught:
        store.commit([good, bad, more])
    assert caught.value.digests == {bad.digest}
    assert (landing_sum(engine), roll_up_sum(engine)) == (str(101 * 125),) * 2
    assert b"moescope_ingest_refused_batches_total 1.0" in metrics.page()
    assert {path.suffix for path in (directory.journal / "refused").iterdir()} == {".batch", ".arrow"}
    assert list(directory.journal.glob("*.batch")) == []

    store = EmbeddedStore(engine, directory)
    assert store.resumed_batches == 0
    with pytest.raises(RequestRefusedError):
        store.commit([bad])
    store.commit([good, more, landed(expert_request("svc", COUNTS * 1000))])
    assert (landing_sum(engine), roll_up_sum(engine)) == (str(1101 * 125),) * 2


def test_refused_batch_of_a_crashed_server_does_not_hold_up_later_ones(embedded, monkeypatch):
    engine, directory = embedded
    store = EmbeddedStore(engine, directory)
    refuse_instance(engine, "bad")
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "_store", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.commit([landed(expert_request("svc", COUNTS, instance=name)) for name in ("a", "bad")])
    store = EmbeddedStore(engine, directory)
    assert store.resumed_batches == 1
    store.commit([landed(expert_request("svc", COUNTS * 2))])
    assert (landing_sum(engine), roll_up_sum(engine)) == ("375", "375")


def test_passing_error_is_retried_twice_and_then_the_batch_is_set_aside(embedded, monkeypatch):
    engine, directory = embedded
    store = EmbeddedStore(engine, directory)
    request = landed(expert_request("svc", COUNTS))
    error = QueryError("Code: 241. DB::Exception: memory", code=241)
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "_insert", lambda *_: (_ for _ in ()).throw(error))
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                store.commit([request])
        with pytest.raises(RequestRefusedError):
            store.commit([request])
    store.commit([landed(expert_request("svc", COUNTS * 2))])
    assert landing_sum(engine) == "250"


def test_journal_that_cannot_be_written_stores_nothing(embedded, monkeypatch):
    engine, directory = embedded
    store = EmbeddedStore(engine, directory)
    request = landed(expert_request("svc", COUNTS))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreUnavailableError, match="No space left on device"):
            store.commit([request])
    assert landing_sum(engine) == "0"
    store.commit([request])
    assert landing_sum(engine) == "125"


def test_nobody_at_the_dsn_is_said_without_the_password():
    with pytest.raises(StoreUnavailableError, match=r"http://me:\*\*\*@127\.0\.0\.1:1") as caught:
        RemoteStore("http://me:secret@127.0.0.1:1/x", Settings())
    assert "secret" not in str(caught.value)
    assert caught.value.retryable


@pytest.mark.parametrize("dsn", ["chdb:///tmp/x", "127.0.0.1:8123", "clickhouse://127.0.0.1:9000"])
def test_dsn_that_is_not_http_is_refused(dsn):
    with pytest.raises(SettingError, match="leave --dsn out"):
        RemoteStore(dsn, Settings())


def test_password_is_left_out_of_messages():
    assert redact("https://u:p@host:8443/db?x=1") == "https://u:***@host:8443/db?x=1"
    assert redact("http://host/db") == "http://host/db"
