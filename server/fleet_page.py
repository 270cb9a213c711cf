"""The fleet on the server's Prometheus page: what came in, added up, and what the analysis says of it.

The counts are of this process: each stored request is added once. What the analysis says is computed in the
background and kept; a scrape waits for neither.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from moescope.exporters.prometheus import render_page
from moescope.exporters.prometheus_counts import PageCounts
from moescope.exporters.prometheus_judgement import contract_family, judged_families
from moescope.exporters.prometheus_state import FamilyState
from moescope.schemas.errors import MissingExtraError
from moescope.schemas.fleet import FleetJudgement, LookKind
from moescope.schemas.settings import Settings
from moescope.server.own_metrics import OwnMetrics
from moescope.server.page_windows import LeftOut, PageWindows

_LOG: Final = logging.getLogger(__name__)
_REMEMBERED_REQUESTS: Final = 65_536
"""Digests of requests that were added; a repetition comes within the client's time-out."""

_MIN_IDLE_PART: Final = 9.0
"""A judgement is followed by at least so many times its own duration without one."""

_STOP_SECONDS: Final = 2.0


class Judge(Protocol):
    """The analysis, as the composition root hands it in: this room does not know it."""

    def judge(self) -> FleetJudgement:
        """Say what is to be said of every EP group now."""

    def look_closer(self) -> LookKind | None:
        """Look closer at one EP group, for the judgements to come; None where no look is due."""

    def close(self) -> None:
        """Let go of the store."""


OpenJudge = Callable[[str], Judge]
"""Takes the DSN of the store that the server writes to. Called on the thread that judges.

Raises:
    MissingExtraError: the analysis is not installed; the page goes without it.
"""


class FleetPage:
    """The page of a fleet. Safe to use from several threads.

    Args:
        settings: the ``fleet_page_*`` settings.
        metrics: the server's own, which say how old and how complete the page is.
    """

    def __init__(self, settings: Settings, metrics: OwnMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.counts = PageCounts(
            max_series=settings.fleet_page_max_series,
            silent_after_seconds=settings.silent_after_seconds,
            forget_seconds=settings.fleet_page_forget_seconds,
        )
        self._added: OrderedDict[bytes, None] = OrderedDict()
        self._added_lock = threading.Lock()
        self._judgement = FleetJudgement()
        self._judged_at = time.monotonic()
        self._failing: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        metrics.watch_judgement(self._age_seconds)

    def add(self, digest: bytes, windows: PageWindows) -> None:
        """Add a stored request, unless it was added before: a client repeats what it got no answer to."""
        with self._added_lock:
            is_new = digest not in self._added
            self._added[digest] = None
            if len(self._added) > _REMEMBERED_REQUESTS:
                self._added.popitem(last=False)
        if not is_new:
            points = sum(len(window.records) for _, window in windows.windows)
            self._metrics.fleet_left_out.labels(LeftOut.REPEATED.value).inc(points)
            return
        no_room = sum(self.counts.add(source, window) for source, window in windows.windows)
        for reason, count in (windows.left_out + Counter({LeftOut.NO_ROOM: no_room})).items():
            self._metrics.fleet_left_out.labels(reason.value).inc(count)

    def render(self) -> bytes:
        """Return the page as it is now, in Prometheus's text format."""
        families = self._families()
        for one in self._judgement.look_ages:
            self._metrics.fleet_look_age.labels(one.kind.value).set(one.seconds + self._age_seconds())
        self._metrics.fleet_series.set(sum(family.num_series for family in families))
        return render_page(families)

    def start(self, open_judge: OpenJudge, dsn: str) -> None:
        """Begin to judge in the background."""
        self._thread = threading.Thread(
            target=self._run, args=(open_judge, dsn), name="moescope-fleet-page", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Judge no more. A query under way is left to the one who closes the store."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self, open_judge: OpenJudge, dsn: str) -> None:
        try:
            judge = open_judge(dsn)
        except MissingExtraError as error:
            _LOG.warning("/metrics says nothing of imbalance and hot experts: %s", error)
            return
        try:
            self._judge_and_look(judge)
        finally:
            judge.close()

    def _judge_and_look(self, judge: Judge) -> None:
        """Judge on a beat of its own; between two judgements take a closer look, if one is due."""
        interval = self._settings.fleet_page_interval_seconds
        judge_at = look_at = time.monotonic()
        while not self._stop.is_set():
            started = time.monotonic()
            if started >= judge_at:
                self._judge_once(judge)
                seconds = time.monotonic() - started
                self._metrics.fleet_judgement_seconds.set(seconds)
                judge_at = started + seconds + max(interval, _MIN_IDLE_PART * seconds)
            elif started >= look_at:
                has_looked = self._look_once(judge)
                seconds = time.monotonic() - started
                look_at = started + (1 + _MIN_IDLE_PART) * seconds if has_looked else judge_at
            self._stop.wait(max(min(judge_at, look_at) - time.monotonic(), 0))

    def _judge_once(self, judge: Judge) -> None:
        try:
            judgement = judge.judge()
        except Exception as error:
            self._note_failure(error, "judge", f"what the analysis said {self._age_seconds():.0f} s ago")
            return
        if "judge" in self._failing:
            _LOG.info("the Prometheus page has the analysis again")
        self._failing.discard("judge")
        self._judgement, self._judged_at = judgement, time.monotonic()
        self._metrics.fleet_groups_left_out.set(judgement.left_out)

    def _look_once(self, judge: Judge) -> bool:
        """Whether a look was due and could be taken."""
        started = time.monotonic()
        try:
            kind = judge.look_closer()
        except Exception as error:
            self._note_failure(error, "look", "what an earlier closer look found")
            return False
        if kind is None:
            return False
        self._failing.discard("look")
        self._metrics.fleet_look_seconds.labels(kind.value).set(time.monotonic() - started)
        return True

    def _note_failure(self, error: Exception, step: str, kept: str) -> None:
        """Count it; say it once for as long as it lasts."""
        if self._stop.is_set():
            return
        self._metrics.fleet_judgement_failures.inc()
        if step not in self._failing:
            _LOG.warning("the Prometheus page keeps %s: %s", kept, str(error) or type(error).__name__)
        self._failing.add(step)

    def _families(self) -> tuple[FamilyState, ...]:
        judgement = self._judgement
        if self._age_seconds() > self._settings.fleet_page_forget_seconds:
            judgement = FleetJudgement()
        settings = self._settings
        contract = contract_family(
            ttft_seconds=settings.contract_ttft_seconds, tpot_seconds=settings.contract_tpot_seconds
        )
        judged = judged_families(judgement, hot_experts=settings.fleet_page_hot_experts)
        return (*self.counts.snapshot(), contract, *judged)

    def _age_seconds(self) -> float:
        return time.monotonic() - self._judged_at
