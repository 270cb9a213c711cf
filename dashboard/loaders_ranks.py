"""Cached calls into analysis for the page of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from moescope.analysis.activated_experts import read_passes
from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.expert_load import LoadScope
from moescope.analysis.imbalance_answer import ImbalanceAnswer, answer_imbalance
from moescope.analysis.rank_load import RankLoadHistory, read_rank_load_history
from moescope.analysis.rank_steps import RankSteps, read_rank_steps
from moescope.analysis.span import Span
from moescope.analysis.straggler_report import StragglerAnswer, read_straggler_answer
from moescope.dashboard.loaders import FRESH_SECONDS, get_settings, open_shared
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings

_SLOWER_SECONDS: Final = 20
"""Nothing in the history of a window changes faster than its minutes."""

_MANY: Final = 32
_EVERY_RANK: Final = 1_000_000


def load_rank_stragglers(span: Span) -> StragglerAnswer:
    """What the ranks of one EP group wait for, with the signs of every rank.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_rank_stragglers(get_settings(), span)


@st.cache_resource(ttl=_SLOWER_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_rank_stragglers(settings: Settings, span: Span) -> StragglerAnswer:
    return read_straggler_answer(open_shared(settings.dsn), span, settings, _EVERY_RANK)


def load_rank_steps(span: Span) -> Mapping[Phase, RankSteps]:
    """The passes, dispatches and combines of every rank of one EP group over time.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_rank_steps(get_settings().dsn, span)


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_rank_steps(dsn: str, span: Span) -> Mapping[Phase, RankSteps]:
    return read_rank_steps(open_shared(dsn), span)


def load_rank_history(assessment: LoadAssessment) -> RankLoadHistory:
    """The work of every rank over the window of an assessment.

    Raises:
        StoreError: the store cannot answer.
    """
    window = assessment.window
    return _load_rank_history(assessment, get_settings(), window.scope, window.start_ms, window.end_ms)


@st.cache_resource(ttl=_SLOWER_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_rank_history(
    _assessment: LoadAssessment,
    settings: Settings,
    scope: LoadScope,  # noqa: ARG001 - part of the cache's key, as are those below
    start_ms: int,  # noqa: ARG001
    end_ms: int,  # noqa: ARG001
) -> RankLoadHistory:
    return read_rank_load_history(open_shared(settings.dsn), _assessment, settings)


def load_activated(assessment: LoadAssessment) -> ImbalanceAnswer:
    """How many experts each rank reads in a pass of an assessment.

    Raises:
        StoreError: the store cannot answer.
    """
    window = assessment.window
    return _load_activated(assessment, get_settings(), window.scope, window.start_ms, window.end_ms)


@st.cache_resource(ttl=_SLOWER_SECONDS, max_entries=_MANY, show_spinner=False)
def _load_activated(
    _assessment: LoadAssessment,
    settings: Settings,
    scope: LoadScope,  # noqa: ARG001 - part of the cache's key, as are those below
    start_ms: int,  # noqa: ARG001
    end_ms: int,  # noqa: ARG001
) -> ImbalanceAnswer:
    passes = read_passes(open_shared(settings.dsn), _assessment.window, settings)
    return answer_imbalance(_assessment, passes=passes)
