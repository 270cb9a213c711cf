"""What is wrong now, in words: the planted thing is named, and nothing else is."""

import numpy as np
import pytest

from moescope.analysis.finding import Severity
from moescope.analysis.findings import has_problem, list_findings
from moescope.analysis.quality import HealthState, InstanceHealth, judge_quality
from moescope.schemas.attributes import Component, Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

SETTINGS = Settings()
HOT_DECODE = KnownFleet(sigma=0.2, hot={(Phase.DECODE, 3, 23): 40.0})


def _process(rank=0, state="ok", **changes):
    values = {
        "service": "known-fleet",
        "instance": f"process-{rank}",
        "component": Component.RANK,
        "ep_group": "0",
        "ep_rank": rank,
        "first_ms": 1_000,
        "last_ms": 61_000,
        "lag_seconds": 7.0,
        "windows": 6,
        "tokens": 1_000,
        "excluded_tokens": 0,
        "assignments": 20_000,
        "expected_assignments": 20_000,
        "missing_assignments": 0,
        "export_failures": 0,
    }
    return InstanceHealth(**(values | changes), state=HealthState(state))


def _find(*assessments, processes=None):
    processes = [_process(rank) for rank in range(8)] if processes is None else processes
    return list_findings(assessments, judge_quality(processes), SETTINGS)


def test_even_fleet_has_no_findings():
    fleet = KnownFleet(sigma=0.2)
    assert _find(assess_fleet(fleet, Phase.PREFILL), assess_fleet(fleet, Phase.DECODE)) == ()


@pytest.mark.parametrize("tokens", [79, 1_000, 60_000])
def test_uniform_router_of_k3_has_no_findings(tokens):
    fleet = KnownFleet(num_layers=92, num_experts=896, top_k=16, num_ranks=64, tokens_per_minute=tokens)
    assert _find(assess_fleet(fleet, Phase.DECODE)) == ()


def test_planted_expert_is_named_with_its_layer_rank_and_phase():
    (finding,) = _find(assess_fleet(HOT_DECODE, Phase.PREFILL), assess_fleet(HOT_DECODE, Phase.DECODE))
    assert finding.severity is Severity.PROBLEM
    assert finding.title.startswith("Layer 3, decode: rank 2 does ")
    assert finding.title.endswith("× the mean rank's work because of expert 23.")
    assert (finding.phase, finding.layer, finding.expert) == (Phase.DECODE, 3, 23)
    assert "1 copy (rank 2)" in finding.detail
    assert "max / mean over 8 ranks in 5 min" in finding.detail
    assert has_problem([finding])


def test_phases_are_never_mixed():
    fleet = KnownFleet(hot={(Phase.PREFILL, 1, 7): 40.0, (Phase.DECODE, 2, 13): 40.0})
    found = _find(assess_fleet(fleet, Phase.PREFILL), assess_fleet(fleet, Phase.DECODE))
    assert {(one.phase, one.layer, one.expert) for one in found} == {
        (Phase.PREFILL, 1, 7),
        (Phase.DECODE, 2, 13),
    }
    assert len(found) == 2


def test_hot_expert_in_a_layer_that_is_still_balanced_is_a_warning():
    # 64 experts on 8 ranks: 6 × the median is 0.69 of a rank, which still does less than twice the mean.
    (finding,) = _find(assess_fleet(KnownFleet(hot={(Phase.DECODE, 4, 13): 6.0}), Phase.DECODE))
    assert finding.severity is Severity.WARNING
    assert finding.title.startswith("Layer 4, decode: expert 13 is hot; one copy takes ")
    assert not has_problem([finding])


def test_hot_expert_that_does_no_harm_yet_is_a_note():
    # On 2 ranks, 15 × the median is 0.38 of a rank: the busiest one would shed that.
    fleet = KnownFleet(num_ranks=2, hot={(Phase.DECODE, 4, 13): 15.0})
    (finding,) = _find(assess_fleet(fleet, Phase.DECODE))
    assert finding.severity is Severity.NOTE
    assert finding.title.startswith("Layer 4, decode: expert 13 gets 14.9 × its layer's median")


def test_expert_that_is_never_chosen_is_a_note():
    fleet = KnownFleet(hot={(Phase.DECODE, 4, 13): 0.0})
    (finding,) = _find(assess_fleet(fleet, Phase.DECODE), assess_fleet(fleet, Phase.PREFILL))
    assert finding.severity is Severity.NOTE
    assert finding.title.startswith("Decode: 1 expert of 320 was never chosen in 5 min.")
    assert finding.detail.startswith("Expert 13 in layer 4. Chance does not do that: one at 5.0 % of ")
    assert (finding.layer, finding.expert) == (4, 13)


def test_many_imbalanced_layers_are_three_sentences_and_a_count():
    fleet = KnownFleet(num_layers=7, hot={(Phase.DECODE, layer, 13): 40.0 for layer in range(1, 8)})
    found = _find(assess_fleet(fleet, Phase.DECODE))
    assert len(found) == 4
    assert found[-1].title == "Decode: imbalance in 4 more layers."


def test_several_groups_are_told_apart():
    west = KnownFleet(ep_group="west", hot={(Phase.DECODE, 3, 23): 40.0})
    (finding,) = _find(assess_fleet(KnownFleet(), Phase.DECODE), assess_fleet(west, Phase.DECODE))
    assert finding.title.startswith("Layer 3, decode, EP group west: ")


