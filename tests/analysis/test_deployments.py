"""Which deployments a store knows, and where their newest minute is."""

import dataclasses
import time

import clickhouse_connect
import pytest

from moescope.analysis.expert_load import list_scopes
from moescope.analysis.rank_io import read_traffic
from moescope.analysis.span import cover, list_deployments
from moescope.analysis.store import open_store
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet, make_store, write_fleet

FLEET = KnownFleet(num_ranks=7, num_layers=3, minutes=5)
AHEAD = dataclasses.replace(FLEET, num_ranks=1, ep_group="ahead")
"""The same minutes by a clock that is three minutes ahead."""

SCRAPED = dataclasses.replace(FLEET, service="scraped", num_ranks=3)
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def end_s():
    """When the newest minute of the fleets ends: now, and not when this file was read."""
    return int(time.time()) // 60 * 60


@pytest.fixture(scope="module")
def store(tmp_path_factory, end_s):
    now = dataclasses.replace(FLEET, end_s=end_s)
    ahead = dataclasses.replace(AHEAD, end_s=end_s + 180)
    scraped = dataclasses.replace(SCRAPED, end_s=end_s)
    dsn = make_store(tmp_path_factory.mktemp("deployments") / "store", now)
    client = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    write_fleet(client, ahead)
    for fleet in (now, ahead, scraped):
        known.write_telemetry(client, fleet, frozenset({known.TRAFFIC}))
    client.close()
    opened = open_store(dsn)
    yield opened
    opened.close()


def _end_of_running_minute() -> int:
    return int(time.time() * 1000) // MINUTE_MS * MINUTE_MS + MINUTE_MS


def test_clock_that_is_ahead_does_not_move_the_window_into_the_future(store, end_s):
    before = _end_of_running_minute()
    fleet = next(one for one in list_deployments(store) if one.service == FLEET.service)
    ends = {scope.ep_group: scope.end_ms for scope in list_scopes(store)}
    after = _end_of_running_minute()
    assert before <= fleet.end_ms <= after
    assert before - MINUTE_MS <= fleet.last_ms <= after
    assert ends[FLEET.ep_group] == end_s * 1000
    assert before <= ends[AHEAD.ep_group] <= after


def test_rate_of_the_others_stays_nearly_whole(store, end_s):
    fleet = next(one for one in list_deployments(store) if one.service == FLEET.service)
    span = cover(fleet, 300.0, ep_group=FLEET.ep_group)
    stored_minutes = (end_s * 1000 - span.start_ms) // MINUTE_MS
    assert stored_minutes >= 3
    sent = sum(known.bytes_between(rank, peer) for rank in range(7) for peer in range(7))
    traffic = read_traffic(store, span)[Phase.DECODE]
    assert traffic.bytes_per_second == pytest.approx(sent * stored_minutes / span.seconds)


def test_deployment_without_experts_is_known_by_its_processes(store, end_s):
    scraped = next(one for one in list_deployments(store) if one.service == SCRAPED.service)
    assert scraped.ep_groups == (SCRAPED.ep_group,)
    assert scraped.first_ms == (end_s - SCRAPED.minutes * 60) * 1000
    assert scraped.last_ms == end_s * 1000
