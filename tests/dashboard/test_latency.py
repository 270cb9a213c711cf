"""The page of latency: numbers that are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from moescope.analysis.distribution import BucketRow, DistributionKey, describe_distribution
from moescope.dashboard.figures.latency import draw_inside
from moescope.schemas import metrics
from tests.analysis.known_telemetry import GOOD_REQUESTS, SLOW_REQUESTS
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/latency.py"
FLEET = KnownFleet(num_ranks=13, num_layers=3, minutes=3)


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


def _metrics(page):
    return {metric.label: metric.value for metric in page.metric}


def test_each_latency_has_its_median_and_its_p99(open_page, dsn, texts):
    page = open_page(PAGE, dsn)
    labels = list(_metrics(page))
    assert labels[:5] == ["TTFT, p50", "TPOT, p50", "ITL, p50", "Queue, p50", "End to end, p50"]
    assert texts(page).count("p99 ") >= 5


def test_goodput_is_said_with_its_verdict(open_page, dsn, texts):
    page = open_page(PAGE, dsn)
    assert _metrics(page)["Good requests"] == "65 %"
    assert "want 95 %" in texts(page)
    assert GOOD_REQUESTS / (GOOD_REQUESTS + SLOW_REQUESTS) == 0.65


def test_goodput_is_drawn_beside_all_that_finished(open_page, dsn, figure_of):
    traces = figure_of(open_page(PAGE, dsn), "goodput")["data"]
    assert [trace["name"] for trace in traces] == ["all", "kept the contract"] * 2


def test_cost_is_absent_without_a_price_and_there_with_one(open_page, dsn, texts, monkeypatch):
    page = open_page(PAGE, dsn)
    assert _metrics(page)["Cost per 1000"] == "–"
    assert "no price is set" in texts(page)
    monkeypatch.setenv("MOESCOPE_RANK_HOUR_PRICE", "3.5")
    assert _metrics(open_page(PAGE, dsn))["Cost per 1000"] != "–"


def test_price_that_is_set_is_not_called_missing_where_nothing_was_good(
    open_page, make_telemetry_dsn, texts, monkeypatch
):
    monkeypatch.setenv("MOESCOPE_RANK_HOUR_PRICE", "3.5")
    monkeypatch.setattr("tests.analysis.known_telemetry.GOOD_REQUESTS", 0)
    page = open_page(PAGE, make_telemetry_dsn(FLEET))
    assert _metrics(page)["Cost per 1000"] == "–"
    assert "no good tokens" in texts(page)
    assert "no price is set" not in texts(page)


def test_three_percentiles_of_each_latency_share_a_colour(open_page, dsn, figure_of):
    figure = figure_of(open_page(PAGE, dsn), "request_latency")
    lines = [trace for trace in figure["data"] if trace["name"] in {"p50", "p90", "p99"}]
    assert len(lines) == 15
    assert len({trace["line"]["color"] for trace in lines}) == 1
    assert {trace["line"].get("dash", "solid") for trace in lines} == {"solid", "dash", "dot"}


def test_prefill_and_decode_are_never_one_line(open_page, dsn, figure_of):
    titles = [
        note["text"].split("</b>")[0].removeprefix("<b>")
        for note in figure_of(open_page(PAGE, dsn), "inside")["layout"]["annotations"]
    ]
    of_a_phase = ["step", "dispatch", "combine", "step"]
    assert titles == [f"{phase} {what}" for phase in ("Prefill", "Decode") for what in of_a_phase]


def test_phase_that_lacks_a_panel_leaves_its_place_empty():
    rows = [BucketRow(0, np.array([1.0]), np.array([7.0, 0.0]), 7, 3.5)]
    step, tokens = metrics.STEP_DURATION, metrics.STEP_TOKENS
    keys = [(step, "", "prefill"), (tokens, "", "prefill"), (tokens, "", "decode")]
    keys += [(metrics.DISPATCH_DURATION, "combine", phase) for phase in ("prefill", "decode")]
    distributions = {
        DistributionKey(metric.name, stage, phase): describe_distribution(metric, rows)
        for metric, stage, phase in keys
    }
    figure = draw_inside(SimpleNamespace(distributions=distributions))
    places = {
        (note.text.split("</b>")[0].removeprefix("<b>"), "tokens" in note.text): note.xref.removesuffix(
            " domain"
        )
        for note in figure.layout.annotations
    }
    assert places == {
        ("Prefill step", False): "x",
        ("Prefill combine", False): "x2",
        ("Prefill step", True): "x3",
        ("Decode combine", False): "x5",
        ("Decode step", True): "x6",
    }
    assert [figure.layout[axis].visible for axis in ("xaxis4", "yaxis4")] == [False, False]
    assert {trace.xaxis for trace in figure.data} == set(places.values())
    assert figure.layout.xaxis.title.text == figure.layout.xaxis5.title.text


def test_times_are_in_the_viewers_zone(open_page, dsn, figure_of):
    figure = figure_of(open_page(PAGE, dsn), "request_load")
    assert figure["layout"]["xaxis"]["title"]["text"] == "Time (Europe/Berlin)"
    first = np.datetime64((FLEET.end_s - 180), "s") + np.timedelta64(1, "h")
    assert np.datetime64(figure["data"][0]["x"][0]) == first
