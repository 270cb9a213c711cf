"""What the two pages say and do in a real browser. The simulator plants expert 347 of layer 40."""

import contextlib
import re

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

CHART = ".st-key-expert_load_chart"
HEATMAP = f"{CHART} .heatmaplayer image"
FAR_FROM_RINGS = f"""() => {{
    const rings = document.querySelector('{CHART} .js-plotly-plot').data
        .filter((trace) => (trace.name || '').endsWith('hot expert'))
        .flatMap((trace) => Array.from(trace.y, (layer, i) => [layer, trace.x[i]]));
    for (let layer = 20; layer < 72; layer += 1)
        for (let expert = 100; expert < 800; expert += 13)
            if (rings.every(([y, x]) => Math.abs(y - layer) > 6 || Math.abs(x - expert) > 40))
                return [layer, expert];
}}"""
LOOKS = [("light", 1280), ("dark", 1280), ("light", 2560), ("dark", 2560)]


def _plot_area(page):
    return page.locator(f"{CHART} .nsewdrag").first.bounding_box()


def _click_cell(page, layer, expert):
    """Click the middle of a cell of the 92 × 896 heatmap, layer 1 on top."""
    area = _plot_area(page)
    x = area["x"] + area["width"] * (expert + 0.5) / 896
    y = area["y"] + area["height"] * (layer - 0.5) / 92
    page.mouse.move(x, y)
    page.mouse.click(x, y)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_overview_names_the_planted_expert(open_page, save_screenshot, scheme, width):
    page = open_page(scheme=scheme, width=width)
    for phase in ("prefill", "decode"):
        expect(page.get_by_text(re.compile(rf"Layer 40, {phase}: .*expert 347\b"))).to_be_visible()
    expect(page.get_by_text("Counts add up")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\(\d\d:\d\d:\d\d UTC( \d\d \w+)?\)"))).to_be_visible()
    save_screenshot(page, f"overview-{scheme}-{width}")


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_expert_load_rings_the_planted_expert(open_page, save_screenshot, scheme, width):
    page = open_page("expert_load", scheme=scheme, width=width)
    page.locator(HEATMAP).wait_for()
    rings = page.evaluate(
        f"""document.querySelector('{CHART} .js-plotly-plot').data
        .filter((trace) => trace.name === 'harmful hot expert')
        .flatMap((trace) => trace.y.map((layer, i) => `${{layer}}/${{trace.x[i]}}`))"""
    )
    assert "40/347" in rings
    expect(page.get_by_role("heading", name="Expert 347 of layer 40")).to_be_visible()
    page.locator(".st-key-expert_history .scatterlayer path").first.wait_for(state="attached")
    save_screenshot(page, f"expert-load-{scheme}-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_browsers_theme(open_page, scheme):
    page = open_page(scheme=scheme)
    color = page.locator(".stApp").evaluate("element => getComputedStyle(element).backgroundColor")
    brightness = max(int(part) for part in re.findall(r"\d+", color)[:3])
    assert (brightness > 200) == (scheme == "light")


def test_evidence_leads_from_the_sentence_to_the_experts_history(open_page):
    page = open_page()
    page.get_by_role("link", name="Evidence: Experts").first.click()
    expect(page.get_by_role("heading", name="Expert 347 of layer 40")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/expert_load\?.*layer=40&expert=347"))


def test_click_on_a_cell_opens_its_experts_history(open_page):
    page = open_page("expert_load")
    page.locator(HEATMAP).wait_for()
    page.wait_for_timeout(1_000)
    _click_cell(page, layer=13, expert=79)
    heading = page.get_by_role("heading", name=re.compile(r"Expert \d+ of layer 13"))
    expect(heading).to_be_visible()
    expert = int(re.search(r"Expert (\d+)", heading.inner_text())[1])
    assert abs(expert - 79) <= 1
    expect(page).to_have_url(re.compile(rf"layer=13&expert={expert}"))


def test_deep_link_opens_the_same_thing(open_page):
    page = open_page("expert_load?layer=23&expert=13&phase=prefill&window=5m")
    expect(page.get_by_role("heading", name="Expert 13 of layer 23")).to_be_visible()
    expect(page.get_by_role("radio", name="prefill")).to_be_checked()
    expect(page.get_by_role("radio", name="5m", exact=True)).to_be_checked()


def test_first_page_is_found_under_its_name_too(open_page):
    page = open_page("overview?window=15m")
    expect(page.get_by_text("Counts add up")).to_be_visible()
    expect(page.get_by_role("radio", name="15m", exact=True)).to_be_checked()
    expect(page).to_have_url(re.compile(r"\d/\?window=15m$"))
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_step_back_does_not_end_at_the_name_of_the_first_page(open_page, dashboard_url):
    page = open_page("memory?window=15m")
    page.goto(f"{dashboard_url}/overview?window=15m")
    expect(page).to_have_url(f"{dashboard_url}/?window=15m")
    page.get_by_text("Counts add up").wait_for()
    for _ in range(2):
        # A browser that was led on before it had loaded everything needs a second step.
        page.go_back()
        with contextlib.suppress(PlaywrightTimeoutError):
            page.wait_for_url("**/memory**", timeout=8_000)
            break
    expect(page).to_have_url(re.compile(r"/memory\?window=15m"))


def test_choices_survive_the_way_to_the_other_page_and_back(open_page):
    page = open_page("expert_load?layer=23&expert=13")
    page.get_by_role("radio", name="1h").click()
    expect(page).to_have_url(re.compile("window=1h"))
    page.get_by_role("link", name="Overview").first.click()
    page.get_by_text("Counts add up").wait_for()
    expect(page).to_have_url(re.compile("window=1h"))
    page.get_by_role("link", name="Experts").first.click()
    expect(page.get_by_role("heading", name="Expert 13 of layer 23")).to_be_visible()
    expect(page).to_have_url(re.compile("window=1h"))


def test_link_of_the_navigation_opens_the_same_thing_in_a_new_tab(open_page):
    page = open_page("memory?phase=prefill&window=5m&layer=23&expert=13")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Experts").first.click(modifiers=["Control"])
    expect(opened.value).to_have_url(re.compile(r"/expert_load\?.*phase=prefill.*layer=23&expert=13"))


def test_one_step_back_leaves_the_page(open_page):
    page = open_page("expert_load?layer=23&expert=13&window=5m")
    page.get_by_role("link", name="Memory").first.click()
    expect(page).to_have_url(re.compile(r"/memory\?.*layer=23&expert=13"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"/expert_load\?(?=.*window=5m).*layer=23&expert=13"))


def test_holding_the_page_still_puts_its_end_into_the_address(open_page):
    page = open_page("expert_load")
    page.get_by_text("Live", exact=True).click()
    expect(page).to_have_url(re.compile(r"until=\d{13}"))


def test_zoom_outlives_a_refresh_and_a_double_click_ends_it(open_page):
    page = open_page("expert_load")
    page.locator(HEATMAP).wait_for()
    page.wait_for_timeout(1_000)
    area = _plot_area(page)
    page.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + 0.3 * area["height"])
    page.mouse.down()
    page.mouse.move(area["x"] + 0.5 * area["width"], area["y"] + 0.6 * area["height"], steps=5)
    page.mouse.up()
    shown = f"() => document.querySelector('{CHART} .js-plotly-plot').layout.xaxis.range"
    page.wait_for_timeout(13_000)
    low, high = page.evaluate(shown)
    assert 240 < low < 300
    assert 420 < high < 480
    whole = f"() => String(({shown})()) === '-0.5,895.5'"
    for _ in range(4):
        # Between the two clicks a refresh may have drawn the chart anew; a person clicks again then.
        page.mouse.dblclick(area["x"] + 0.4 * area["width"], area["y"] + 0.4 * area["height"])
        with contextlib.suppress(PlaywrightTimeoutError):
            page.wait_for_function(whole, timeout=8_000)
            break
    page.wait_for_timeout(13_000)
    assert page.evaluate(shown) == [-0.5, 895.5], "nor does a refresh bring the zoom back"


def test_pointer_says_a_cell_in_a_sentence(open_page):
    page = open_page("expert_load")
    page.locator(HEATMAP).wait_for()
    page.wait_for_timeout(1_000)
    area = _plot_area(page)
    layer, expert = page.evaluate(FAR_FROM_RINGS)
    x = area["x"] + area["width"] * (expert + 0.5) / 896
    page.mouse.move(x, area["y"] + area["height"] * (layer - 0.5) / 92)
    expect(page.locator(f"{CHART} .hoverlayer")).to_contain_text(
        re.compile(rf"Layer {layer}, expert \d+: [\d,]+ % of the layer's median")
    )


def test_page_asks_nobody_but_its_own_server(chromium, dashboard_url):
    context = chromium.new_context()
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{dashboard_url}/expert_load")
    page.locator(HEATMAP).wait_for(timeout=60_000)
    page.wait_for_timeout(1_000)
    context.close()
    own = ("data:", "blob:", dashboard_url, dashboard_url.replace("http", "ws"))
    assert [url for url in asked if not url.startswith(own)] == []
