"""From a store to the answer of ``moescope report failover``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from moescope.analysis.expert_load import LoadScope, list_scopes
from moescope.analysis.failover_facts import FailoverFacts, leave_out_silent, read_failover_facts
from moescope.analysis.failover_holders import find_holders
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_losses import Loss, assess_loss, assess_nodes, assess_ranks
from moescope.analysis.failover_report import FailoverAnswer, FailoverReport
from moescope.analysis.front_ends import read_front_ends
from moescope.analysis.partial_failure_answer import read_slow_answer
from moescope.analysis.store import Store
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings

_OF_TABLES: Final = FailoverStrategy.FALLBACK
"""What tables show where no strategy is asked for: it needs no memory and leaves nobody waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverQuestion:
    """What somebody wants to know.

    Attributes:
        rank: EP rank that fails; None: the worst.
        node: machine that fails, with all ranks on it.
        expert: the rank that holds this expert fails; ``layer``: its copy in that layer.
        strategy: one strategy; None: all of them side by side.
        times_slower: the rank does not fail and takes so many times as long.
    """

    rank: int | None = None
    node: str | None = None
    expert: int | None = None
    layer: int | None = None
    strategy: FailoverStrategy | None = None
    times_slower: float | None = None


def make_question(*, strategy: str | None = None, **asked: Any) -> FailoverQuestion:
    """Read a question whose strategy is a word.

    Raises:
        UsageError: an unknown strategy, or a question that contradicts itself.
    """
    known = [one.value for one in FailoverStrategy]
    if strategy is not None and strategy not in known:
        raise UsageError(f"--strategy {strategy}: use one of {', '.join(known)}")
    question = FailoverQuestion(strategy=None if strategy is None else FailoverStrategy(strategy), **asked)
    check_question(question)
    return question


def check_question(question: FailoverQuestion) -> None:
    """Refuse what contradicts itself.

    Raises:
        UsageError: more than one of rank, node and expert, a layer without an expert, or a speed-up.
    """
    named = [question.rank is not None, question.node is not None, question.expert is not None]
    if sum(named) > 1:
        raise UsageError("--rank, --node and --expert: ask for one of them at a time")
    if question.layer is not None and question.expert is None:
        raise UsageError("--layer says which copy of an expert is meant; add --expert")
    if question.times_slower is not None and not 1 <= question.times_slower < np.inf:
        raise UsageError(f"--slow {question.times_slower:g}: write how many times slower, 1 or more")
    if question.times_slower is not None and question.node is not None:
        raise UsageError("--slow is about one rank; use --rank or --expert with it")


def read_failover_report(
    store: Store,
    question: FailoverQuestion,
    *,
    window_seconds: float,
    settings: Settings,
    service: str | None,
    limit: int,
) -> FailoverReport:
    """Answer for every EP group, or for those of one deployment.

    Raises:
        StoreError: the store cannot answer.
        UsageError: a rank, node, expert or layer that a group does not have.
    """
    answers, unplaced = [], []
    for scopes in group_scopes(list_scopes(store), service):
        facts = read_failover_facts(store, scopes, window_seconds, settings)
        if facts is None:
            unplaced.append((scopes[0].service, scopes[0].ep_group))
        else:
            answers.append(answer_failover(store, facts, question, settings, limit))
    return FailoverReport(tuple(answers), tuple(unplaced), service, settings.failover_lost_share)


def answer_failover(
    store: Store, facts: FailoverFacts, question: FailoverQuestion, settings: Settings, limit: int
) -> FailoverAnswer:
    """Answer for one EP group that was read.

    Raises:
        StoreError: the store cannot answer.
        UsageError: a rank, node, expert or layer that the group does not have.
    """
    return _answer(store, _of_question(facts, question), question, settings, limit)


def group_scopes(
    stored: Iterable[LoadScope], service: str | None, ep_group: str | None = None
) -> Iterator[Sequence[LoadScope]]:
    """The phases of each EP group that is meant; of a group that changed its model, the newest."""
    groups: dict[tuple[str, str], list[LoadScope]] = {}
    for scope in stored:
        if service in {None, scope.service} and ep_group in {None, scope.ep_group}:
            groups.setdefault((scope.service, scope.ep_group), []).append(scope)
    for scopes in groups.values():
        newest = max(scopes, key=lambda scope: scope.end_ms)
        yield [scope for scope in scopes if scope.experts == newest.experts]


def _of_question(facts: FailoverFacts, question: FailoverQuestion) -> FailoverFacts:
    """Ranks that fell silent take nothing over; they count only where it is them who are asked about."""
    going_on = leave_out_silent(facts)
    if question.rank is not None:
        is_silent = question.rank in facts.silent_ranks
    elif question.expert is not None:
        is_silent = find_holders(facts, question.expert, question.layer).home in facts.silent_ranks
    else:
        is_silent = question.node is not None and question.node not in going_on.nodes
    return facts if is_silent else going_on


def _answer(
    store: Store, facts: FailoverFacts, question: FailoverQuestion, settings: Settings, limit: int
) -> FailoverAnswer:
    all_or_one = tuple(FailoverStrategy) if question.strategy is None else (question.strategy,)
    in_tables = (question.strategy or _OF_TABLES,)
    holders = None if question.expert is None else find_holders(facts, question.expert, question.layer)
    ranks: tuple[Loss, ...] = ()
    nodes: tuple[Loss, ...] = ()
    if holders is not None:
        rows, node = [_row(facts, holders.home)], None
    elif question.node is not None:
        rows, node = _rows_of_node(facts, question.node), question.node
    elif question.rank is not None:
        rows, node = [_row(facts, question.rank)], None
    else:
        ranks, nodes = assess_ranks(facts, in_tables), assess_nodes(facts, in_tables)
        rows, node = [_row(facts, int(ranks[0].ranks[0]))], None
    slow = None
    if question.times_slower is not None:
        slow = read_slow_answer(store, facts, rows[0], question.times_slower)
    has_loss = question.times_slower is None
    return FailoverAnswer(
        facts,
        ranks if has_loss else (),
        nodes if has_loss else (),
        (assess_loss(facts, rows, node, all_or_one),) if has_loss else (),
        holders,
        slow,
        # A front end of another group serves this one where there is none of its own.
        read_front_ends(store, facts.span) or read_front_ends(store, replace(facts.span, ep_group="")),
        settings.failover_lost_share,
        limit,
    )


def _row(facts: FailoverFacts, rank: int) -> int:
    row = facts.row_of_rank(rank)
    if row is None:
        raise UsageError(
            f"--rank {rank}: {facts.span.service}, EP group {facts.span.ep_group}, has the ranks "
            f"0 … {facts.placement.ep_size - 1}, of which {len(facts.ranks)} say which experts they hold"
        )
    return row


def _rows_of_node(facts: FailoverFacts, node: str) -> list[int]:
    if node not in facts.nodes:
        known = ", ".join(facts.nodes) or "no rank says on which it runs"
        raise UsageError(
            f"--node {node}: nodes of {facts.span.service}, EP group {facts.span.ep_group}: {known}"
        )
    rows: list[int] = facts.nodes[node].tolist()
    return rows
