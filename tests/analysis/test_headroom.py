"""What a deployment has left, over its EP groups."""

from contextlib import closing

import pytest

from moescope.analysis.headroom import read_headroom
from moescope.analysis.span import cover, list_deployments
from moescope.analysis.store import open_store
from moescope.schemas.settings import Settings
from tests.analysis.known_telemetry import ALL_PARTS, make_telemetry_store
from tests.analysis.known_workloads import KnownFleet, make_store

FLEET = KnownFleet(num_ranks=5, num_layers=3, minutes=3)


def _headroom(dsn):
    with closing(open_store(dsn)) as store:
        deployment = list_deployments(store)[0]
        spans = [cover(deployment, 900, ep_group=group) for group in deployment.ep_groups]
        return read_headroom(store, spans, Settings())


def test_fullest_pool_of_all_ranks_decides(tmp_path):
    headroom = _headroom(make_telemetry_store(tmp_path / "store", FLEET, ALL_PARTS))
    assert headroom.fullest.rank == 4
    assert headroom.free_share == pytest.approx(0.01, abs=0.002)
    assert headroom.is_full
    assert headroom.describe().startswith("of KDA state, rank 4")


def test_deployment_without_pools_has_no_headroom(tmp_path):
    assert _headroom(make_store(tmp_path / "store", FLEET)) is None
