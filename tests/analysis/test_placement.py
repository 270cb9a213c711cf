"""A placement that ranks spread over several windows is read as one."""

import dataclasses

import clickhouse_connect
import numpy as np

from moescope.analysis.expert_load import list_scopes, read_window
from moescope.analysis.placement import read_placement
from moescope.analysis.store import open_store
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, make_store, write_fleet

FLEET = KnownFleet(num_layers=3, num_experts=4, top_k=2, num_ranks=2, tokens_per_minute=79, minutes=3)


def test_each_layer_has_the_newest_that_each_rank_said_of_it(tmp_path):
    """Rank 0 repeats layer 1 in one window and, after experts 1 and 2 moved, layer 3 in another."""
    dsn = make_store(tmp_path, FLEET)
    client = clickhouse_connect.get_client(dsn=dsn, database="moescope")
    for seconds_before_end, layer, rank, replicas in (
        (70, 1, 0, [1, 1, 0, 0]),
        (10, 3, 0, [1, 0, 1, 0]),
        (10, 3, 1, [0, 1, 0, 1]),
    ):
        client.command(
            "INSERT INTO expert_replicas "
            "(time, service, ep_group, ep_rank, ep_size, layer, experts, replicas) "
            f"VALUES ({FLEET.end_s - seconds_before_end}, "
            f"'known-fleet', '0', {rank}, 2, {layer}, 4, {replicas})"
        )
    client.close()

    store = open_store(dsn)
    placement = read_placement(store, read_window(store, list_scopes(store)[0], 900, Settings()))
    store.close()
    expected = FLEET.replicas()
    expected[:, 2] = [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert placement is not None
    assert placement.missing_ranks.tolist() == []
    np.testing.assert_array_equal(placement.replicas, expected)


def test_rank_that_fell_silent_hours_ago_still_holds_what_it_held(tmp_path):
    dsn = make_store(tmp_path)
    client = clickhouse_connect.get_client(dsn=dsn, database="moescope")
    early = dataclasses.replace(FLEET, end_s=FLEET.end_s - 3 * 3600)
    write_fleet(client, early)
    write_fleet(client, FLEET, reported_ranks=range(1))
    client.close()

    store = open_store(dsn)
    placement = read_placement(store, read_window(store, list_scopes(store)[0], 900, Settings()))
    store.close()
    assert placement is not None
    assert placement.ranks.tolist() == [0, 1]
    np.testing.assert_array_equal(placement.replicas, FLEET.replicas())