def test_worst_comes_first():
    fleet = KnownFleet(hot={(Phase.DECODE, 4, 13): 6.0, (Phase.DECODE, 5, 13): 40.0})
    severities = [one.severity for one in _find(assess_fleet(fleet, Phase.DECODE))]
    assert severities == [Severity.PROBLEM, Severity.WARNING]


def test_larger_imbalance_comes_first_whatever_its_phase():
    fleet = KnownFleet(hot={(Phase.PREFILL, 1, 7): 40.0, (Phase.DECODE, 2, 13): 90.0})
    found = _find(assess_fleet(fleet, Phase.PREFILL), assess_fleet(fleet, Phase.DECODE))
    assert [one.layer for one in found] == [2, 1]


def test_doubt_about_the_numbers_comes_before_what_they_say():
    found = _find(assess_fleet(HOT_DECODE, Phase.DECODE), processes=[_process(0), _process(5, "silent")])
    assert [one.layer for one in found] == [None, 3]


def test_missing_placement_is_said_and_no_imbalance_invented():
    (finding,) = _find(assess_fleet(HOT_DECODE, Phase.DECODE, ranks=range(0)))
    assert finding.title == "Decode: no rank has said which experts it holds; rank loads are unknown."


def test_rank_that_never_reported_its_placement_is_named():
    assessment = assess_fleet(KnownFleet(), Phase.DECODE, ranks=range(7))
    assert assessment.unplaced_share == pytest.approx(1 / 8, abs=0.01)
    (finding,) = _find(assessment)
    assert "assignments went to experts that no reporting rank holds" in finding.title
    assert finding.detail.startswith("Rank 7 of 8 never reported a placement")


def test_layer_without_placement_gives_no_verdict_instead_of_an_error():
    fleet = KnownFleet(minutes=3, tokens_per_minute=1)
    assessment = assess_fleet(fleet, Phase.DECODE)
    assert {verdict.value for verdict in assessment.imbalance.verdicts} == {"too little data"}
    assert _find(assessment) == ()


# --- data quality -------------------------------------------------------------------------------------------


def test_some_silent_ranks_are_named():
    (finding,) = _find(processes=[_process(0), _process(5, "silent"), _process(7, "silent")])
    assert finding.title.startswith("Ranks 5 and 7 of known-fleet are silent;")


def test_a_fleet_that_fell_silent_is_one_sentence():
    processes = [_process(rank, "silent", lag_seconds=720.0 + rank) for rank in range(8)]
    (finding,) = _find(processes=processes)
    assert finding.title == "The newest window of known-fleet is 12 min old."


def test_silence_is_told_by_the_age_of_windows_which_holds_while_late_ones_arrive():
    fleet = _find(processes=[_process(rank, "silent", lag_seconds=5_400.0) for rank in range(8)])
    rank = _find(processes=[_process(0), _process(5, "silent", lag_seconds=5_400.0)])
    assert "while kept windows are sent late, they catch up" in fleet[0].detail
    assert "`moescope doctor`" in fleet[0].detail
    assert rank[0].detail.startswith("The newest window is 90 min old.")
    assert not any("arrived" in one.title + one.detail for one in (*fleet, *rank))


def test_silent_front_end_is_no_silent_rank():
    front_end = _process(0, "silent", component=Component.FRONTEND, instance="front")
    quality = judge_quality([_process(0), front_end])

    assert [one.instance for one in quality.reporting] == ["process-0"]
    assert (quality.silent, quality.silent_others, quality.is_believable) == ((), (front_end,), False)
    (finding,) = _find(processes=[_process(0), front_end])
    assert finding.title.startswith("Frontend 0 of known-fleet is silent;")


def test_process_that_left_is_neither_reporting_nor_silent():
    quality = judge_quality([_process(0), _process(7, "left")])

    assert [one.ep_rank for one in quality.reporting] == [0]
    assert quality.silent == ()
    assert quality.is_believable


def test_process_that_was_replaced_is_not_silent():
    ended = _process(0, "silent", instance="before", last_ms=31_000)
    assert _find(processes=[ended, _process(0)]) == ()


def test_hook_that_counts_nothing_is_a_problem():
    (finding,) = _find(processes=[_process(0), _process(3, "no counts", assignments=0)])
    assert finding.title == "Rank 3 of known-fleet is counting no experts although tokens are scheduled."


@pytest.mark.parametrize(("missing", "word"), [(200, "too few"), (-200, "too many")])
def test_counts_that_do_not_add_up_say_by_how_much(missing, word):
    (finding,) = _find(processes=[_process(3, "not conserved", missing_assignments=missing)])
    assert finding.title == f"Rank 3 of known-fleet is off by 200 assignments (1.0 %), {word}."


def test_refused_exports_are_a_note_since_nothing_is_lost():
    (finding,) = _find(processes=[_process(0, export_failures=13)])
    assert finding.severity is Severity.NOTE
    assert "13 export attempts" in finding.title


def test_assessment_without_placement_still_knows_its_hot_experts():
    assessment = assess_fleet(HOT_DECODE, Phase.DECODE, ranks=range(0))
    assert (3, 23) in {(one.layer, one.expert) for one in assessment.hot_experts.top(13)}
    assert assessment.hot_experts.num_harmful == 0
    assert np.isfinite(assessment.hot_experts.capacity_share).all()
