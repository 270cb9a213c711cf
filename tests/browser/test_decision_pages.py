"""Ranks, Failover, Replication and Compare in a real browser: a fleet with a hot expert and a slow rank."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.looks import LOOKS, assert_readable

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_ranks_names_the_slow_one(open_page, save_screenshot, scheme, width):
    page = open_page("ranks", scheme=scheme, width=width)
    expect(page.get_by_text(re.compile("Rank 5 is slow")).first).to_be_visible()
    page.locator(".st-key-rank_times .js-plotly-plot .main-svg").first.wait_for()
    save_screenshot(page, f"ranks-{scheme}-{width}")
    assert_readable(page)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_failover_says_what_happens_when_the_rank_of_the_address_fails(
    open_page, save_screenshot, scheme, width
):
    page = open_page("failover?rank=6", scheme=scheme, width=width)
    expect(page.get_by_role("heading", name="What happens when rank 6 fails?")).to_be_visible()
    page.locator(".st-key-survivors .js-plotly-plot .main-svg").first.wait_for()
    save_screenshot(page, f"failover-{scheme}-{width}")
    assert_readable(page)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_compare_holds_a_window_against_the_one_before(open_page, save_screenshot, scheme, width):
    page = open_page("compare?window=5m&back=window", scheme=scheme, width=width)
    expect(page.get_by_role("heading", name="Numbers")).to_be_visible()
    save_screenshot(page, f"compare-{scheme}-{width}")


def test_plan_that_is_asked_for_is_drawn_and_its_file_is_a_placement(open_page, save_screenshot, tmp_path):
    page = open_page("replication?how=scratch&redundant=32", ready="[data-testid=stMain]")
    page.get_by_role("button", name="Make the plan").click()
    expect(page.get_by_role("heading", name="Take it along")).to_be_visible(timeout=180_000)
    page.locator(".st-key-heat .js-plotly-plot .main-svg").first.wait_for()
    save_screenshot(page, "replication-light-1280")
    page.get_by_role("tab", name="SGLang").click()
    with page.expect_download() as download:
        page.locator(".st-key-download_sglang button").click()
    download.value.save_as(tmp_path / "sglang.json")
    written = json.loads((tmp_path / "sglang.json").read_text())
    slots = {len(layer) for layer in written["physical_to_logical_map"]}
    assert slots == {896 + 32}, "every layer has its experts and the redundant ones"
    assert all(set(layer) == set(range(896)) for layer in written["physical_to_logical_map"])
