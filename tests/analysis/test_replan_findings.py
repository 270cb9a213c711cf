"""Moving experts is advised where the load drifted and the placement no longer fits, and nowhere else."""

import dataclasses
import re

import numpy as np
import pytest

from moescope.analysis.assessment import read_assessment
from moescope.analysis.expert_load import list_scopes
from moescope.analysis.finding import Severity
from moescope.analysis.findings import list_findings
from moescope.analysis.imbalance_trend import (
    choose_step_seconds,
    compare_halves,
    read_change,
    read_trend,
    regret_placement,
)
from moescope.analysis.quality import judge_quality
from moescope.analysis.replan_findings import describe_replan, most_regret, read_replan_findings
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

SETTINGS = Settings()
STEADY = KnownFleet(service="steady", minutes=24, sigma=0.7, phases=(Phase.DECODE,))
BEFORE = KnownFleet(service="shifted", minutes=12, sigma=0.0, phases=(Phase.DECODE,))
BEFORE = dataclasses.replace(BEFORE, end_s=BEFORE.end_s - 12 * 60)
HOT_PAIR = {(Phase.DECODE, layer, expert): 9.0 for layer in (2, 3, 5) for expert in (8, 9)}
AFTER = KnownFleet(service="shifted", minutes=12, hot=HOT_PAIR, phases=(Phase.DECODE,), end_s=STEADY.end_s)
WINDOW_SECONDS = 12 * 60.0


@pytest.fixture(scope="module")
def store(either_store):
    return either_store(STEADY, BEFORE, AFTER)


def _assess(store, service):
    scope = next(one for one in list_scopes(store) if one.service == service)
    return read_assessment(store, scope, WINDOW_SECONDS, SETTINGS)


def test_shifted_load_that_the_placement_no_longer_fits_is_a_warning_that_says_what_to_do(store):
    (finding,) = read_replan_findings(store, [_assess(store, "shifted")], SETTINGS)
    assert finding.severity is Severity.WARNING
    assert finding.title.startswith("Decode: the placement no longer fits the load; moving ")
    assert "other experts than in the 12 min before, in 3 of 5 layers: " in finding.detail
    assert re.search(r" % of them in layer [235], noise of ", finding.detail)
    assert "`moescope plan --service shifted --ep-group 0 --max-moved 2%`" in finding.detail
    assert finding.layer in {2, 3, 5}
    assert finding in list_findings([], judge_quality([]), SETTINGS, [finding])


def test_placement_that_was_no_better_before_the_load_drifted_is_a_note(store):
    assessment = _assess(store, "shifted")
    change = read_change(store, assessment, SETTINGS)
    assert change.worsening > SETTINGS.replan_min_gain
    same = dataclasses.replace(change, worsening=-0.01)
    finding = describe_replan(assessment, same, regret_placement(assessment), SETTINGS, names_group=True)
    assert finding.severity is Severity.NOTE
    assert finding.title.startswith("Decode, EP group 0: the placement could fit the load better; moving ")
    assert "Max / mean fell by 0.01 a layer" in finding.detail


def test_skewed_load_that_stays_as_it_is_gives_no_finding(store):
    assessment = _assess(store, "steady")
    assert most_regret(assessment) > SETTINGS.replan_min_gain
    assert read_replan_findings(store, [assessment], SETTINGS) == ()


def test_trend_knows_since_when_what_drifted_and_what_moves_win(store):
    trend = read_trend(store, _assess(store, "shifted"), SETTINGS)
    assert trend.history.seconds == 240
    assert trend.drift_seconds == 720
    assert np.flatnonzero(trend.drift.is_significant).tolist() == [1, 2, 4]
    ratio = trend.history.net_ratio[:, 1]
    assert np.isnan(ratio[:6]).all()
    assert (ratio[6:9] < 1.1).all()
    assert (ratio[9:] > 1.5).all()
    assert trend.regret.mean > SETTINGS.replan_min_gain


def test_fleet_that_has_only_just_started_has_not_drifted(store):
    young = _assess(store, "steady")
    tokens = np.zeros((12, *young.window.tokens.shape), dtype=np.int64)
    tokens[-3:] = 79
    assert compare_halves(tokens, young) is None


def test_worst_layers_alone_give_a_lower_bound():
    assessment = assess_fleet(KnownFleet(num_layers=7, sigma=0.7), Phase.DECODE)
    every, some = regret_placement(assessment), regret_placement(assessment, max_layers=2)
    assert (some.moved_per_layer > 0).sum() <= 2
    assert 0 < some.mean <= every.mean + 1e-9
    assert some.moved <= 0.02 * 7 * 64 + 1e-9
    np.testing.assert_allclose(some.ratio_now, every.ratio_now)


@pytest.mark.parametrize("ranks", [range(0), range(7)])
def test_placement_that_is_not_known_in_full_cannot_be_regretted(ranks):
    assert regret_placement(assess_fleet(KnownFleet(), Phase.DECODE, ranks=ranks)) is None


@pytest.mark.parametrize("cluster", [1, 8, 30])
@pytest.mark.parametrize("mean", [1, 5, 20, 100])
def test_uniform_router_never_asks_for_moves(mean, cluster):
    rng = np.random.default_rng([mean, cluster])
    counts = cluster * rng.poisson(mean / cluster / 6, (12, 5, 896))
    fleet = KnownFleet(num_experts=896, num_ranks=64, minutes=6)

    class Uniform(KnownFleet):
        def counts(self, phase):
            return counts[6:]

    assessment = assess_fleet(Uniform(**dataclasses.asdict(fleet)), Phase.DECODE)
    drift = compare_halves(counts, assessment)
    regret = regret_placement(assessment)
    assert not (drift.is_significant.any() and regret.mean >= SETTINGS.replan_min_gain)
    assert not drift.is_significant.any()


@pytest.mark.parametrize(
    ("window", "step"),
    [(60, 60), (300, 120), (900, 300), (3600, 1200), (6 * 3600, 7200), (86_400, 28_800), (7.5, 60)],
)
def test_steps_are_what_the_roll_ups_divide(window, step):
    assert choose_step_seconds(window) == step
