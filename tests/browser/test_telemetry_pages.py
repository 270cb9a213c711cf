"""What the pages of latency, traffic, memory and health say in a real browser, on a simulated fleet."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.looks import CLIPPED, LOOKS, assert_readable

pytestmark = pytest.mark.browser

RANKS = 16


def _plots(page, *keys):
    """Wait until these figures are drawn."""
    for key in keys:
        page.locator(f".st-key-{key} .js-plotly-plot .main-svg").first.wait_for()


def _values(page, key, field):
    """One field of every trace of a figure."""
    return page.evaluate(
        f"document.querySelector('.st-key-{key} .js-plotly-plot').data.map((one) => one.{field} || '')"
    )


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_latency_says_what_requests_wait_for(open_page, save_screenshot, scheme, width):
    page = open_page("latency", scheme=scheme, width=width)
    _plots(page, "request_latency", "inside", "request_load")
    for label in ("TTFT, p50", "TPOT, p50", "ITL, p50", "Queue, p50", "End to end, p50", "Good requests"):
        expect(page.get_by_text(label, exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile("The latency contract: first token within 2 s"))).to_be_visible()
    assert _values(page, "request_latency", "name").count("p99") == 5
    save_screenshot(page, f"latency-{scheme}-{width}")
    assert_readable(page)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_traffic_shows_every_pair_and_the_slow_rank(open_page, save_screenshot, scheme, width):
    page = open_page("traffic", scheme=scheme, width=width)
    _plots(page, "traffic_matrix", "wait_matrix")
    expect(page.get_by_text(f"by {RANKS} ranks")).to_be_visible()
    expect(page.get_by_text("Assignments a token")).to_be_visible()
    awaited = page.evaluate(
        """document.querySelector('.st-key-wait_matrix .js-plotly-plot').data
        .filter((one) => one.type === 'bar')
        .map((one) => Array.from(one.y)).map((sums) => sums.indexOf(Math.max(...sums)))"""
    )
    assert len(awaited) == 2
    assert len(set(awaited)) == 1, "dispatch and combine wait for the same rank"
    save_screenshot(page, f"traffic-{scheme}-{width}")
    assert_readable(page)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_memory_keeps_six_pools_and_two_caches_apart(open_page, save_screenshot, scheme, width):
    page = open_page("memory", scheme=scheme, width=width)
    _plots(page, "pools", "pool_history", "occupancy", "cache_history", "prefix_cache")
    pools = ["weights", "runtime", "KDA state", "MLA KV cache", "replication", "transfer"]
    assert _values(page, "pools", "name")[:6] == pools
    expect(page.get_by_text(re.compile(r"Fullest: .* of rank \d+"))).to_be_visible()
    expect(page.get_by_text(re.compile("prompt tokens were found"))).to_be_visible()
    save_screenshot(page, f"memory-{scheme}-{width}")
    assert_readable(page)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_health_lists_every_process(open_page, save_screenshot, scheme, width):
    page = open_page("health", scheme=scheme, width=width)
    _plots(page, "tokens", "gpus")
    expect(page.get_by_text(f"of {RANKS}")).to_be_visible()
    expect(page.get_by_role("heading", name="Processes")).to_be_visible()
    expect(page.get_by_text(re.compile("of all rows are no part of the load"))).to_be_visible()
    save_screenshot(page, f"health-{scheme}-{width}")
    assert_readable(page)


def test_choices_of_traffic_stand_in_the_address(open_page):
    page = open_page("traffic")
    page.get_by_role("radio", name="assignments").click()
    expect(page).to_have_url(re.compile("matrix=assignments"))
    page.get_by_role("radio", name="prefill").click()
    expect(page.get_by_role("heading", name="Between ranks, prefill")).to_be_visible()
    expect(page).to_have_url(re.compile("phase=prefill"))


def test_pointer_says_a_pair_in_a_sentence(open_page):
    page = open_page("traffic")
    _plots(page, "traffic_matrix")
    page.wait_for_timeout(1_000)
    area = page.locator(".st-key-traffic_matrix .nsewdrag").nth(1).bounding_box()
    page.mouse.move(area["x"] + area["width"] * 8.5 / RANKS, area["y"] + area["height"] * 0.5 / RANKS)
    expect(page.locator(".st-key-traffic_matrix .hoverlayer")).to_contain_text(
        re.compile(r"Rank 0 sends .*B a second to rank 8")
    )


def test_window_survives_the_way_from_page_to_page(open_page):
    page = open_page("latency")
    page.get_by_role("radio", name="5m", exact=True).click()
    expect(page).to_have_url(re.compile("window=5m"))
    page.get_by_role("link", name="Memory").first.click()
    _plots(page, "pools")
    expect(page).to_have_url(re.compile("/memory.*window=5m"))


def test_axis_title_of_the_imbalance_strip_is_whole(open_page):
    page = open_page("expert_load")
    page.locator(".st-key-expert_load_chart .heatmaplayer image").wait_for()
    page.wait_for_timeout(500)
    assert page.evaluate(CLIPPED) == []


def test_link_to_a_page_has_the_frame_on_a_fresh_dashboard(open_page):
    page = open_page("health")
    for name in ("Overview", "Experts", "Latency", "Traffic", "Memory", "Health"):
        expect(page.get_by_role("link", name=name).first).to_be_visible()


def test_click_on_a_bar_loses_its_rank(open_page):
    page = open_page("failover", ready=".st-key-losses .bars .point path")
    _plots(page, "losses", "survivors")
    # Bars of ranks stand before those of nodes: what is lost, in rank order.
    bar = page.locator(".st-key-losses .bars .point path").nth(3).bounding_box()
    page.mouse.click(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
    expect(page).to_have_url(re.compile(r"[?&]rank=3(&|$)"))
    expect(page.get_by_role("heading", name="What happens when rank 3 fails?")).to_be_visible()


def test_click_on_a_cell_looks_at_its_rank(open_page):
    page = open_page("ranks", ready=".st-key-rank_work .heatmaplayer image")
    area = page.locator(".st-key-rank_work .heatmaplayer image").bounding_box()
    page.wait_for_timeout(1_000)  # the listener looks for its chart four times a second
    page.mouse.click(area["x"] + area["width"] * 3.5 / RANKS, area["y"] + area["height"] / 2)
    expect(page).to_have_url(re.compile(r"[?&]rank=3(&|$)"))


def test_figures_follow_a_change_of_colours_while_the_page_is_open(open_page):
    page = open_page("latency", scheme="light")
    _plots(page, "request_latency", "request_load")
    page.get_by_text("Live", exact=True).click()
    expect(page).to_have_url(re.compile(r"[?&]until=\d+"))
    page.emulate_media(color_scheme="dark")
    plots = page.locator(".js-plotly-plot .main-svg:first-child")
    for plot in plots.all():
        expect(plot).to_have_css("background-color", "rgb(17, 22, 28)")
