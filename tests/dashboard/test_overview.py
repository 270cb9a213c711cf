"""The overview in every state that it can be in."""

import dataclasses
import re

import pytest

from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet, this_minute_s

PAGE = "pages/overview.py"
# The shape of K3, with one planted expert in each phase.
K3 = KnownFleet(
    service="kimi-k3",
    num_layers=92,
    num_experts=896,
    top_k=16,
    num_ranks=64,
    minutes=4,
    tokens_per_minute=60_000,
    sigma=0.3,
    hot={(Phase.DECODE, 41, 347): 60.0, (Phase.PREFILL, 7, 13): 60.0},
)


@pytest.fixture(scope="module")
def k3_dsn(make_dsn):
    return make_dsn(dataclasses.replace(K3, end_s=this_minute_s()))


def _metrics(page):
    return [(metric.label, metric.value) for metric in page.metric]


def test_planted_experts_are_named_in_sentences_with_links(open_page, k3_dsn, texts):
    page = open_page("app.py", k3_dsn)
    assert not page.exception
    said = texts(page)
    assert "Layer 41, decode: rank 24 does" in said
    assert "because of expert 347." in said
    assert "Layer 7, prefill: rank 0 does" in said
    assert "because of expert 13." in said
    assert "problems" in page.subheader[0].value
    evidence = [link.proto.label for link in page.get("page_link") if "Evidence" in link.proto.label]
    assert evidence == ["Evidence: Experts"] * 2


def test_key_numbers_keep_prefill_and_decode_apart(open_page, k3_dsn):
    page = open_page(PAGE, k3_dsn)
    labels = [label for label, _ in _metrics(page)]
    of_a_phase = ["Tokens a second", "Worst layer", "Harmful hot experts"]
    assert labels[:5] == ["TTFT, p99", "TPOT, p99", "Goodput", "Imbalance", "Headroom"]
    assert labels[5:] == [*of_a_phase, *of_a_phase, "Ranks that report", "Newest window", "Counts add up"]
    headings = [heading.value for heading in page.subheader]
    assert headings.index("Prefill") < headings.index("Decode")
    assert dict(_metrics(page))["Tokens a second"] == "1.00 k"


def test_counts_that_add_up_say_so(open_page, k3_dsn):
    assert ("Counts add up", "yes") in _metrics(open_page(PAGE, k3_dsn))


def test_time_is_in_the_viewers_zone_with_utc_beside(open_page, k3_dsn, texts):
    said = texts(open_page(PAGE, k3_dsn))
    assert re.search(r"4 min to \d\d:\d\d:\d\d \(\d\d:\d\d:\d\d UTC( \d\d \w+)?\)", said)


def test_page_runs_alone_without_the_others(open_page, k3_dsn):
    page = open_page(PAGE, k3_dsn)
    assert not page.exception
    assert len(page.get("plotly_chart")) == 1


def test_balanced_fleet_is_told_that_nothing_is_wrong(open_page, make_dsn):
    page = open_page(PAGE, make_dsn(KnownFleet(sigma=0.1, end_s=this_minute_s())))
    assert page.subheader[0].value == ":green[:material/check_circle:] Nothing is wrong"


def test_fleet_of_one_rank_is_always_balanced(open_page, make_dsn):
    page = open_page(PAGE, make_dsn(KnownFleet(num_ranks=1, sigma=0.5)))
    assert not page.exception
    assert ("Worst layer", "1.00 ×") in _metrics(page)


def test_phase_that_is_not_served_is_left_out(open_page, make_dsn):
    page = open_page(PAGE, make_dsn(KnownFleet(phases=(Phase.DECODE,))))
    headings = [heading.value for heading in page.subheader]
    assert "Decode" in headings
    assert "Prefill" not in headings
    assert not page.exception


def test_groups_of_a_deployment_are_summed_and_told_apart(open_page, make_dsn, texts):
    west = KnownFleet(ep_group="west", hot={(Phase.DECODE, 3, 23): 60.0})
    page = open_page(PAGE, make_dsn(KnownFleet(), west))
    assert "Layer 3, decode, EP group west: rank 2 does" in texts(page)
    assert dict(_metrics(page))["Tokens a second"] == "264"


def test_empty_store_says_what_is_missing_and_how_to_get_it(open_page, make_dsn, texts):
    page = open_page(PAGE, make_dsn())
    said = texts(page)
    assert "No expert load has arrived yet" in said
    assert "moescope simulate --model kimi-k3" in said
    assert "moescope doctor" in said
    assert not page.exception


def test_store_without_a_schema_asks_for_migrate(open_page, tmp_path, texts):
    import clickhouse_connect

    clickhouse_connect.get_client(dsn=f"chdb://{tmp_path}/bare").close()
    said = texts(open_page(PAGE, f"chdb://{tmp_path}/bare"))
    assert "The store cannot be read" in said
    assert "moescope migrate" in said


def test_unknown_setting_is_named(open_page, monkeypatch, texts):
    monkeypatch.setenv("MOESCOPE_INTERVALL_SECONDS", "10")
    page = open_page(PAGE, "chdb:///nowhere")
    assert "did you mean MOESCOPE_INTERVAL_SECONDS" in texts(page)
    assert not page.exception


def test_load_that_moved_away_from_its_placement_asks_for_a_new_plan(open_page, make_dsn, texts):
    after = KnownFleet(
        minutes=16,
        phases=(Phase.DECODE,),
        hot={(Phase.DECODE, layer, expert): 9.0 for layer in (2, 3, 5) for expert in (8, 9)},
    )
    before = KnownFleet(minutes=16, phases=(Phase.DECODE,), end_s=after.end_s - 16 * 60)
    said = texts(open_page(PAGE, make_dsn(before, after)))
    assert "Decode: the placement no longer fits the load; moving " in said
