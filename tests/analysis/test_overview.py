"""Key numbers of a deployment: summed over its groups, never over its phases."""

import numpy as np
import pytest

from moescope.analysis.expert_facts import describe_expert
from moescope.analysis.imbalance import Verdict
from moescope.analysis.overview import summarise_phase
from moescope.analysis.token_rate import read_token_rates
from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet, assess_fleet

EAST = KnownFleet(ep_group="east", tokens_per_minute=60 * 79, sigma=0.2)
WEST = KnownFleet(ep_group="west", tokens_per_minute=60 * 23, sigma=0.2, hot={(Phase.DECODE, 3, 23): 60.0})


@pytest.fixture(scope="module")
def rates(known_store):
    store = known_store(EAST, WEST)
    start_ms = (EAST.end_s - 5 * 60) * 1000
    return read_token_rates(store, EAST.service, start_ms=start_ms, end_ms=EAST.end_s * 1000)


def test_rate_is_of_a_group_and_a_phase(rates):
    assert [(rate.ep_group, rate.phase, rate.mean_per_second) for rate in rates] == [
        ("east", Phase.PREFILL, 79),
        ("east", Phase.DECODE, 79),
        ("west", Phase.PREFILL, 23),
        ("west", Phase.DECODE, 23),
    ]
    assert rates[0].per_second.tolist() == [79] * 5


def test_summary_adds_groups_and_names_the_worst_layer(rates):
    both = [assess_fleet(fleet, Phase.DECODE) for fleet in (EAST, WEST)]
    summary = summarise_phase(Phase.DECODE, both, rates)
    assert summary.tokens_per_second == 102
    assert summary.recent_tokens_per_second.tolist() == [102] * 5
    worst = summary.worst_layer
    assert (worst.ep_group, worst.layer, worst.verdict) == ("west", 3, Verdict.IMBALANCED)
    assert worst.balancedness == pytest.approx(1 / worst.ratio)
    assert (summary.imbalanced_layers, summary.judged_layers) == (1, 10)
    assert summary.harmful_experts == 1


def test_phase_that_nobody_serves_has_no_summary(rates):
    assert summarise_phase(Phase.PREFILL, [assess_fleet(EAST, Phase.DECODE)], rates) is None


def test_fleet_whose_engines_count_no_tokens_has_no_rate():
    summary = summarise_phase(Phase.DECODE, [assess_fleet(EAST, Phase.DECODE)], ())
    assert summary.tokens_per_second is None
    assert len(summary.recent_tokens_per_second) == 0


def test_fleet_without_placement_has_no_worst_layer():
    unplaced = assess_fleet(EAST, Phase.DECODE, ranks=range(0))
    summary = summarise_phase(Phase.DECODE, [unplaced], ())
    assert summary.worst_layer is None
    assert summary.judged_layers == 0


def test_facts_of_the_planted_expert():
    assessment = assess_fleet(WEST, Phase.DECODE)
    facts = describe_expert(assessment, 3, 23)
    tokens = assessment.window.tokens[2]
    assert facts.per_minute == tokens[23] / 5
    assert facts.times_median == pytest.approx(tokens[23] / np.median(tokens))
    assert facts.capacity_share == pytest.approx(tokens[23] / (tokens.sum() / 8))
    assert (facts.copies, facts.ranks.tolist()) == (1, [2])
    assert facts.is_hot
    assert facts.is_harmful
    assert facts.relief > 1


def test_facts_of_an_ordinary_expert_are_calm():
    facts = describe_expert(assess_fleet(WEST, Phase.DECODE), 4, 23)
    assert not facts.is_hot
    assert facts.relief == 0


@pytest.mark.parametrize(("layer", "expert"), [(0, 23), (6, 23), (3, 64), (3, -1)])
def test_expert_that_the_model_lacks_has_no_facts(layer, expert):
    assert describe_expert(assess_fleet(WEST, Phase.DECODE), layer, expert) is None
