"""The page of what happens when a rank or a node is lost."""

import clickhouse_connect
import pytest

from moescope.analysis.failover_impact import FailoverStrategy
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, write_fleet

PAGE = "pages/failover.py"
FLEET = KnownFleet(num_ranks=13, num_layers=5, minutes=2, hot={(Phase.DECODE, 3, 23): 40.0})
ALONE = KnownFleet(service="alone", num_ranks=1, num_layers=2, num_experts=8, minutes=2)
UNPLACED = KnownFleet(service="unplaced", num_ranks=2, num_layers=2, num_experts=8, minutes=2)


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    dsn = make_telemetry_dsn(FLEET)
    client = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    write_fleet(client, ALONE)
    write_fleet(client, UNPLACED, reported_ranks=range(0))
    client.close()
    return dsn


def test_worst_rank_is_told_first_and_without_being_asked_for(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet")
    titles = [one.value for one in page.subheader]
    assert "Rank 4 is the worst to lose: 11 % of the traffic" in titles[0]
    assert "What happens when rank 4 fails?" in titles
    assert "13 ranks on 4 nodes, 5 layers of 64 experts, top-4. No redundancy" in texts(page)


def test_loss_that_is_more_than_one_rank_may_take_is_a_problem(open_page, dsn, monkeypatch):
    monkeypatch.setenv("MOESCOPE_FAILOVER_LOST_SHARE", "0.1")
    page = open_page(PAGE, dsn, service="known-fleet")
    assert "Rank 4 takes too much with it" in page.subheader[0].value
    assert "red" in page.subheader[0].value


def test_rank_in_the_address_is_the_one_that_is_lost(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet", rank="7")
    assert "What happens when rank 7 fails?" in texts(page)
    assert page.selectbox(key="failover_loss").value == "Rank 7"


def test_node_in_the_address_is_the_one_that_is_lost(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet", node="node-3")
    assert "What happens when node node-3 fails?" in texts(page)
    assert page.selectbox(key="failover_loss").value == "Node node-3 (rank 12)"


def test_choice_in_the_list_goes_to_the_address_and_takes_the_place_of_another(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet", rank="7")
    page.selectbox(key="failover_loss").select("Node node-3 (rank 12)").run()
    assert page.query_params["node"] == "node-3"
    assert "rank" not in page.query_params
    assert "What happens when node node-3 fails?" in texts(page)


def test_unknown_rank_in_the_address_is_said_and_the_worst_one_shown(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet", rank="79")
    assert "This group has no rank 79; shown is the worst rank." in texts(page)
    assert "What happens when rank 4 fails?" in texts(page)


def test_every_strategy_is_told_and_the_chosen_one_drawn(open_page, dsn, texts, figure_of):
    page = open_page(PAGE, dsn, service="known-fleet", rank="7")
    for strategy in FailoverStrategy:
        assert f"`{strategy.value}`" in texts(page)
    held = FLEET.replicas()[7].sum()
    assert f"{held} experts must be loaded again onto" in texts(page)
    assert [one["name"] for one in figure_of(page, "reload")["data"]][-1] == "free memory"

    page.segmented_control(key="strategy").set_value(FailoverStrategy.FALLBACK).run()

    assert "of its assignments" in figure_of(page, "lost_layers")["data"][0]["hovertemplate"]
    assert "Fall back: who does what" in texts(page)


def test_strategy_of_the_address_is_named_as_on_the_command_line(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet", rank="7", strategy="fallback_expert")
    assert "Fall back: who does what" in texts(page)
    page.segmented_control(key="strategy").set_value(FailoverStrategy.BLOCK).run()
    assert page.query_params["strategy"] == "block"


def test_every_rank_and_node_is_drawn_and_the_picked_one_marked(open_page, dsn, figure_of):
    figure = figure_of(open_page(PAGE, dsn, service="known-fleet", rank="7"), "losses")
    bars = [one for one in figure["data"] if one["type"] == "bar"]
    assert [one["x"] for one in bars[::2]] == [
        list(range(13)),
        ["node-0", "node-1", "node-2", "node-3"],
    ]
    (mark,) = [one for one in figure["data"] if one["type"] == "scatter"]
    assert mark["x"] == [7]


def test_what_would_protect_is_said(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="known-fleet", rank="7")
    assert "When it happens: send its requests elsewhere and restart the rank or replace it" in texts(page)
    assert "a copy of every expert on a second rank takes 64 redundant experts a layer" in texts(page)


def test_group_of_one_rank_has_nobody_to_fail_over_to(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="alone")
    assert "Rank 0 is alone: its loss is the loss of the service" in page.subheader[0].value
    assert "Before it happens" not in texts(page)
    assert not page.exception


def test_group_that_never_said_who_holds_what_says_what_is_missing(open_page, dsn, texts):
    page = open_page(PAGE, dsn, service="unplaced")
    assert "No rank said which experts it holds" in texts(page)
    assert "`moe.expert.replicas`" in texts(page)
