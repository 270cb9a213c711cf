"""Known workloads in a fresh embedded store. One store at a time: an engine opens one path per process."""

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
