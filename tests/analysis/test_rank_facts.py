"""Every rank with what is known of it, and whom it waits for."""

import numpy as np

from moescope.analysis.dispatch import arrange_waits
from moescope.analysis.rank_facts import list_rank_facts, list_rank_waits
from moescope.analysis.rank_load import measure_rank_work
from moescope.analysis.span import span_between
from moescope.analysis.straggler import Confidence, Straggler, StragglerKind
from moescope.analysis.straggler_ranks import RankSigns
from moescope.analysis.straggler_report import StragglerAnswer
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

SLOW = Straggler(
    kind=StragglerKind.SLOW_RANK, ranks=(5,), times_others=2.5, says="its experts take 2.50 ×", windows=5,
    judged_windows=5, all_late=5, all_windows=5, window_seconds=60, since_ms=0, confidence=Confidence.HIGH,
    evidence=(), advice="",
)  # fmt: skip
SIGNS = RankSigns(5, "node-1", {DispatchStage.DISPATCH: 23.0}, 0.13, 2.5, 1.02)


def _answer(stragglers=(SLOW,), ranks=(SIGNS,)):
    return StragglerAnswer(span_between("s", "0", 0, 60_000), stragglers, ranks, (), True, 7, 5, 60.0)


def test_named_rank_has_the_reports_sentence():
    facts = list_rank_facts(None, None, _answer())
    assert [one.rank for one in facts] == [5]
    assert facts[0].named == ("Rank 5 is slow: its experts take 2.50 ×.",)
    assert facts[0].host == "node-1"
    assert np.isnan(facts[0].of_mean)


def test_every_rank_with_a_placement_is_listed():
    work = measure_rank_work(assess_fleet(KnownFleet(num_ranks=7), Phase.DECODE), Settings())
    facts = list_rank_facts(work, None, _answer())
    assert [one.rank for one in facts] == list(range(7))
    assert facts[0].worst_layer in work.layers
    assert not facts[0].named
    assert facts[0].times_awaited == {}


def test_longest_waits_come_first_and_none_is_for_itself():
    ranks = np.repeat(np.arange(3), 3)
    peers = np.tile(np.arange(3), 3)
    seconds = np.array([79.0, 13, 23, 7, 79, 3, 0, 0, 79])
    waits = {DispatchStage.DISPATCH: arrange_waits(DispatchStage.DISPATCH, ranks, peers, seconds)}
    (found,) = list_rank_waits(waits, 0, 60.0, 2)
    assert [(one.peer, one.value) for one in found.waits_for] == [(2, 23.0), (1, 13.0)]
    assert [(one.peer, one.value) for one in found.awaited_by] == [(1, 7.0)]


def test_rank_without_waits_has_none():
    zero = np.zeros(1, dtype=np.int64)
    waits = {DispatchStage.COMBINE: arrange_waits(DispatchStage.COMBINE, zero, zero + 1, np.array([1.0]))}
    assert list_rank_waits(waits, 7, 60.0, 2) == ()
