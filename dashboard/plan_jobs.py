"""Plans that are being made: in a thread each, one at a time, watched by whoever asked.

A plan of a large model takes seconds to minutes. Nobody's page waits for it, and who asks for the same plan
gets the same one. A cancelled plan ends with the next thing that it tells of its progress.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import streamlit as st

from moescope.planning.files import PlannedFiles
from moescope.planning.make import Progress
from moescope.planning.question import PlanQuestion
from moescope.schemas.errors import MoescopeError
from moescope.schemas.settings import Settings

logger = logging.getLogger("moescope")

_MOST_KEPT: Final = 8
"""Plans that are kept: about 10 MB each for K3 on 64 ranks."""

Work = Callable[[Progress], PlannedFiles]
JobKey = tuple[Settings, PlanQuestion]


class JobState(StrEnum):
    """Where a plan stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class _CancelledError(Exception):
    """Somebody cancelled the plan."""


class PlanJob:
    """One plan. Its attributes are written by its own thread and read by pages.

    Attributes:
        state: where it stands.
        doing: what is being done, as the planner names it.
        done, total: how much of that.
        files: the plan, once it is done.
        error: a sentence, where it failed.
    """

    def __init__(self) -> None:
        self.state = JobState.WAITING
        self.doing = ""
        self.done = 0
        self.total: int | None = None
        self.files: PlannedFiles | None = None
        self.error = ""
        self._is_cancelled = threading.Event()
        self._has_ended = threading.Event()

    @property
    def is_under_way(self) -> bool:
        """Whether its state will change."""
        return self.state in {JobState.WAITING, JobState.RUNNING}

    @property
    def share(self) -> float:
        """How much of what is being done is done, from 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0

    def cancel(self) -> None:
        """End it as soon as it tells of its progress."""
        self._is_cancelled.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended; False if it has not by then."""
        return self._has_ended.wait(seconds)

    def run(self, work: Work) -> None:
        """Do the work and keep what came of it."""
        try:
            self._check()
            self.state = JobState.RUNNING
            self.files = work(self._tell)
            self.state = JobState.DONE
        except _CancelledError:
            self.state = JobState.CANCELLED
        except MoescopeError as error:
            self.error, self.state = str(error), JobState.FAILED
        except Exception:
            logger.exception("a plan could not be made")
            self.error, self.state = "an unforeseen error, which the dashboard has logged", JobState.FAILED
        finally:
            self._has_ended.set()

    def _tell(self, what: str, done: int, total: int | None) -> None:
        self._check()
        self.doing, self.done, self.total = what, done, total

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise _CancelledError


class PlanJobs:
    """The plans of everybody who looks; those that nobody asked for lately are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._jobs: OrderedDict[JobKey, PlanJob] = OrderedDict()

    def find(self, key: JobKey) -> PlanJob | None:
        """The plan that was asked for so; None if nobody did, or it is forgotten."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None:
                self._jobs.move_to_end(key)
            return job

    def start(self, key: JobKey, work: Work) -> PlanJob:
        """Make a plan, unless it is there or on its way."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and (job.is_under_way or job.state is JobState.DONE):
                return job
            job = self._jobs[key] = PlanJob()
            self._jobs.move_to_end(key)
            while len(self._jobs) > _MOST_KEPT:
                self._jobs.popitem(last=False)[1].cancel()
        threading.Thread(target=self._run, args=(job, work), name="moescope-plan", daemon=True).start()
        return job

    def cancel_all(self) -> None:
        """End every plan."""
        with self._lock:
            for job in self._jobs.values():
                job.cancel()

    def _run(self, job: PlanJob, work: Work) -> None:
        with self._turn:
            job.run(work)


@st.cache_resource(show_spinner=False, on_release=PlanJobs.cancel_all)
def shared_jobs() -> PlanJobs:
    """The plans of this dashboard, whoever asked for them."""
    return PlanJobs()
