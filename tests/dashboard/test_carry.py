"""What somebody looks at stays the same from page to page, and stands in the address of each."""

import pytest

from moescope.dashboard.links import PAGES
from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet

EAST = KnownFleet(
    service="kimi-k3", num_layers=3, num_experts=23, num_ranks=5, minutes=7, phases=tuple(Phase)
)
WEST = KnownFleet(
    service="kimi-k3", ep_group="west", num_layers=3, num_experts=23, num_ranks=5, minutes=7, sigma=0.2
)
OTHER = KnownFleet(service="a-first", num_layers=3, num_experts=23, num_ranks=3, minutes=7)
UNTIL = str((EAST.end_s - 120) * 1000)
LOOKED_AT = {
    "service": "kimi-k3",
    "group": "west",
    "phase": "prefill",
    "window": "5m",
    "until": UNTIL,
    "layer": "2",
    "expert": "13",
    "rank": "1",
    "node": "node-1",
}


@pytest.fixture(scope="module")
def dsn(make_dsn):
    return make_dsn(EAST, WEST, OTHER)


def _go(page, file):
    """Follow a link of the navigation: the browser asks for the page without any parameters."""
    page.query_params.clear()
    return page.switch_page(file).run()


def test_every_page_keeps_what_a_deep_link_says(open_page, dsn):
    page = open_page("app.py", dsn, **LOOKED_AT)
    for one in (*PAGES[1:], PAGES[0]):
        page = _go(page, one.file)
        assert not page.exception, one.title
        assert page.query_params | LOOKED_AT == page.query_params, one.title


def test_choice_of_somebody_goes_into_the_address_and_along(open_page, dsn):
    page = open_page("app.py", dsn)
    page.selectbox[0].set_value("kimi-k3").run()
    assert page.query_params["service"] == "kimi-k3"
    at = _go(page, "pages/memory.py")
    assert at.selectbox[0].value == "kimi-k3"
    at.selectbox[1].set_value("west").run()
    assert at.query_params == {"service": "kimi-k3", "group": "west"}


def test_what_somebody_removed_stays_away(open_page, dsn):
    page = open_page("app.py", dsn, until=UNTIL)
    page.toggle[0].set_value(True).run()
    assert "until" not in _go(page, "pages/memory.py").query_params


def test_link_to_one_expert_does_not_bring_back_another(open_page, dsn):
    page = open_page("app.py", dsn, layer="2", expert="13")
    page.query_params.clear()
    page.query_params["layer"] = "1"
    assert page.switch_page("pages/expert_load.py").run().query_params == {"layer": "1"}


def test_deployment_that_is_not_stored_is_said_to_be_missing(open_page, dsn):
    page = open_page("pages/memory.py", dsn, service="gone")
    assert page.toast[0].value == "Nothing is stored of the deployment gone; this is a-first."
    assert page.query_params == {"service": "a-first"}
