"""Cached calls into the failover analysis. What is read of a group is read once a minute, whoever looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from moescope.analysis.failover_answer import FailoverQuestion, answer_failover, group_scopes
from moescope.analysis.failover_facts import FailoverFacts, read_failover_facts
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_picture import LossPicture, picture_loss
from moescope.analysis.failover_report import FailoverAnswer
from moescope.analysis.report_sections import DEFAULT_LIMIT
from moescope.dashboard import loaders
from moescope.schemas.settings import Settings

_FRESH_SECONDS: Final = 60
"""A placement and a minute of traffic are no older than that; one answer takes a second for a large model."""
_FEW: Final = 6
_SEVERAL: Final = 24


@dataclass(frozen=True, slots=True)
class FailoverScope:
    """Whose failover: one EP group in a window, ``end_ms`` None for the newest."""

    service: str
    ep_group: str
    window_seconds: float
    end_ms: int | None


def load_facts(scope: FailoverScope) -> FailoverFacts | None:
    """What a group's failover depends on; None where no rank says which experts it holds.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_facts(loaders.get_settings(), scope)


@st.cache_resource(ttl=_FRESH_SECONDS, max_entries=_FEW, show_spinner=False)
def _load_facts(settings: Settings, scope: FailoverScope) -> FailoverFacts | None:
    store = loaders.open_shared(settings.dsn)
    phases = next(group_scopes(loaders.load_scopes(), scope.service, scope.ep_group))
    return read_failover_facts(store, phases, scope.window_seconds, settings, end_ms=scope.end_ms)


def load_every_loss(facts: FailoverFacts) -> FailoverAnswer:
    """Every rank and node of these facts lost on its own, the worst first.

    Raises:
        StoreError: the store cannot answer.
    """
    return _load_answer(facts, loaders.get_settings(), _key(facts), FailoverQuestion(strategy=_QUICK))


_QUICK: Final = FailoverStrategy.FALLBACK
"""What is lost is the same under every strategy; this one needs no search for room."""


def load_loss(facts: FailoverFacts, *, rank: int | None, node: str | None) -> FailoverAnswer:
    """One loss under every strategy.

    Raises:
        StoreError: the store cannot answer.
        UsageError: a rank or node that the group does not have.
    """
    question = FailoverQuestion(rank=rank, node=node)
    return _load_answer(facts, loaders.get_settings(), _key(facts), question)


@st.cache_resource(ttl=_FRESH_SECONDS, max_entries=_SEVERAL, show_spinner=False)
def _load_answer(
    _facts: FailoverFacts,
    settings: Settings,
    key: tuple[str, str, int, int],  # noqa: ARG001 - part of the cache's key: whose facts they are
    question: FailoverQuestion,
) -> FailoverAnswer:
    return answer_failover(loaders.open_shared(settings.dsn), _facts, question, settings, DEFAULT_LIMIT)


def load_picture(answer: FailoverAnswer, strategy: FailoverStrategy) -> LossPicture:
    """The loss that an answer tells of, rank by rank, under one strategy."""
    loss = answer.focus[0]
    return _load_picture(answer, _key(answer.facts), (tuple(loss.ranks.tolist()), loss.node), strategy)


@st.cache_resource(ttl=_FRESH_SECONDS, max_entries=_SEVERAL, show_spinner=False)
def _load_picture(
    _answer: FailoverAnswer,
    key: tuple[str, str, int, int],  # noqa: ARG001 - part of the cache's key, as is what is lost
    lost: tuple[tuple[int, ...], str | None],  # noqa: ARG001
    strategy: FailoverStrategy,
) -> LossPicture:
    return picture_loss(_answer.facts, _answer.focus[0], strategy)


def _key(facts: FailoverFacts) -> tuple[str, str, int, int]:
    span = facts.span
    return span.service, span.ep_group, span.start_ms, span.end_ms
