"""Why a rank is late: because it has much to do, or at an ordinary load?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from moescope.analysis.imbalance import BoolArray
from moescope.analysis.medians import median_of_known
from moescope.analysis.straggler import Confidence, StragglerKind
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules
from moescope.analysis.straggler_signals import Signs, measure_experts
from moescope.analysis.straggler_times import explained_by_load, share_in_loaded_layers
from moescope.analysis.words import percent
from moescope.schemas.attributes import DispatchStage
from moescope.schemas.records import FloatArray

_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Cause:
    """Slow or overloaded, how sure that is, and sentences that say why."""

    kind: StragglerKind
    confidence: Confidence
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that is late, and what is known of it in the windows in which it was.

    Attributes:
        rank: position on the rank axis.
        judged: bool ``[windows]``: the newest windows in which it was late.
        stages: in which it was late in most of them.
        at_load: its expert time over what others need for its load; NaN where unknown.
        load, tokens: over the median rank's; NaN where unknown.
        in_loaded_layers: part of its extra expert time in layers where it has much to do; NaN where unknown.
        explained: part of the waiting for it that its load explains, from waits alone; NaN where unknown.
    """

    rank: int
    judged: BoolArray
    stages: frozenset[DispatchStage]
    at_load: float
    load: float
    tokens: float
    in_loaded_layers: float = field(default=np.nan)
    explained: float = field(default=np.nan)


def examine(
    evidence: StragglerEvidence, signs: Signs, rules: StragglerRules, rank: int, judged: BoolArray
) -> Suspect:
    """Gather what is known of a late rank."""
    stages = frozenset(
        stage for stage, one in signs.stages.items() if one.is_late[judged, rank].mean() >= _HALF
    )
    return Suspect(
        *(rank, judged, stages, _middle(measure_experts(evidence, rank, judged)[0])),
        *(float(signs.load[rank]), float(signs.tokens[rank])),
        _in_loaded_layers(evidence, rules, rank, judged),
        _explained(evidence, rank, judged),
    )


def find_cause(one: Suspect, rules: StragglerRules) -> Cause:
    """Decide between a slow and an overloaded rank.

    1. Its experts are slower than others' at the same load: slow.
    2. It is late in dispatch, before any expert was computed: its own tokens may explain that, else slow.
    3. It is late in combine alone: its load explains that, or it is slow.
    """
    if one.at_load >= rules.time_ratio:
        return Cause(StragglerKind.SLOW_RANK, Confidence.HIGH, (_experts_slow(one), *_load_words(one)))
    if DispatchStage.DISPATCH in one.stages:
        return _late_in_dispatch(one, rules)
    return _late_in_combine(one, rules)


def _late_in_dispatch(one: Suspect, rules: StragglerRules) -> Cause:
    known = tuple(_experts_normal(one))
    if one.tokens >= rules.time_ratio:
        sure = Confidence.MEDIUM if known else Confidence.LOW
        words = f"Its own passes compute {one.tokens:.2f} × the median rank's tokens."
        return Cause(StragglerKind.OVERLOADED_RANK, sure, (words, *known))
    words = "It comes late before any expert was computed, at an ordinary number of tokens"
    place = ": attention, its host or its network is slow." if known else ", which no expert load explains."
    return Cause(StragglerKind.SLOW_RANK, Confidence.MEDIUM, (words + place, *known, *_load_words(one)))


def _late_in_combine(one: Suspect, rules: StragglerRules) -> Cause:
    kind, load = StragglerKind.OVERLOADED_RANK, _load_words(one)
    if not np.isnan(one.at_load):
        if one.load >= rules.time_ratio or one.in_loaded_layers >= _HALF:
            return Cause(kind, Confidence.HIGH, (*load, *_layer_words(one), *_experts_normal(one)))
        words = "Nor is its load unusual: look at its network and its host."
        return Cause(StragglerKind.SLOW_RANK, Confidence.LOW, (*_experts_normal(one), words))
    if one.explained >= _HALF:
        words = f"Its load explains {percent(one.explained)} of the waiting for it."
        return Cause(kind, Confidence.MEDIUM, (*load, words))
    if np.isnan(one.load):
        words = "Neither expert times nor loads are stored: it may as well be overloaded."
        return Cause(StragglerKind.SLOW_RANK, Confidence.LOW, (words,))
    if np.isnan(one.explained) and one.load >= rules.time_ratio:
        words = "Without expert times it cannot be told whether it is slow as well."
        return Cause(kind, Confidence.LOW, (*load, words))
    return Cause(
        StragglerKind.SLOW_RANK, Confidence.MEDIUM, (*load, "That does not explain the waiting for it.")
    )


def _explained(evidence: StragglerEvidence, rank: int, judged: BoolArray) -> float:
    waits = evidence.waits.get(DispatchStage.COMBINE)
    loads = [one.loads for one in evidence.times.values() if one.loads is not None]
    if waits is None or not loads or not judged.any():
        return np.nan
    windows, size = int(judged.sum()), evidence.num_ranks
    matrix = median_of_known(waits[judged].reshape(windows, -1), 0).reshape(size, size)
    return explained_by_load(matrix, np.concatenate(loads), rank)


def _in_loaded_layers(
    evidence: StragglerEvidence, rules: StragglerRules, rank: int, judged: BoolArray
) -> float:
    """The largest of the phases."""
    found = np.nan
    for one in evidence.times.values():
        if one.expert_seconds is not None and one.loads is not None and judged.any():
            layers = one.loads.shape[0]
            seconds = one.expert_seconds[judged].reshape(int(judged.sum()), -1)
            middle: FloatArray = median_of_known(seconds, 0).reshape(layers, -1)
            share = share_in_loaded_layers(middle, one.loads, rules.time_ratio)
            found = float(np.fmax(found, share[rank]))
    return found


def _middle(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else np.nan


def _experts_slow(one: Suspect) -> str:
    return f"Its experts take {one.at_load:.2f} × what other ranks need for the same load."


def _experts_normal(one: Suspect) -> Iterator[str]:
    if not np.isnan(one.at_load):
        yield f"Its experts are no slower than others' at the same load ({one.at_load:.2f} ×)."


def _load_words(one: Suspect) -> Iterator[str]:
    if not np.isnan(one.load):
        yield f"It computes {one.load:.2f} × the median rank's assignments."


def _layer_words(one: Suspect) -> Iterator[str]:
    if not np.isnan(one.in_loaded_layers):
        yield f"{percent(one.in_loaded_layers)} of its extra time is in layers where it has much more to do."
