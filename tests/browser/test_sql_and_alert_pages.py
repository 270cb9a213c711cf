"""What people type is answered, refused or cancelled, and who evaluates no rules is told so."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
EDITOR = "[data-testid=stTextArea] textarea"
ENDLESS = "SELECT count() FROM numbers(790000000000) WHERE cityHash64(number) % 13 = 0"
TOP = (
    "SELECT layer, expert, sum(activations) AS activations FROM expert_activations_per_minute "
    "GROUP BY layer, expert ORDER BY activations DESC LIMIT 13"
)


def link(sql):
    return f"sql?q={quote(sql)}"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 2560)])
def test_link_runs_when_it_is_told_to_and_its_chart_names_the_planted_expert(
    open_page, save_screenshot, scheme, width
):
    page = open_page(link(TOP), scheme=scheme, width=width, ready=EDITOR)
    expect(page.get_by_text("rows read")).to_have_count(0)
    page.locator(EDITOR).press("Control+Enter")
    expect(page.get_by_text("rows read")).to_be_visible()
    page.get_by_role("tab", name="Chart").click()
    expect(page.locator(".js-plotly-plot").get_by_text("layer 40, expert 347")).to_be_visible()
    save_screenshot(page, f"sql-{scheme}-{width}")


def test_write_is_refused(open_page):
    page = open_page(link("DROP TABLE expert_load"), ready=EDITOR)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="This page only reads")).to_be_visible()


def test_long_query_is_cancelled(open_page):
    page = open_page(link(ENDLESS), ready=EDITOR)
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Cancelled")).to_be_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 2560)])
def test_link_of_a_pager_opens_what_to_do(open_page, save_screenshot, scheme, width):
    page = open_page("alerts?runbook=RankSilent", scheme=scheme, width=width, ready="[data-testid=stCode]")
    expect(page.get_by_role("heading", name="RankSilent")).to_be_visible()
    expect(page.get_by_role("heading", name="Nobody watches")).to_be_visible()
    save_screenshot(page, f"alerts-{scheme}-{width}")
