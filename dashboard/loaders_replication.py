"""The load that a plan is made of, cached, and plans that are made of it in the background."""

from __future__ import annotations

from typing import Final

import streamlit as st

from moescope.dashboard import loaders
from moescope.dashboard.plan_jobs import PlanJob, shared_jobs
from moescope.planning.files import make_files
from moescope.planning.load import PlanLoad
from moescope.planning.question import PlanQuestion, StoredGroup, read_load_of
from moescope.schemas.settings import Settings

_FRESH_SECONDS: Final = 300
"""A plan is for hours; reading its windows takes seconds for a large model."""

_FEW: Final = 6
"""Six windows of K3 are 4 MB, and a placement on 64 ranks is 10."""


def load_plan_load(group: StoredGroup) -> PlanLoad:
    """What a plan of a group is made of.

    Raises:
        UsageError: nothing of it is stored.
        StoreError: the store cannot answer.
    """
    return _load_plan_load(loaders.get_settings(), group)


@st.cache_resource(ttl=_FRESH_SECONDS, max_entries=_FEW, show_spinner=False)
def _load_plan_load(settings: Settings, group: StoredGroup) -> PlanLoad:
    return read_load_of(loaders.open_shared(settings.dsn), settings, group)


def start_plan(question: PlanQuestion, load: PlanLoad) -> None:
    """Make a plan in the background, unless it is there already.

    Raises:
        UsageError: options that exclude each other.
    """
    request = question.request()
    shared_jobs().start(
        (loaders.get_settings(), question), lambda progress: make_files(load, request, progress)
    )


def find_plan(question: PlanQuestion) -> PlanJob | None:
    """A plan that was asked for; None if nobody did, or it is forgotten."""
    return shared_jobs().find((loaders.get_settings(), question))
