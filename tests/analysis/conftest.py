"""Known workloads in a fresh embedded store. One store at a time: an engine opens one path per process."""

import contextlib

import pytest


@pytest.fixture(scope="module")
def known_store(tmp_path_factory):
    """Write fleets into a fresh store and open it; one call per module, closed at its end."""
    from moescope.analysis.store import open_store
    from tests.analysis.known_workloads import make_store

    opened = []

    def write_and_open(*fleets):
        store = open_store(make_store(tmp_path_factory.mktemp("store"), *fleets))
        opened.append(store)
        return store

    yield write_and_open
    for store in opened:
        store.close()


@pytest.fixture(scope="module", params=["embedded", "http"])
def either_store(request, tmp_path_factory):
    """As ``known_store``, twice: read from the embedded engine, and over HTTP from a server that owns it.

    A module that makes its store with this runs every test with both.
    """
    from moescope.analysis.store import open_store
    from moescope.schemas.settings import Settings
    from moescope.server.app import Server
    from tests.analysis.known_workloads import make_store

    with contextlib.ExitStack() as opened:

        def write_and_open(*fleets, make=make_store):
            folder = tmp_path_factory.mktemp("store")
            dsn = make(folder / "engine", *fleets)
            if request.param == "http":
                ports = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}
                settings = Settings(**ports, data_dir=str(folder), engine_memory_bytes=2 * 2**30)
                server = opened.enter_context(Server(settings))
                dsn = f"http://127.0.0.1:{server.ports.sql}/{settings.database}"
            store = open_store(dsn)
            opened.callback(store.close)
            return store

        yield write_and_open
