"""Ends without warning: kill −9 in the middle, and the instant between the engine's log and its part."""

import json
import random
import shutil
import threading
import time

import grpc
import numpy as np
import pytest

from moescope.schemas.settings import Settings
from moescope.server.data_directory import DataDirectory
from moescope.server.embedded_store import EmbeddedStore
from moescope.server.engine import Engine
from moescope.server.journal import Journal
from moescope.server.landed_request import LandedRequest, digest_of
from moescope.server.landing import land
from moescope.server.otlp_decode import Encoding, decode
from moescope.server.otlp_messages import EXPORT_METHOD
from tests.server.otlp_requests import expert_request
from tests.server_process import ServerProcess

RANKS = 5
LAYERS = 4  # those of the resource that the requests name
EXPERTS = 79
TIERS = ("expert_load_1m", "expert_load_10m", "expert_load_1h")


class Rank(threading.Thread):
    """Sends its windows one after the other, each the same bytes until it is acknowledged."""

    def __init__(self, server: ServerProcess, rank: int, stop: threading.Event) -> None:
        super().__init__()
        self.server = server
        self.rank = rank
        self.stop = stop
        self.random = np.random.default_rng(rank)
        self.acknowledged = np.zeros((LAYERS, EXPERTS), dtype=np.int64)
        self.repetitions = 0

    def run(self) -> None:
        while not self.stop.is_set():
            counts = self.random.poisson(13, (LAYERS, EXPERTS))
            self.send(expert_request("crash", counts, instance=str(self.rank)))
            self.acknowledged += counts

    def send(self, body: bytes) -> None:
        while True:
            with grpc.insecure_channel(f"127.0.0.1:{self.server.grpc_port}") as channel:
                try:
                    channel.unary_unary(EXPORT_METHOD)(body, timeout=20)
                except grpc.RpcError:
                    self.repetitions += 1
                    time.sleep(0.05)
                else:
                    return


def test_server_killed_at_any_moment_stores_every_request_exactly_once(tmp_path):
    moments = random.Random(23)
    server = ServerProcess(tmp_path / "data").start()
    stop = threading.Event()
    ranks = [Rank(server, rank, stop) for rank in range(RANKS)]
    try:
        for rank in ranks:
            rank.start()
        for _ in range(5):
            time.sleep(moments.uniform(0.3, 1.0))
            server.kill()
            server.start()
        time.sleep(0.5)
        stop.set()
        for rank in ranks:
            rank.join(60)
        truth = sum(rank.acknowledged for rank in ranks)
        assert sum(rank.repetitions for rank in ranks) > 0
        assert truth.sum() > 0
        for tier in TIERS:
            rows = server.sql(
                f"SELECT layer, sumForEachMerge(tokens) FROM {tier} GROUP BY layer ORDER BY layer"
            )
            assert [layer for layer, _ in rows] == [str(layer + 1) for layer in range(LAYERS)]
            assert [json.loads(tokens) for _, tokens in rows] == truth.tolist(), tier
        (sums,) = server.sql(
            "SELECT (SELECT sum(Count) FROM otel_metrics_histogram), "
            "(SELECT sum(assignments) FROM expert_load)"
        )
        assert sums == [str(truth.sum())] * 2
        assert list((tmp_path / "data" / "journal").iterdir()) == []
    finally:
        stop.set()
        server.stop()


def landed(body: bytes) -> LandedRequest:
    tables = land(decode(body, Encoding.PROTOBUF), max_request_bytes=2**24)
    return LandedRequest(digest_of(body), tables, len(body))


@pytest.mark.parametrize("table", ["otel_metrics_histogram", "expert_load", *TIERS])
def test_token_that_was_logged_without_its_part_does_not_lose_the_rows(tmp_path, monkeypatch, table):
    """The engine notes a token, then names the part. A kill between the two leaves the token alone."""
    counts = np.array([[13, 0, 23, 79]])
    settings = Settings(engine_memory_bytes=2**30)
    directory = DataDirectory(tmp_path)
    engine = Engine(directory.engine, settings)
    store = EmbeddedStore(engine, directory)
    store.commit([landed(expert_request("before", counts))])
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", lambda *_: None)  # what a kill leaves behind
        store.commit([landed(expert_request("crash", counts))])
    query = f"SELECT path FROM system.parts WHERE active AND database = 'moescope' AND table = '{table}'"
    newest = engine.scalar(query + " ORDER BY max_block_number DESC LIMIT 1")
    engine.close()
    shutil.rmtree(newest)
    directory.stored_requests.unlink()

    engine = Engine(directory.engine, settings)
    assert engine.repaired_entries == 1
    store = EmbeddedStore(engine, directory)
    assert store.resumed_batches == 1
    assert list(directory.journal.iterdir()) == []
    for tier in TIERS:
        assert engine.scalar(f"SELECT arraySum(sumForEachMerge(tokens)) FROM moescope.{tier}") == "230"
    assert engine.scalar("SELECT sum(assignments) FROM moescope.expert_load") == "230"
    assert engine.scalar("SELECT sum(Count) FROM moescope.otel_metrics_histogram") == "230"
    engine.close()
    directory.close()
