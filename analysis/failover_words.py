"""What happens when a rank fails, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.failover_facts import FailoverFacts
from moescope.analysis.failover_holders import Holders
from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.failover_losses import Loss, Outcome, ReloadSummary

RATIO_FORMULA: Final = "Σ max / Σ mean rank load over the layers"
_MOST_LISTED: Final = 4
_NOBODY: Final = "no rank is left to take anything."


def describe_group(facts: FailoverFacts) -> str:
    """Shape and redundancy of a group, in one paragraph."""
    ranks, (layers, experts) = len(facts.ranks), facts.tokens.shape
    copies = facts.copies
    nodes = len(facts.nodes)
    where = f" on {words.count(nodes, 'node')}" if nodes else ""
    shape = (
        f"{words.count(ranks, 'rank')}{where}, {words.count(layers, 'layer')} of {words.integer(experts)} "
        f"experts, top-{facts.top_k}."
    )
    if ranks == 1:
        return f"{shape} A group of one rank has nobody to fail over to: its loss is the loss of the service."
    several = int((copies > 1).sum())
    if not several:
        held = facts.placement.replicas.sum(axis=2, dtype=np.int64)
        few, many = int(held.sum(axis=1).min()), int(held.sum(axis=1).max())
        lost = words.integer(many) if few == many else f"{words.integer(few)} to {words.integer(many)}"
        return (
            f"{shape} No redundancy: every expert has one copy, so any rank lost loses {lost} experts "
            f"({_span(held)} in each layer)."
        )
    on_ranks = int(((facts.placement.replicas > 0).sum(axis=0) > 1).sum())
    traffic = facts.tokens[(facts.placement.replicas > 0).sum(axis=0) > 1].sum() / max(facts.tokens.sum(), 1)
    return (
        f"{shape} {words.integer(on_ranks)} of {words.integer(copies.size)} experts "
        f"({words.percent(on_ranks / copies.size)}) have copies on two ranks or more; they carry "
        f"{words.percent(float(traffic))} of the traffic."
    )


def describe_holders(holders: Holders, facts: FailoverFacts) -> str:
    """Who holds an expert."""
    layers, expert = len(holders.layers), f"Expert {holders.expert}"
    of_layer = f" of layer {holders.layers[0]}" if layers == 1 else ""
    share = f"It gets {words.percent(holders.traffic_share)} of the assignments there."
    if len(holders.layers_of_rank) == 1:
        everywhere = "" if layers == 1 else f" in all {layers} layers"
        alone = "and has no other copy" if holders.single_layers else "twice or more"
        return (
            f"{expert}{of_layer} is held by rank {holders.home}{_on_host(facts, holders.home)}{everywhere}, "
            f"{alone}. {share}"
        )
    ranks = [
        f"rank {rank}{_on_host(facts, rank)}" + ("" if layers == 1 else f" in {held} of {layers} layers")
        for rank, held in list(holders.layers_of_rank.items())[:_MOST_LISTED]
    ]
    rest = len(holders.layers_of_rank) - len(ranks)
    listed = ", ".join(ranks) + (f" and {words.count(rest, 'more rank')}" if rest else "")
    alone = "" if layers == 1 else f"; in {words.count(holders.single_layers, 'layer')} it has one copy"
    return f"{expert}{of_layer} is held by {listed}{alone}. {share}"


def describe_loss(loss: Loss, facts: FailoverFacts, holders: Holders | None) -> Iterator[str]:
    """What a loss does, then what each strategy makes of it: paragraphs, not wrapped."""
    name = name_of(loss)
    if holders is not None:
        name = f"the worker holding expert {holders.expert} ({name})"
    yield f"What happens when {name} fails?"
    yield summarise_loss(loss, facts)
    for outcome in loss.outcomes.values():
        yield f"{outcome.strategy.value}: {describe_outcome(loss, outcome)}"
    if any(one.busiest_rank is not None for one in loss.outcomes.values()):
        yield f"Imbalance: {RATIO_FORMULA}."


def summarise_loss(loss: Loss, facts: FailoverFacts) -> str:
    """What goes with it, whatever is done: experts, traffic, tokens, requests."""
    return " ".join([_losses(loss, facts), _hit(loss), _own(loss)])


def describe_outcome(loss: Loss, outcome: Outcome) -> str:
    """What one strategy makes of it."""
    return _DESCRIBE[outcome.strategy](loss, outcome)


def name_of(loss: Loss) -> str:
    """``rank 7`` or ``node node-0``."""
    if loss.node is not None:
        return f"node {loss.node}"
    return words.listed("rank", loss.ranks.tolist()).lower()


def _losses(loss: Loss, facts: FailoverFacts) -> str:
    held, layers = loss.lost_experts + loss.covered_experts, words.count(len(facts.layers), "layer")
    share = f"{words.percent(loss.traffic_share)} of the traffic"
    if not loss.covered_experts:
        return f"Its {words.count(held, 'expert')} in {layers} have no other copy and are lost: {share}."
    return (
        f"Of its {words.count(held, 'expert')} in {layers}, {words.integer(loss.lost_experts)} have no other "
        f"copy and are lost: {share}. {words.integer(loss.covered_experts)} have one elsewhere, which takes "
        f"over {words.percent(loss.taken_over_share)}."
    )


def _hit(loss: Loss) -> str:
    if not loss.lost_experts:
        return "No token needs a lost expert."
    hit = loss.tokens_hit
    requests = ""
    if loss.requests_hit is not None:
        alike, independent = (
            words.percent(share) for share in (loss.requests_hit.alike, loss.requests_hit.independent)
        )
        between = alike if alike == independent else f"{alike} to {independent}"
        requests = f", and {between} of the requests have such a token"
    return (
        f"{words.percent(hit.expected)} of the tokens need a lost expert in some layer{requests}: draws and "
        f"layers are taken as independent, which overstates; at least {words.percent(hit.low)} of the tokens "
        "do."
    )


def _own(loss: Loss) -> str:
    share = words.percent(loss.own_share)
    return f"Requests that run on {_it(loss)} fail whatever is done: {share} of the work."


def _reassign(loss: Loss, outcome: Outcome) -> str:
    if outcome.busiest_rank is None:
        return _NOBODY
    load = outcome.reload
    if load is None:
        return f"other copies take all of it over. {_loads(loss, outcome)}"
    return f"{_reloading(load)} {_loads(loss, outcome)}"


def _reloading(load: ReloadSummary) -> str:
    size = ""
    if not np.isnan(load.bytes_total):
        most = words.binary_bytes(load.bytes_of_most)
        size = f", {words.binary_bytes(load.bytes_total)} in all and {most} on the rank with most"
    text = (
        f"{words.count(load.experts, 'expert')} must be loaded again onto {words.count(load.ranks, 'rank')}"
        f"{size}."
    )
    if load.made_way:
        text += f" {words.integer(load.made_way)} of them replace a second copy of another expert."
    if not load.beyond:
        return f"{text} There is a slot for each."
    who = "None finds a slot" if load.beyond == load.experts else f"{words.integer(load.beyond)} find no slot"
    if np.isnan(load.bytes_beyond_of_most):
        return f"{text} {who}; how much memory they need is not reported."
    needs = f"{text} {who}: one rank needs {words.binary_bytes(load.bytes_beyond_of_most)} more"
    if load.fits is None:
        return f"{needs}; how much is free is not reported."
    free = words.binary_bytes(load.free_bytes_of_it)
    return f"{needs} and has {free} free, so it {'fits' if load.fits else 'does not fit'}."


def _block(loss: Loss, outcome: Outcome) -> str:
    if not loss.lost_experts:
        return f"nothing waits. {_loads(loss, outcome)}"
    return (
        f"{words.percent(loss.tokens_hit.expected)} of the tokens wait or fail until {_it(loss)} is back; "
        f"meanwhile {words.percent(outcome.unserved_share)} of the assignments are not computed."
    )


def _fallback(loss: Loss, outcome: Outcome) -> str:
    if outcome.busiest_rank is None:
        return _NOBODY
    if not loss.lost_experts:
        return f"no expert has to stand in for another. {_loads(loss, outcome)}"
    missing = ""
    if outcome.unserved_share:
        missing = f" {words.percent(outcome.unserved_share)} of the choices find no expert at all."
    return (
        f"the next-best experts stand in for {words.percent(loss.traffic_share)} of the choices. "
        f"{words.percent(loss.tokens_hit.expected)} of the tokens have at least one such choice: quality may "
        f"suffer.{missing} {_loads(loss, outcome)}"
    )


def _loads(loss: Loss, outcome: Outcome) -> str:
    return (
        f"Rank {outcome.busiest_rank} gets most of it, × {outcome.growth:.2f} of its load; imbalance "
        f"{loss.ratio_before:.2f} → {outcome.ratio_after:.2f}."
    )


_DESCRIBE: Final = {
    FailoverStrategy.REASSIGN: _reassign,
    FailoverStrategy.BLOCK: _block,
    FailoverStrategy.FALLBACK: _fallback,
}


def _it(loss: Loss) -> str:
    return "the node" if loss.node is not None else "the rank" if len(loss.ranks) == 1 else "the ranks"


def _on_host(facts: FailoverFacts, rank: int) -> str:
    row = facts.row_of_rank(rank)
    host = "" if row is None else facts.hosts[row]
    return f" ({host})" if host else ""


def _span(held: np.ndarray) -> str:
    low, high = int(held.min()), int(held.max())
    return str(low) if low == high else f"{low} to {high}"
