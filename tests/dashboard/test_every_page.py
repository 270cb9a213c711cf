"""What holds for every page in every state that it can be in. A new page joins by being in ``PAGES``."""

import json

import pytest

from moescope.dashboard.links import PAGES
from tests.analysis.known_workloads import KnownFleet

ADDRESSES = [page.address for page in PAGES]
FILES = {page.address: page.file for page in PAGES}
WITHOUT_STORE = {"alerts"}
"""They ask others than the store."""
BY_HAND = {"sql", "alerts"}
"""Nothing is drawn before somebody asks, or before an alert fires."""
DRAWS_LATER = BY_HAND | {"replication", "compare"}
"""Moves are planned when somebody asks, and three minutes have nothing before them to be compared with."""
MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def dsns(make_dsn, make_telemetry_dsn):
    big = KnownFleet(service="big", num_ranks=128, num_experts=256, num_layers=3, minutes=3)
    return {
        "empty": make_dsn(),
        "one rank": make_telemetry_dsn(KnownFleet(service="lone", num_ranks=1, num_layers=3, minutes=1)),
        "128 ranks": make_telemetry_dsn(big),
        "expert load alone": make_dsn(KnownFleet(service="bare", num_layers=3, minutes=2)),
        "away": "http://reader:secret@127.0.0.1:1/moescope",
    }


@pytest.fixture
def open_state(open_page, dsns):
    def run(address, state, **query_params):
        page = open_page(FILES[address], dsns[state], **query_params)
        assert not page.exception
        return page

    return run


@pytest.mark.parametrize("address", [one for one in ADDRESSES if one not in WITHOUT_STORE])
def test_store_that_is_away_is_a_message_with_a_way_to_try_again(open_state, texts, address):
    page = open_state(address, "away")
    said = texts(page)
    assert "The store does not answer" in said
    assert "secret" not in said
    assert [button.label for button in page.button] == ["Try again"]


@pytest.mark.parametrize("address", [one for one in ADDRESSES if one not in BY_HAND])
def test_empty_store_says_what_is_missing_and_how_to_get_it(open_state, texts, address):
    said = texts(open_state(address, "empty"))
    assert "has arrived yet" in said
    assert "moescope simulate --model kimi-k3" in said


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("state", ["one rank", "expert load alone"])
def test_little_is_shown_as_what_it_is(open_state, texts, address, state):
    assert texts(open_state(address, state)), "a blank page"


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("said", ["²", "9" * 5000])
def test_address_that_says_nothing_sensible_is_no_fault(open_state, texts, address, said):
    names = ("service", "group", "phase", "window", "until", "layer", "expert", "rank", "node", "runbook")
    assert texts(open_state(address, "one rank", **dict.fromkeys(names, said)))


@pytest.mark.parametrize("address", ADDRESSES)
def test_window_of_which_nothing_is_stored_is_no_fault(open_state, texts, address):
    assert texts(open_state(address, "one rank", until="1700000000000"))


@pytest.mark.parametrize("address", [one for one in ADDRESSES if one not in DRAWS_LATER])
def test_figures_of_128_ranks_say_what_they_are_and_can_be_taken_along(open_state, address):
    page = open_state(address, "128 ranks")
    charts = page.get("plotly_chart")
    assert charts
    assert sum(len(chart.proto.spec) for chart in charts) < MOST_BYTES
    assert [button.label for button in page.get("download_button")].count("CSV") == len(charts)
    for chart in charts:
        figure = json.loads(chart.proto.spec)
        layout = figure["layout"]
        axes = [axis for name, axis in layout.items() if name.startswith(("xaxis", "yaxis"))]
        titles = [axis.get("title", {}).get("text") for axis in axes]
        notes = [note["text"] for note in layout.get("annotations", [])]
        assert chart.proto.alt, chart.proto.id
        assert any(titles) or notes, f"{chart.proto.id} has no axis title"
        for trace in figure["data"]:
            says = trace.get("hovertemplate") or trace.get("hoverinfo") == "skip"
            assert says, f"{chart.proto.id}: nothing is said under the pointer"
