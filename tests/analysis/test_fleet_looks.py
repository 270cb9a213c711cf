"""What a closer look finds is what a report of the same moment says, and absent where it cannot be told."""

import dataclasses

import clickhouse_connect
import numpy as np
import pytest

from moescope.analysis import report
from moescope.analysis.fleet_looks import first_ends, name_ranks, take_look
from moescope.analysis.memory import FullPool
from moescope.analysis.memory_forecast import PoolSeries, Unit, forecast_pools
from moescope.analysis.span import Span
from moescope.analysis.store import open_store
from moescope.analysis.straggler_evidence import StragglerRules
from moescope.analysis.stragglers import find_stragglers
from moescope.schemas.attributes import MemoryPool, Phase
from moescope.schemas.fleet import AwaitedRank, FindingKind, LookKind, PoolEnd
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet, write_fleet
from tests.analysis.straggler_worlds import World

SETTINGS = Settings(fleet_page_window_seconds=720, straggler_cost_share=0.0)
FLEET = KnownFleet(num_ranks=13, num_layers=5, minutes=12, hot={(Phase.DECODE, 3, 23): 40.0})
BARE = KnownFleet(service="bare", num_ranks=1, num_layers=2, num_experts=8, end_s=FLEET.end_s)
UNPLACED = dataclasses.replace(BARE, service="unplaced", num_ranks=2)
HOT_PAIR = {(Phase.DECODE, layer, expert): 9.0 for layer in (2, 3, 5) for expert in (8, 9)}
AFTER = KnownFleet(service="shifted", minutes=12, hot=HOT_PAIR, phases=(Phase.DECODE,), end_s=FLEET.end_s)
BEFORE = dataclasses.replace(AFTER, hot={}, end_s=AFTER.end_s - 12 * 60)
SPAN = Span("fleet", "0", 0, 420_000, 420_000, 60)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    dsn = known.make_telemetry_store(tmp_path_factory.mktemp("telemetry") / "store", FLEET)
    client = clickhouse_connect.get_client(dsn=dsn, database=SETTINGS.database)
    for fleet in (BARE, BEFORE, AFTER):
        write_fleet(client, fleet)
    write_fleet(client, UNPLACED, reported_ranks=range(0))
    client.close()
    opened = open_store(dsn)
    yield opened
    opened.close()


def look(store, kind: LookKind, service: str = FLEET.service, settings: Settings = SETTINGS):
    return take_look(store, kind, service, "0", settings)


def reported(store, name: str, service: str = FLEET.service, **options) -> dict:
    """The only group or scope of a report over the window of the page."""
    made = getattr(report, name)(store, window_seconds=720, settings=SETTINGS, service=service, **options)
    (only,) = next(value for value in made.to_dict().values() if isinstance(value, list) and value)
    return only


def test_awaited_ranks_are_those_that_the_report_names(store):
    told = reported(store, "stragglers")["stragglers"]
    found = look(store, LookKind.STRAGGLERS)

    assert told
    assert [(one.ep_rank, one.kind, one.times_usual) for one in found.awaited] == [
        (one["ep_ranks"][0], one["kind"], one["times_others"]) for one in told
    ]
    assert found.findings == {FindingKind.STRAGGLER: len(told)}


def test_full_pools_are_those_of_the_report(store):
    told = reported(store, "memory")
    found = look(store, LookKind.MEMORY)

    (full,) = told["full_pools"]
    assert told["outlook"]["forecasts"] == []
    assert found.pool_ends == (PoolEnd(FLEET.service, "0", full["ep_rank"], MemoryPool(full["pool"]), 0.0),)
    assert found.findings == {FindingKind.POOL_FULL: 1, FindingKind.POOL_FILLING: 0}


def test_what_a_rank_takes_with_it_is_what_the_report_says(store):
    told = reported(store, "failover", question={})["ranks"]
    (found,) = look(store, LookKind.FAILOVER).covers

    worst = max(told, key=lambda one: one["traffic_share"])
    assert (found.ep_rank, found.lost_share) == (
        worst["ranks"][0],
        pytest.approx(worst["traffic_share"]),
    )
    assert found.uncovered_share == pytest.approx(sum(one["traffic_share"] for one in told))
    assert found.uncovered_share == pytest.approx(1), "every expert has one copy"


