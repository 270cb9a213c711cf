"""Scraping over real HTTP, into an exporter that keeps its windows."""

import logging
import time
from pathlib import Path

import numpy as np
import pytest

from moescope.schemas import metrics as m
from moescope.schemas.attributes import Component, Role
from moescope.schemas.records import Attempt, Distribution, Window
from moescope.schemas.settings import load_settings
from moescope.scraping.fetch import parse_address
from moescope.scraping.target import ScrapePlan, Target
from tests.page_server import PageServer

PAGES = Path(__file__).parent.parent / "collector" / "scrape" / "pages"
BEFORE = (PAGES / "vllm_0.32_before.prom").read_text()
AFTER = (PAGES / "vllm_0.32_after.prom").read_text()


class InMemoryExporter:
    """Keeps what it is given; away while ``is_away``."""

    def __init__(self, identity) -> None:
        self.identity = identity
        self.windows: list[Window] = []
        self.is_away = False
        self._frozen: Window | None = None

    @property
    def pending_bytes(self) -> int:
        return 13 if self._frozen else 0

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        self._frozen = window
        return self.retry(timeout_seconds)

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        if self.is_away:
            return Attempt(delivered=False, reason="away")
        self.windows.append(self._frozen)
        self._frozen = None
        return Attempt(delivered=True)

    def close(self) -> None:
        pass

    def sum(self, metric: m.Metric, **attributes: str) -> float:
        """Of a counter, or the number of observations, over all windows."""
        found = [
            record
            for window in self.windows
            for record in window.records
            if record.metric is metric and set(attributes.values()) <= set(record.attributes.values())
        ]
        return sum(int(np.sum(r.bucket_counts)) if isinstance(r, Distribution) else r.value for r in found)


@pytest.fixture
def scraper(page_server: PageServer):
    exporters: list[InMemoryExporter] = []

    def make(identity):
        exporters.append(InMemoryExporter(identity))
        return exporters[-1]

    plan = ScrapePlan(settings=load_settings({}), interval_seconds=10, timeout_seconds=2)
    made = Target(parse_address(page_server.url), plan, make)
    yield made, exporters
    made.close()


def test_the_difference_of_two_pages_is_reported_once(scraper, page_server: PageServer):
    target, exporters = scraper
    for body in (BEFORE, AFTER, AFTER):
        page_server.body = body
        target.scrape()

    [exporter] = exporters
    assert exporter.sum(m.TOKENS, phase="prefill") == 149
    assert exporter.sum(m.TOKENS, phase="decode") == 19
    assert exporter.sum(m.TIME_PER_OUTPUT_TOKEN) == 3
    assert len(exporter.windows) == 3


def test_who_reports_is_a_scraper_of_that_engine_on_that_host(scraper, page_server: PageServer):
    target, exporters = scraper
    page_server.body = BEFORE
    target.scrape()

    who = exporters[0].identity
    assert (who.service, who.component, who.engine, who.host) == (
        "tiny",
        Component.SCRAPER,
        "vllm",
        "127.0.0.1",
    )
    assert who.instance.startswith(f"scrape:127.0.0.1:{page_server.port}:0:")
    assert who.role is Role.MIXED


def test_each_engine_of_a_page_is_an_instance_with_its_rank(scraper, page_server: PageServer):
    target, exporters = scraper
    page_server.body = (PAGES / "sglang_0.5.23_after.prom").read_text()
    target.scrape()

    places = [(e.identity.grid.ep_rank, e.identity.grid.ep_size) for e in exporters]
    assert places == [(0, 2), (0, 2), (1, 2)]
    assert len({e.identity.instance for e in exporters}) == 3


def test_a_page_that_is_away_sends_no_window_and_loses_nothing(scraper, page_server: PageServer, caplog):
    caplog.set_level(logging.INFO)
    target, exporters = scraper
    page_server.body = BEFORE
    target.scrape()
    page_server.status = 503
    for _ in range(3):
        target.scrape()
    windows_while_away = len(exporters[0].windows)
    page_server.status, page_server.body = 200, AFTER
    target.scrape()

    assert windows_while_away == 1
    assert exporters[0].sum(m.TOKENS, phase="prefill") == 149
    first, second = exporters[0].windows
    assert second.start_ns == first.end_ns
    said = [message for message in caplog.messages if page_server.url in message]
    assert len(said) == 3, said
    assert "HTTP 503" in said[1]
    assert "answers again" in said[2]


def test_failures_make_it_wait_longer_up_to_a_minute(scraper, page_server: PageServer):
    target, _ = scraper
    page_server.status = 401
    pauses = []
    for _ in range(6):
        target.scrape()
        pauses.append(target.pause_seconds(now_seconds=0.0))

    assert pauses == [10, 20, 40, 60, 60, 60]
    assert not target.is_up
    page_server.status, page_server.body = 200, BEFORE
    target.scrape()
    assert target.pause_seconds(now_seconds=7.0) == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [("<html>", "no Prometheus page"), ("node_load1 1\n", "no metric of vLLM"), ("", "no metrics on it")],
)
def test_a_page_that_is_none_is_said_once(scraper, page_server: PageServer, caplog, body: str, words: str):
    target, exporters = scraper
    page_server.body = body
    for _ in range(3):
        target.scrape()

    [said] = caplog.messages
    assert words in said
    assert exporters == []


def test_a_page_out_of_a_cache_is_not_taken_for_news(scraper, page_server: PageServer, caplog):
    target, exporters = scraper
    page_server.body, page_server.date = BEFORE, "Sun, 29 Nov 2026 16:16:35 GMT"
    target.scrape()
    target._last_date_at -= 5  # five seconds later
    target.scrape()

    [said] = caplog.messages
    assert "something between caches it" in said
    assert len(exporters[0].windows) == 1


def test_an_endpoint_that_is_away_costs_no_count(scraper, page_server: PageServer):
    target, exporters = scraper
    page_server.body = BEFORE
    target.scrape()
    exporters[0].is_away = True
    object.__setattr__(target.plan, "timeout_seconds", 0.2)
    page_server.body = AFTER
    target.scrape()
    target.scrape()
    exporters[0].is_away = False
    started = time.monotonic()
    while exporters[0].sum(m.TOKENS, phase="prefill") != 149 and time.monotonic() - started < 20:
        target.scrape()

    assert exporters[0].sum(m.TOKENS, phase="prefill") == 149


def test_a_restart_within_one_interval_is_seen_by_the_process_start(scraper, page_server: PageServer):
    target, exporters = scraper
    page = 'vllm:prefix_cache_hits_total{{engine="0"}} {}\nprocess_start_time_seconds {}\n'
    for hits, start in ((13, 1000), (79, 2000)):
        page_server.body = page.format(hits, start)
        target.scrape()

    assert exporters[0].sum(m.PREFIX_CACHE_TOKENS) == 79
