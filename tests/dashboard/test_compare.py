"""The page that compares two windows or two deployments."""

import pytest

from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/compare.py"
FLEET = KnownFleet(num_ranks=7, num_layers=3, num_experts=79, minutes=11)
HOT = KnownFleet(
    service="hot-fleet",
    num_ranks=7,
    num_layers=3,
    num_experts=79,
    minutes=3,
    hot={(Phase.DECODE, 2, 23): 30.0},
)
OTHER = KnownFleet(service="other-model", num_ranks=3, num_layers=2, num_experts=23, minutes=3)


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


@pytest.fixture(scope="module")
def fleets_dsn(make_dsn):
    return make_dsn(KnownFleet(num_ranks=7, num_layers=3, num_experts=79, minutes=3), HOT, OTHER)


def test_steady_fleet_is_the_same_as_in_the_window_before(open_page, dsn, texts, figure_of):
    page = open_page(PAGE, dsn, window="5m")
    assert not page.exception
    assert "**A** is known-fleet" in texts(page)
    assert "(window before)" in texts(page)
    numbers = page.dataframe[0].value
    assert numbers[numbers["Number"] == "TTFT p50"]["A / B"].tolist() == ["1.00 ×"]
    for key in ("compare_series", "compare_layers", "compare_ranks"):
        for trace in figure_of(page, key)["data"]:
            assert trace.get("hovertemplate"), key


def test_time_that_is_not_stored_is_said(open_page, dsn):
    page = open_page(PAGE, dsn, window="15m", back="24h")
    assert not page.exception
    assert page.info[0].value.startswith("Nothing is stored of known-fleet before ")


def test_other_deployment_of_the_address_is_compared_at_the_same_time(
    open_page, fleets_dsn, texts, figure_of
):
    page = open_page(PAGE, fleets_dsn, service="hot-fleet", **{"with": "known-fleet"})
    assert not page.exception
    said = texts(page)
    assert "it uses its experts differently in 1 of 3 layers" in said
    assert "(same time)" in said
    points = figure_of(page, "compare_experts")["data"][0]
    assert points["hovertemplate"].startswith("Layer %{y}, expert %{x}")


def test_other_model_has_no_experts_to_compare(open_page, fleets_dsn):
    page = open_page(PAGE, fleets_dsn, service="hot-fleet", **{"with": "other-model"})
    assert not page.exception
    assert "The experts cannot be compared" in page.info[0].value


def test_numbers_of_a_subject_stand_in_the_address(open_page, dsn, figure_of):
    page = open_page(PAGE, dsn, window="5m", subject="memory")
    titles = [note["text"] for note in figure_of(page, "compare_series")["layout"]["annotations"]]
    assert any("Fullest KDA state" in title for title in titles)
