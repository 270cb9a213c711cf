"""The page of memory: six pools, two caches, and which is full."""

import pytest

from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/memory.py"
FLEET = KnownFleet(num_ranks=13, num_layers=3, minutes=3)


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


def test_full_pool_is_named_in_a_sentence(open_page, dsn, texts):
    page = open_page(PAGE, dsn)
    assert "1 pool full" in page.subheader[0].value
    assert "Fullest: KDA state of rank 12, 99 % of its limit." in texts(page)


def test_six_pools_are_stacked_with_their_limits_in_the_hover(open_page, dsn, figure_of):
    bars = [one for one in figure_of(open_page(PAGE, dsn), "pools")["data"] if one["type"] == "bar"]
    assert [one["name"] for one in bars] == [
        *("weights", "runtime", "KDA state", "MLA KV cache", "replication", "transfer"),
    ]
    assert len({one["marker"]["color"] for one in bars}) == 6
    assert bars[3]["customdata"][0] == "23.0 GiB of 29.0 GiB, 79 %"
    assert bars[4]["customdata"][0] == "2.00 GiB"


def test_full_pool_is_ringed(open_page, dsn, figure_of):
    rings = next(one for one in figure_of(open_page(PAGE, dsn), "pools")["data"] if one.get("name") == "full")
    assert (rings["x"], rings["y"]) == ([12], ["KDA state"])


def test_threshold_comes_from_the_settings(open_page, dsn, monkeypatch):
    monkeypatch.setenv("MOESCOPE_MEMORY_FULL_RATIO", "0.995")
    assert "Every pool has room" in open_page(PAGE, dsn).subheader[0].value


def test_kda_slots_and_mla_blocks_have_panels_of_their_own(open_page, dsn, figure_of):
    figure = figure_of(open_page(PAGE, dsn), "occupancy")
    titles = [note["text"] for note in figure["layout"]["annotations"]]
    assert "moe.kda_state.slots" in titles[0]
    assert "moe.mla_kv_cache.blocks" in titles[1]
    assert [one["xaxis"] for one in figure["data"]] == ["x", "x", "x2", "x2"]


def test_prefix_cache_says_what_it_found(open_page, dsn, texts, figure_of):
    page = open_page(PAGE, dsn)
    assert "83 % of 3.00 k prompt tokens were found" in texts(page)
    names = [one["name"] for one in figure_of(page, "prefix_cache")["data"]]
    assert names == ["hit", "partial hit", "miss", "found"]
