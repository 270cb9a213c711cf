"""A real server, a simulated K3 fleet, the dashboard, and a real browser on it."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

import moescope.dashboard
from tests.server_process import ServerProcess, free_ports

APP = Path(moescope.dashboard.__file__).parent / "app.py"
CHROMIUM = "/usr/bin/chromium"
# No setting of moescope, so it must not reach the processes that the tests start.
ARTIFACTS = Path(os.environ.pop("MOESCOPE_ARTIFACTS", "artifacts")).absolute()
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
# Debian's build would otherwise look for updates and accounts.
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _wait_for(url, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the dashboard ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer within 60 s")


@pytest.fixture(scope="session")
def fleet_store(tmp_path_factory):
    """A server that holds nine minutes of a K3 fleet with one hot expert and one slow rank."""
    server = ServerProcess(tmp_path_factory.mktemp("server") / "data").start()
    try:
        subprocess.run(
            [
                *(sys.executable, "-m", "moescope", "simulate", "--model", "kimi-k3", "--ranks", "16"),
                *("--tensor-parallel", "8", "--scenario", "hot-expert,slow-rank", "--seed", "7"),
                *("--backfill", "9m", "--duration", "10s", "--endpoint", server.endpoint),
            ],
            check=True,
            timeout=300,
        )
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def _run_dashboard(dsn, *options, port=None, **settings):
    port = port or free_ports(1)[0]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "streamlit", "run", str(APP), f"--server.port={port}"),
            *("--server.address=127.0.0.1", "--server.headless=true", *options),
        ],
        env={**os.environ, "MOESCOPE_DSN": dsn, **settings},
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def dashboard_url(fleet_store):
    """The address of a running dashboard."""
    with _run_dashboard(fleet_store.dsn) as url:
        yield url


@pytest.fixture(scope="session")
def run_dashboard():
    """Run a dashboard on another store, or with other settings, as a context whose value is its address."""
    return _run_dashboard


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, dashboard_url):
    """Open an address in a fresh profile; console errors of the page fail the test."""
    contexts = []

    def visit(path="", *, scheme="light", width=1280, height=1000, ready=".js-plotly-plot .main-svg"):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="Europe/Berlin"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{dashboard_url}/{path}")
        page.locator(ready).first.wait_for()
        return page

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def save_screenshot():
    """Save the whole page as ``artifacts/screenshots/<name>.png``."""
    folder = ARTIFACTS / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)

    def save(page, name):
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": page.viewport_size["width"], "height": height + 16})
        page.wait_for_timeout(1_000)
        page.screenshot(path=folder / f"{name}.png")

    return save
