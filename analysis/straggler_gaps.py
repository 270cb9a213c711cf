"""What a search for stragglers could not know, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules, of_median
from moescope.analysis.straggler_signals import Signs

_IN_STEP: Final = 0.1
"""Passes that differ by less than that are taken for lock step."""


def list_gaps(evidence: StragglerEvidence, signs: Signs | None, rules: StragglerRules) -> tuple[str, ...]:
    """Say what is missing and what therefore cannot be told; empty where nothing is."""
    if signs is None or not evidence.num_windows:
        return (_too_few_ranks(evidence),)
    return (*_of_time(evidence, signs, rules), *_of_waits(evidence, signs), *_of_causes(evidence))


def _too_few_ranks(evidence: StragglerEvidence) -> str:
    if evidence.num_ranks == 2:
        return "With two ranks, that one waits for the other does not say which of them is unusual."
    if evidence.num_ranks == 1:
        return "A single rank has nobody to wait for."
    return "No rank reported waits, dispatch times, expert times or passes."


def _of_time(evidence: StragglerEvidence, signs: Signs, rules: StragglerRules) -> Iterator[str]:
    known = max((np.isfinite(one.ratio).any(axis=1).sum() for one in signs.stages.values()), default=0)
    known = max(known, int(np.isfinite(signs.pass_time).any(axis=1).sum()))
    if known < rules.windows:
        yield (
            f"{words.count(int(known), 'window')} of {evidence.window_seconds / 60:g} min so far; "
            f"nothing is named before {rules.windows}."
        )


def _of_waits(evidence: StragglerEvidence, signs: Signs) -> Iterator[str]:
    if not signs.stages:
        yield _without_waits(evidence)
        return
    if not evidence.waits:
        yield (
            "No engine reports who waits for whom: who is late is read off the times of dispatch and "
            "combine, and slow links cannot be told."
        )
        return
    silent = [
        int(rank)
        for position, rank in enumerate(evidence.ranks)
        if not any(np.isfinite(waits[:, position]).any() for waits in evidence.waits.values())
    ]
    if silent:
        yield f"{words.listed('rank', silent)} reported no waits: whom they wait for is not known."
    if not signs.links.is_known:
        yield _unknown_nodes(signs)


def _without_waits(evidence: StragglerEvidence) -> str:
    passes = [of_median(row) for one in evidence.times.values() for row in one.pass_seconds]
    known = np.concatenate(passes)[np.isfinite(np.concatenate(passes))] if passes else np.empty(0)
    in_step = len(known) and float(np.quantile(np.abs(known - 1), 0.9)) < _IN_STEP
    text = "No engine reports waits, nor times of dispatch and combine."
    if in_step:
        text += " All ranks' passes last equally long, as in lock step: they do not tell which is late."
    return text


def _unknown_nodes(signs: Signs) -> str:
    if signs.links.num_nodes > 1:
        size = int((signs.links.node_of_rank == 0).sum())
        return f"Hosts are not known; by their waits, nodes seem to have {size} ranks each."
    return "Hosts are not known, and by their waits all ranks are equally far apart."


def _of_causes(evidence: StragglerEvidence) -> Iterator[str]:
    if all(one.loads is None for one in evidence.times.values()):
        yield "Without a placement rank loads are not known: slow and overloaded are hard to tell apart."
    elif all(one.expert_seconds is None for one in evidence.times.values()):
        yield "Expert times are not reported: slow and overloaded are told apart by waits and loads."
