"""A real login by OpenID Connect: nothing is shown or sent before it, and after it what was asked for."""

import json
import re
import secrets

import pytest
from playwright.sync_api import expect

from moescope.dashboard.login_way import MEMORY
from tests.browser.openid_provider import CLIENT, OpenIdProvider
from tests.server_process import free_ports

pytestmark = pytest.mark.browser

STORED = b"kimi-k3"
"""What only the store can have said."""
WAY_IN = ["Skip to main content", "moescope", "Expert-level telemetry. Log in to see it.", "Log in"]


@pytest.fixture(scope="module")
def provider():
    with OpenIdProvider() as made:
        yield made


@pytest.fixture(scope="module")
def guarded_url(fleet_store, run_dashboard, provider, tmp_path_factory):
    """The address of a dashboard that asks for a login. The first test is the first visitor of its life."""
    (port,) = free_ports(1)
    auth = {
        "redirect_uri": f"http://127.0.0.1:{port}/oauth2callback",
        "cookie_secret": secrets.token_urlsafe(),
        "client_id": CLIENT,
        "client_secret": provider.secret,
        "server_metadata_url": provider.metadata_url,
    }
    file = tmp_path_factory.mktemp("login") / "secrets.toml"
    file.write_text("\n".join(["[auth]", *(f"{name} = {json.dumps(value)}" for name, value in auth.items())]))
    options = (f"--secrets.files={file}",)
    with run_dashboard(fleet_store.dsn, *options, port=port, MOESCOPE_DASHBOARD_LOGIN="1") as url:
        yield url


@pytest.fixture
def visit(chromium, guarded_url):
    """Open an address as somebody whom nobody knows yet; ``page.sent`` is what the dashboard sent."""
    contexts = []

    def open_address(path="", *, scheme="light"):
        context = chromium.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 600})
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.sent = []
        page.on("websocket", lambda socket: socket.on("framereceived", _keep_in(page.sent)))
        page.goto(f"{guarded_url}/{path}")
        page.get_by_role("button", name="Log in").wait_for()
        return page

    yield open_address
    for context in contexts:
        context.close()


def _keep_in(frames):
    return lambda frame: frames.append(frame)  # noqa: PLW0108 - Playwright cannot call a list's method


def _log_in(page):
    page.get_by_role("button", name="Log in").click()


def _says(page):
    """The lines of the whole page; a symbol is drawn by a font, from its name."""
    lines = page.locator(".stApp").inner_text().splitlines()
    return [line for line in lines if line.strip() and line != "login"]


def _was_sent(page, text):
    return any(text in (frame if isinstance(frame, bytes) else frame.encode()) for frame in page.sent)


def _expect_overview(page, url):
    expect(page.get_by_text("Counts add up")).to_be_visible()
    expect(page).to_have_url(f"{url}/")


@pytest.mark.parametrize(
    ("way", "heading"),
    [
        ("expert_load?layer=23&expert=13&window=15m", "Expert 13 of layer 23"),
        ("alerts?runbook=RankSilent", "RankSilent"),
    ],
)
def test_login_leads_to_the_page_that_was_asked_for(visit, guarded_url, way, heading):
    page = visit(way)
    assert _says(page) == WAY_IN
    assert not _was_sent(page, STORED)
    _log_in(page)
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page).to_have_url(f"{guarded_url}/{way}")
    if way.startswith("expert_load"):
        assert _was_sent(page, STORED), "so its absence before meant something"
    page.goto(guarded_url)
    _expect_overview(page, guarded_url)


def test_login_at_the_base_opens_the_overview(visit, guarded_url):
    page = visit()
    _log_in(page)
    _expect_overview(page, guarded_url)


def test_login_under_the_name_of_the_first_page_opens_it_too(visit, guarded_url):
    page = visit("overview?window=15m")
    _log_in(page)
    expect(page.get_by_text("Counts add up")).to_be_visible()
    expect(page).to_have_url(f"{guarded_url}/?window=15m")


def test_login_that_failed_forgets_nothing(visit, provider, guarded_url):
    page = visit("memory?window=15m")
    provider.refuses = True
    try:
        _log_in(page)
        expect(page).to_have_url(f"{guarded_url}/")
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
    finally:
        provider.refuses = False
    _log_in(page)
    expect(page).to_have_url(re.compile(r"/memory\?window=15m$"))


def test_who_logs_out_is_shown_nothing(visit, guarded_url):
    page = visit("health")
    _log_in(page)
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{guarded_url}/")
    for path in ("", "/health"):
        page.goto(f"{guarded_url}{path}")
        page.get_by_role("button", name="Log in").wait_for()
        assert _says(page) == WAY_IN


@pytest.mark.parametrize(("minutes", "path"), [(9, "/health"), (11, "/")])
def test_way_is_forgotten_after_ten_minutes(visit, guarded_url, minutes, path):
    page = visit()
    _log_in(page)
    _expect_overview(page, guarded_url)
    page.evaluate(
        f"sessionStorage.setItem('{MEMORY}', "
        f"JSON.stringify({{ way: '/health', at: Date.now() - {minutes} * 60_000 }}))"
    )
    page.goto(guarded_url)
    page.wait_for_function(f"sessionStorage.getItem('{MEMORY}') === null")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    expect(page).to_have_url(f"{guarded_url}{path}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_way_in_follows_the_browsers_theme(visit, save_screenshot, scheme):
    page = visit("alerts?runbook=RankSilent", scheme=scheme)
    save_screenshot(page, f"login-{scheme}-1280")
