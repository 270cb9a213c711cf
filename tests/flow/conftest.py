"""Known numbers through the recorders, exporter and receivers of an engine, into either kind of store."""

import itertools
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from moescope.collector.expert_load import NumpyExpertCounter
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.process_recorder import ProcessRecorder
from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import load_otlp_config
from moescope.schemas.attributes import Component
from moescope.schemas.identity import EngineIdentity, ProcessIdentity
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid, every_layer_from
from moescope.server.app import Server

SHAPE = every_layer_from("known-model", 1, 4, num_experts=8, top_k=2)
"""Layer 0 is dense; layers 1, 2 and 3 route over eight experts."""
WINDOW_SECONDS = 10
_NS = 10**9
_NUMBERS = itertools.count()


@dataclass
class Clock:
    """The wall clock of every recorder of a test, begun at a whole minute some minutes ago."""

    minutes_ago: int = 23
    now_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.start_s = int(time.time()) // 60 * 60 - self.minutes_ago * 60
        self.now_ns = self.start_s * _NS

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * _NS)


class Telemetry:
    """One deployment, as its processes report it and as SQL sees it."""

    def __init__(self, otlp: Server, sql: Server) -> None:
        self.service = f"fleet-{next(_NUMBERS)}"
        self.clock = Clock()
        self.settings = Settings(snapshot_every_windows=12, flush_timeout_seconds=60)
        self.endpoint = f"127.0.0.1:{otlp.ports.otlp_grpc}"
        self._config = load_otlp_config({}, endpoint=f"http://127.0.0.1:{otlp.ports.otlp_grpc}")
        self._sql_port = sql.ports.sql
        self._database = otlp.settings.database
        self._recorders: list[ProcessRecorder] = []

    @property
    def dsn(self) -> str:
        """Where the analysis reads what is stored."""
        return f"http://127.0.0.1:{self._sql_port}/{self._database}"

    def rank(self, ep_rank: int = 0, ep_size: int = 2, **changes) -> LiveRecorder:
        """A rank with experts."""
        identity = EngineIdentity(self.service, SHAPE, RankGrid("0", ep_rank, ep_size), **changes)
        recorder = LiveRecorder(
            identity,
            NumpyExpertCounter(SHAPE.num_moe_layers, SHAPE.num_experts),
            self._exporter,
            self.settings,
            clock_ns=self.clock,
        )
        self._recorders.append(recorder)
        return recorder

    def process(self, component: Component = Component.FRONTEND, ep_size: int = 2, **changes):
        """A process without experts, which speaks for the engine of rank 0."""
        grid = RankGrid("0", 0, ep_size)
        identity = ProcessIdentity(self.service, component, model="known-model", grid=grid, **changes)
        recorder = ProcessRecorder(identity, self._exporter, self.settings, clock_ns=self.clock)
        self._recorders.append(recorder)
        return recorder

    def close_window(self, seconds: float = WINDOW_SECONDS) -> None:
        """Let time pass and have every process report."""
        self.clock.advance(seconds)
        for recorder in self._recorders:
            assert recorder.flush(), "the server did not take a window"

    def minute(self, number: int = 0) -> str:
        """The minute's start, as SQL prints it."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.clock.start_s + 60 * number))

    def columns(self, view: str) -> list[tuple[str, str]]:
        """Name and comment of each column of a table or view, in order."""
        query = (
            "SELECT name, comment FROM system.columns "
            f"WHERE database = '{self._database}' AND table = '{view}' ORDER BY position"
        )
        return self._ask(query)

    def rows(self, view: str, columns: str = "*", where: str = "1") -> list[tuple]:
        """Rows of a view that are this deployment's, ordered by all columns."""
        query = (
            f"SELECT {columns} FROM {self._database}.{view} "
            f"WHERE service = {{service:String}} AND ({where}) ORDER BY ALL"
        )
        return self._ask(query)

    def ask(self, query: str, **parameters: object) -> list[tuple]:
        """Answer a query of the analysis: tables as ``{db}.name``, ``service`` is this deployment's."""
        return self._ask(query.replace("{db}", self._database), **parameters)

    def _ask(self, query: str, **parameters: object) -> list[tuple]:
        arguments = {
            "default_format": "JSONCompact",
            "output_format_json_quote_64bit_integers": "0",
            "param_service": self.service,
            **{f"param_{name}": value for name, value in parameters.items()},
        }
        url = f"http://127.0.0.1:{self._sql_port}/?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, data=query.encode(), timeout=60) as answer:
            return [tuple(row) for row in json.load(answer)["data"]]

    def forget(self) -> None:
        """Go on with other processes."""
        self._recorders.clear()

    def close(self) -> None:
        for recorder in self._recorders:
            recorder.close()

    def _exporter(self, identity) -> OtlpExporter:
        return OtlpExporter(identity, self._config)


@pytest.fixture(scope="module", params=["embedded", "http"])
def servers(request, tmp_path_factory) -> Iterator[tuple[Server, Server]]:
    """Who takes OTLP, and who answers SQL: one server that owns an engine, or one that writes over HTTP."""
    ports = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}
    common = {**ports, "engine_memory_bytes": 2 * 2**30}
    folder = str(tmp_path_factory.mktemp("engine"))
    with Server(Settings(**common, data_dir=folder, sql_read_only=False)) as engine:
        if request.param == "embedded":
            yield engine, engine
            return
        dsn = f"http://127.0.0.1:{engine.ports.sql}/over_http"
        settings = Settings(**common, database="over_http", data_dir=str(tmp_path_factory.mktemp("writer")))
        with Server(settings, dsn) as writer:
            yield writer, engine


@pytest.fixture
def fleet(servers) -> Iterator[Telemetry]:
    """A deployment of its own for each test."""
    telemetry = Telemetry(*servers)
    yield telemetry
    telemetry.close()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(79)
