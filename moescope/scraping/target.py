"""One page that is scraped: its engines, their recorders, and whether it answers."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector

from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.reporter import Exporter
from moescope.collector.scrape.follow import Follower, process_start
from moescope.collector.scrape.page import Page, parse_page
from moescope.collector.scrape.rows import EngineTable
from moescope.collector.scrape.tables import choose_table
from moescope.schemas.attributes import Component, Role
from moescope.schemas.errors import PageError
from moescope.schemas.identity import ProcessIdentity
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid
from moescope.scraping.fetch import Address, Body, fetch

logger = logging.getLogger("moescope")

_LONGEST_PAUSE_SECONDS: Final = 60.0
_LEAST_SECONDS_BETWEEN_DATES: Final = 2.0
_UNKNOWN_SERVICE: Final = "moescope"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapePlan:
    """What holds for every page.

    ``tensor_parallel`` is how many EP ranks one engine of a page has, where the page does not say its ranks.
    """

    settings: Settings
    interval_seconds: float
    timeout_seconds: float
    engine: str = ""
    service: str = ""
    role: Role = Role.MIXED
    tensor_parallel: int = 1


@dataclass(slots=True)
class _Engine:
    recorder: ProcessRecorder
    follower: Follower


@dataclass(slots=True)
class Target:
    """One page.

    Args:
        address: where it is.
        plan: what holds for every page.
        make_exporter: where the windows of an identity go.
    """

    address: Address
    plan: ScrapePlan
    make_exporter: Callable[[ProcessIdentity], Exporter]
    start_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    failures: int = 0
    _engines: dict[str, _Engine] = field(default_factory=dict)
    _last_reason: str = ""
    _down_since: float = 0.0
    _process_start: float | None = None
    _last_date: str = ""
    _last_date_at: float = 0.0

    @property
    def is_up(self) -> bool:
        """Whether the last scrape brought a page."""
        return not self.failures

    def pause_seconds(self, now_seconds: float) -> float:
        """How long to wait: to the next multiple of the interval, and longer where nobody answers."""
        interval = self.plan.interval_seconds
        longest = max(_LONGEST_PAUSE_SECONDS, interval)
        extra = min(interval * 2 ** (self.failures - 1), longest) - interval if self.failures else 0.0
        return interval - now_seconds % interval + extra

    def scrape(self) -> None:
        """Read the page once and report what it says. Never raises for what the page or its server does."""
        try:
            self._take(self._read())
        except PageError as error:
            self._note_failure(error)

    def close(self) -> bool:
        """Hand over what is left; False where it was not acknowledged in time."""
        closed = [engine.recorder.close() for engine in self._engines.values()]  # each one, come what may
        return all(closed)

    def _read(self) -> Page:
        body = fetch(self.address, self.plan.timeout_seconds)
        self._refuse_cached(body)
        return parse_page(body.text, body.content_type)

    def _take(self, page: Page) -> None:
        table = choose_table(page, self.plan.engine)
        start = process_start(page)
        has_restarted = self._process_start is not None and start not in {None, self._process_start}
        self._process_start = start
        parts = table.engines(page)
        is_new = bool(self._engines)
        for index, part in parts.items():
            if index not in self._engines:
                self._engines[index] = self._open(table, index, parts, is_new=is_new)
            self._engines[index].follower.follow(part, has_restarted=has_restarted)
        self._note_answer(table)
        for index in parts:
            # A window for each page that came, and none for one that did not: so it falls silent.
            self._engines[index].recorder.flush(self.plan.timeout_seconds / len(parts))

    def _open(self, table: EngineTable, index: str, parts: dict[str, Page], *, is_new: bool) -> _Engine:
        identity = identify(self.address, self.plan, table, parts, index, start_id=self.start_id)
        recorder = ProcessRecorder(identity, self.make_exporter, self.plan.settings)
        return _Engine(recorder, Follower(table, recorder, is_new=is_new))

    def _refuse_cached(self, body: Body) -> None:
        now = time.monotonic()
        if body.date and body.date == self._last_date:
            if now - self._last_date_at >= _LEAST_SECONDS_BETWEEN_DATES:
                raise PageError(
                    "stale", f"the same page again, made {body.date}; something between caches it"
                )
        else:
            self._last_date, self._last_date_at = body.date, now

    def _note_failure(self, error: PageError) -> None:
        self.failures += 1
        if self.failures == 1:
            self._down_since = time.monotonic()
        if error.reason != self._last_reason:
            logger.warning("moescope: %s: %s; trying on", self.address.url, error)
        self._last_reason = error.reason

    def _note_answer(self, table: EngineTable) -> None:
        if self.failures:
            logger.info(
                "moescope: %s answers again after %.0f s",
                self.address.url,
                time.monotonic() - self._down_since,
            )
        elif not self._last_reason:
            logger.info("moescope: %s: reading %s", self.address.url, table.engine)
        self.failures, self._last_reason = 0, "up"


def identify(
    address: Address,
    plan: ScrapePlan,
    table: EngineTable,
    parts: dict[str, Page],
    index: str,
    *,
    start_id: str,
) -> ProcessIdentity:
    """Say who an engine of a page is. The same for as long as the scraper runs."""
    ranks = {name: _first_rank(table, name, part, plan.tensor_parallel) for name, part in parts.items()}
    model = _model(table, parts[index]) or next(filter(None, (_model(table, p) for p in parts.values())), "")
    roles = parts[index].values_of(table.role_label) & set(Role)
    return ProcessIdentity(
        plan.service or model or _UNKNOWN_SERVICE,
        Component.SCRAPER,
        model=model,
        grid=RankGrid(plan.settings.ep_group, ranks[index], max(ranks.values()) + plan.tensor_parallel),
        engine=table.engine,
        role=Role(roles.pop()) if len(roles) == 1 else plan.role,
        instance=":".join(filter(None, ("scrape", address.place, index, start_id))),
        host=address.host,
    )


def service_of_environment() -> str:
    """The deployment that ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` names."""
    detected = OTELResourceDetector().detect().attributes.get("service.name")
    return os.environ.get("OTEL_SERVICE_NAME") or str(detected or "")


def _first_rank(table: EngineTable, index: str, page: Page, tensor_parallel: int) -> int:
    said = table.rank_of(page)
    if said is not None:
        return said
    return int(index) * tensor_parallel if index.isdigit() else 0


def _model(table: EngineTable, page: Page) -> str:
    models = {table.model_of(sample) for group in page.samples.values() for sample in group} - {""}
    return models.pop() if len(models) == 1 else ""
