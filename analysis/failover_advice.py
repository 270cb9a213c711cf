"""What somebody can do about a loss: when it happens, and before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moescope.analysis import words
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_losses import Loss
from moescope.analysis.span import plan_options
from moescope.schemas.records import IntArray


def advise(loss: Loss, facts: FailoverFacts) -> Iterator[str]:
    """Sentences, the most urgent first; none where no rank is left to do anything with."""
    if all(outcome.busiest_rank is None for outcome in loss.outcomes.values()):
        return
    yield _when_it_happens(loss)
    if loss.lost_experts:
        yield _before(loss, facts)


def _when_it_happens(loss: Loss) -> str:
    part = "the node" if loss.node is not None else "the rank"
    text = f"When it happens: send its requests elsewhere and restart {part} or replace it"
    reassign = loss.outcomes.get(FailoverStrategy.REASSIGN)
    if not loss.lost_experts:
        return f"{text}; its experts have copies that serve meanwhile."
    if reassign is None or reassign.reload is None:
        return f"{text}; its experts are missing until then."
    if reassign.reload.fits:
        return f"{text}; if that takes long, load the lost experts again: the others have the room."
    if reassign.reload.fits is None:
        return f"{text}; whether the others have room for the lost experts is not known."
    return f"{text}; the others have no room for all lost experts, so they are missing until then."


def _before(loss: Loss, facts: FailoverFacts) -> str:
    """How many second copies would cover every expert, and whether there is memory for them."""
    is_node = loss.node is not None
    on_ranks: IntArray = (facts.placement.replicas > 0).sum(axis=0, dtype=np.int64)
    holders = _on_nodes(facts) if is_node else on_ranks
    missing: IntArray = (holders == 1).sum(axis=1, dtype=np.int64)
    wanted = facts.placement.redundant_experts + int(missing.max(initial=0))
    where = "on a second node" if is_node else "on a second rank"
    text = (
        f"Before it happens: a copy of every expert {where} takes {words.integer(wanted)} redundant experts "
        f"a layer ({words.integer(facts.placement.redundant_experts)} now)"
    )
    more = float((missing * facts.bytes_per_expert).sum()) / len(facts.ranks)
    if not np.isnan(more):
        text += f", {words.binary_bytes(more)} more on each rank"
        free = float(facts.free_bytes.min())
        if not np.isnan(free):
            text += f", where the fullest has {words.binary_bytes(free)} free"
    cover = " --cover-nodes all" if is_node else ""
    group = plan_options(facts.span.service, facts.span.ep_group)
    return f"{text}. `moescope plan {group} --redundant-experts N{cover}` says where N copies help most."


def _on_nodes(facts: FailoverFacts) -> IntArray:
    """Nodes that hold each expert: int64 ``[layers, experts]``."""
    held = [(facts.placement.replicas[rows] > 0).any(axis=0) for rows in facts.nodes.values()]
    on_nodes: IntArray = np.stack(held).sum(axis=0, dtype=np.int64)
    return on_nodes
