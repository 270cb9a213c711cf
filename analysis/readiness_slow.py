"""Who is slow now, for a readiness protocol."""

from __future__ import annotations

from moescope.analysis import words
from moescope.analysis.readiness_evidence import SlowWorker, Unknown
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.analysis.straggler import SLOW_KINDS, Straggler
from moescope.analysis.straggler_evidence import StragglerRules
from moescope.analysis.straggler_reader import read_straggler_evidence
from moescope.analysis.straggler_words import cost_sentence, title, when_sentence
from moescope.analysis.stragglers import find_stragglers
from moescope.schemas.settings import Settings


def read_slow_workers(store: Store, span: Span, settings: Settings) -> tuple[SlowWorker, ...] | Unknown:
    """Who is slow at an ordinary load; those with too much of it are a matter of the balance.

    Raises:
        StoreError: the store cannot answer.
    """
    evidence, rules = read_straggler_evidence(store, span, settings), StragglerRules.of(settings)
    if evidence.num_ranks < 3:
        return Unknown(f"{words.count(evidence.num_ranks, 'rank')} cannot be compared; it takes three.")
    if not (evidence.waits or evidence.times):
        return Unknown("No rank reports what it waits for, nor how long its passes and dispatches take.")
    if evidence.num_windows < rules.windows:
        return Unknown(
            f"{words.count(evidence.num_windows, 'minute')} of telemetry; a slow worker shows in "
            f"{rules.windows}."
        )
    return tuple(_slow_worker(one) for one in find_stragglers(evidence, rules) if one.kind in SLOW_KINDS)


def _slow_worker(one: Straggler) -> SlowWorker:
    sentences = [title(one), when_sentence(one), *one.evidence, cost_sentence(one)]
    return SlowWorker(ranks=one.ranks, evidence=" ".join(filter(None, sentences)), action=one.advice)