def test_ranks_beyond_the_acceptable_share_are_counted_as_the_report_fails(store):
    shares = [one["traffic_share"] for one in reported(store, "failover", question={})["ranks"]]
    limit = sorted(shares)[-4]
    strict = dataclasses.replace(SETTINGS, failover_lost_share=limit)

    counted = look(store, LookKind.FAILOVER, settings=strict).findings
    assert counted == {FindingKind.FAILOVER_UNCOVERED: 3}
    assert look(store, LookKind.FAILOVER).findings == {FindingKind.FAILOVER_UNCOVERED: 0}


def test_gain_of_moving_experts_is_the_regret_of_the_report_where_the_load_drifted(store):
    told = reported(store, "imbalance", "shifted")["regret"]
    (found,) = look(store, LookKind.REPLAN, "shifted").replans

    assert (found.phase, found.gain) == (Phase.DECODE, pytest.approx(told["mean_regret"]))
    assert found.gain > SETTINGS.replan_min_gain
    assert look(store, LookKind.REPLAN).replans == (), "one expert that no move can help"


def test_a_single_rank_is_not_held_against_its_group(store):
    found = look(store, LookKind.FAILOVER, "bare")

    assert found.covers[0].lost_share == 1
    assert found.findings == {FindingKind.FAILOVER_UNCOVERED: 0}


@pytest.mark.parametrize("kind", LookKind)
@pytest.mark.parametrize("service", ["unplaced", "nobody"])
def test_what_cannot_be_told_is_absent_and_not_zero(store, kind, service):
    found = look(store, kind, service)

    assert not any(dataclasses.astuple(found))


def test_a_node_is_told_of_its_first_rank_and_a_link_of_its_sender():
    node = World(16, 8, slow=dict.fromkeys(range(8, 16), 6.0)).evidence("waits")
    link = World(links={(1, 6): 5e-3}).evidence("waits")

    named = [
        [(one.ep_rank, one.kind) for one in name_ranks(find_stragglers(evidence, StragglerRules()), SPAN)]
        for evidence in (node, link)
    ]
    assert named == [[(8, "slow_node")], [(6, "slow_link")]]


def test_of_two_slow_links_of_one_sender_the_slower_one_is_told():
    (link,) = find_stragglers(World(links={(1, 6): 5e-3}).evidence("waits"), StragglerRules())
    slower = dataclasses.replace(link, ranks=(6, 7), times_others=7_919.0)

    for both in ((link, slower), (slower, link)):
        assert list(name_ranks(both, SPAN)) == [AwaitedRank("fleet", "0", 6, "slow_link", 7_919.0)]


def growing(rank: int, pool: MemoryPool, per_second: float) -> PoolSeries:
    seconds = 1e9 + np.arange(30) * 10.0
    return PoolSeries((rank,), pool, Unit.BYTES, seconds, 13.0 + per_second * (seconds - 1e9), 100.0)


def test_of_each_pool_the_rank_that_ends_first_is_told():
    kda, mla = MemoryPool.KDA_STATE, MemoryPool.MLA_KV_CACHE
    forecasts = forecast_pools([growing(3, kda, 0.13), growing(7, kda, 0.23), growing(5, mla, 0.2)])
    assert len(forecasts) == 3

    ends = {one.pool: one for one in first_ends((), forecasts, SPAN)}
    assert {pool: one.ep_rank for pool, one in ends.items()} == {kda: 7, mla: 5}
    assert {pool: one.seconds for pool, one in ends.items()} == {
        one.pool: one.seconds for one in forecasts if one.ranks != (3,)
    }
    full = [FullPool(13, kda, 99, 100), FullPool(11, kda, 98, 100)]
    ends = {one.pool: one for one in first_ends(full, forecasts, SPAN)}
    assert ends[kda] == PoolEnd("fleet", "0", 11, kda, 0.0)
    assert ends[mla].ep_rank == 5
