"""What holds for each page of the other metrics: latency, traffic, memory, health."""

import pytest

from tests.analysis.known_telemetry import CACHES, REQUESTS, TRAFFIC
from tests.analysis.known_workloads import KnownFleet

PAGES = {
    "latency": "pages/latency.py",
    "traffic": "pages/traffic.py",
    "memory": "pages/memory.py",
    "health": "pages/health.py",
}
BIG = KnownFleet(service="big", num_ranks=64, num_layers=3, minutes=3)
FIGURES = {
    "latency": ["request_latency", "inside", "request_load"],
    "traffic": ["traffic_matrix", "wait_matrix"],
    "memory": ["pools", "pool_history", "occupancy", "cache_history", "prefix_cache"],
    "health": ["tokens", "gpus"],
}


@pytest.fixture(scope="module")
def big_dsn(make_telemetry_dsn):
    return make_telemetry_dsn(BIG)


@pytest.fixture(scope="module")
def lone_dsn(make_telemetry_dsn):
    return make_telemetry_dsn(KnownFleet(service="lone", num_ranks=1, num_layers=3, minutes=1))


@pytest.fixture(scope="module")
def bare_dsn(make_dsn):
    return make_dsn(KnownFleet(service="bare", num_layers=3, minutes=2))


@pytest.mark.parametrize("name", PAGES)
def test_64_ranks_are_drawn_with_units_and_sentences_under_the_pointer(open_page, big_dsn, figure_of, name):
    page = open_page(PAGES[name], big_dsn)
    assert not page.exception
    assert not page.info
    for key in FIGURES[name]:
        figure = figure_of(page, key)
        titles = [note["text"] for note in figure["layout"].get("annotations", [])]
        assert any("." in title for title in titles), f"{key} names no metric"
        axes = [axis for axis_name, axis in figure["layout"].items() if axis_name.startswith("xaxis")]
        assert any(axis.get("title", {}).get("text") for axis in axes), f"{key} has no axis title"
        for trace in figure["data"]:
            assert trace.get("hovertemplate"), (key, trace.get("name"))


@pytest.mark.parametrize("name", PAGES)
def test_one_rank_of_one_minute_is_drawn(open_page, lone_dsn, figure_of, name):
    page = open_page(PAGES[name], lone_dsn)
    assert not page.exception
    for key in set(FIGURES[name]) - {"wait_matrix"}:
        assert figure_of(page, key)["data"]


@pytest.mark.parametrize("name", ["latency", "traffic", "memory"])
def test_missing_metrics_are_named_with_who_would_report_them(open_page, bare_dsn, texts, name):
    page = open_page(PAGES[name], bare_dsn)
    assert not page.exception
    assert not page.get("plotly_chart")
    said = [info.value for info in page.info]
    assert said
    assert all("`moe." in text or "`gen_ai." in text for text in said)


def test_page_of_health_needs_only_the_expert_load(open_page, bare_dsn, figure_of):
    page = open_page(PAGES["health"], bare_dsn)
    assert not page.exception
    assert figure_of(page, "tokens")["data"]
    assert "`hw.gpu.utilization`" in page.info[0].value


@pytest.mark.parametrize("name", PAGES)
def test_choices_stand_in_the_address(open_page, big_dsn, name):
    until = str((BIG.end_s - 60) * 1000)
    page = open_page(PAGES[name], big_dsn, service="big", window="5m", until=until)
    assert not page.exception
    assert not page.toggle[0].value
    assert any(caption.value.startswith("2 min to ") for caption in page.caption)


@pytest.fixture(scope="module")
def partial_dsn(make_telemetry_dsn):
    fleet = KnownFleet(service="partial", num_ranks=2, num_layers=2, minutes=1)
    return make_telemetry_dsn(fleet, without=[REQUESTS, TRAFFIC, CACHES])


@pytest.mark.parametrize(
    ("name", "key"), [("latency", "inside"), ("traffic", "wait_matrix"), ("memory", "pools")]
)
def test_one_missing_metric_leaves_the_rest_of_the_page(open_page, partial_dsn, figure_of, name, key):
    page = open_page(PAGES[name], partial_dsn)
    assert not page.exception
    assert page.info
    assert figure_of(page, key)["data"]
