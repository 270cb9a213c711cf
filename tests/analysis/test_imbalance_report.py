"""The imbalance report in every state: what it says, within the terminal's width, and true to its schema."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from moescope.analysis.drift import measure_drift
from moescope.analysis.imbalance_answer import answer_imbalance
from moescope.analysis.imbalance_history import ImbalanceHistory
from moescope.analysis.imbalance_report import ImbalanceReport
from moescope.analysis.imbalance_trend import ImbalanceTrend, regret_placement
from moescope.schemas.attributes import Phase
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

HOT = KnownFleet(sigma=0.3, hot={(Phase.DECODE, 3, 23): 40.0, (Phase.DECODE, 3, 22): 40.0})
K3 = KnownFleet(
    service="kimi-k3",
    num_layers=92,
    num_experts=896,
    top_k=16,
    num_ranks=64,
    minutes=2,
    tokens_per_minute=20_000,
    hot={(Phase.DECODE, 41, 347): 60.0},
    phases=(Phase.DECODE,),
)
NAN = np.nan


def _history(assessment, since_window=7):
    """Twelve windows: two without a verdict, then as now; the first layer only from ``since_window`` on."""
    imbalance = assessment.imbalance
    net = np.tile(imbalance.net_ratio, (12, 1))
    imbalanced = np.tile(imbalance.is_imbalanced, (12, 1))
    net[:2], imbalanced[:2] = NAN, False
    net[since_window:, 0], imbalanced[since_window:, 0] = 3.0, True
    net[2:since_window, 0], imbalanced[2:since_window, 0] = 1.0, False
    starts_ms = assessment.window.end_ms - 300_000 * np.arange(12, 0, -1)
    return ImbalanceHistory(starts_ms, 300.0, net, imbalanced)


def _answer(fleet, *, moved=True, passes=5_000, settings=None):
    assessment = assess_fleet(fleet, Phase.DECODE, settings=settings)
    tokens = assessment.window.tokens
    before = np.roll(tokens, 1, axis=1) if moved else tokens
    drift = measure_drift(before, tokens, assessment.design_effect)
    trend = ImbalanceTrend(_history(assessment), drift, 900.0, regret_placement(assessment))
    return answer_imbalance(assessment, passes=passes, trend=trend)


def _report(*answers):
    return ImbalanceReport(answers, limit=3, service=None, settings=Settings())


def _check(report):
    as_printed = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    jsonschema.Draft202012Validator(read_report_schema("imbalance")).validate(as_printed)
    assert max(map(len, report.to_text(100).splitlines())) <= 100
    return " ".join(report.to_text(100).split())


@pytest.fixture(scope="module")
def said():
    return _check(_report(_answer(HOT)))


def test_silent_rank_is_named_before_what_it_makes_of_the_others():
    answer = replace(_answer(HOT), silent_ranks=(3,))
    text = _check(_report(answer))

    assert text.index("Rank 3 is silent and may be dead: no load is counted there since") < text.index(
        "Worst: "
    )
    assert _report(answer).to_dict()["scopes"][0]["silent_ranks"] == [3]
    assert "silent" not in _report(_answer(HOT)).to_text(100)


def test_summary_comes_first_then_layers_then_everything_else():
    text = _report(_answer(HOT)).to_text(100)
    order = ["1 imbalanced layer of 5", "Lasting: ", "All layers: ", "layer  max/mean", "Skew, ", "Idle: "]
    order += ["Drift: ", "Placement: ", "Activated experts"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_layers_that_stay_imbalanced_say_so_and_others_say_since_when(said):
    assert "Lasting: layer 3, imbalanced in each of the last 10 windows of 5 min." in said
    since = "Since " + str(np.datetime64(HOT.end_s - 5 * 300, "s"))[11:16] + " UTC: layer 1, of the last 10"
    assert since in said


def test_three_conventions_stand_side_by_side(said):
    answer = _answer(HOT)
    one, ratio = answer.conventions, answer.assessment.imbalance.ratio
    assert f"TensorRT-LLM (max / mean − 1) {ratio.mean() - 1:.2f}" in said
    assert f"vLLM (Σ mean / Σ max over layers) {one.vllm_balancedness:.2f}" in said
    assert f"SGLang (mean of mean / max) {one.sglang_balancedness:.2f}" in said
    assert f"noise makes the last about {one.single_pass_balancedness:.2f}" in said
    for heading in ("max/mean", "mean/max", "max/mean−1"):
        assert heading in said


def test_bars_show_each_window_of_a_layer():
    lines = _report(_answer(HOT)).to_text(100).splitlines()
    row = next(line for line in lines if line.endswith("imbalanced"))
    assert row.split()[-2] == "··██████████"
    assert "net, 60 min" in " ".join(lines)


def test_drift_and_moves_say_how_much_and_what_to_do(said):
    assert "Drift: all 5 layers use their experts differently than in the 15 min before; most of all" in said
    assert "would have lowered max / mean by" in said
    assert (
        "Re-plan, with a back-test: `moescope plan --service known-fleet --ep-group 0 --max-moved 2%`."
        in said
    )


def test_load_that_stays_is_noise_and_is_left_alone():
    said = _check(_report(_answer(KnownFleet(), moved=False)))
    assert "Drift: no layer uses its experts differently than in the 15 min before" in said
    assert "would have won 0.00 of max / mean a layer in this window, net of noise: leave it." in said


def test_activated_experts_say_that_they_are_estimated_and_what_clustering_does(said):
    assert "Activated experts, estimated from counts of 5" in said
    assert "Tokens are spread worse than that in every layer." in said
    assert "Tokens of a pass that choose alike read fewer: " in said


def test_layer_whose_ranks_differ_more_in_what_they_read_is_counted():
    # The first rank's tokens go to one expert, the others' to all of theirs: as many tokens, fewer reads.
    fleet = KnownFleet(tokens_per_minute=40_000, hot={(Phase.DECODE, 1, e): 1e-6 for e in range(1, 8)})
    fleet.hot[Phase.DECODE, 1, 0] = 8.0
    answer = _answer(fleet, passes=10_000)
    assert answer.reads_are_worse.tolist() == [True, False, False, False, False]
    assert "reads in 1." in _check(_report(answer))


def test_dead_and_cold_experts_are_named_with_the_copies_they_waste():
    class WithCopies(KnownFleet):
        def replicas(self):
            held = super().replicas()
            held[7, 1, 7] = 1
            return held

    said = _check(_report(_answer(WithCopies(hot={(Phase.DECODE, 2, 7): 0.0, (Phase.DECODE, 2, 9): 0.05}))))
    assert (
        "Idle: 1 dead expert (7 in layer 2), 1 cold (9 in layer 2); 1 copy beyond the first is theirs."
        in said
    )


def test_few_tokens_say_how_many_it_takes_to_call_an_expert_dead():
    said = _check(_report(_answer(KnownFleet(tokens_per_minute=79))))
    assert "In 5 layers of 5 there are too few tokens to call an expert dead: it takes 17" in said


def test_report_of_k3_fits_the_terminal_and_names_the_planted_layer():
    said = _check(_report(_answer(K3)))
    assert "1 imbalanced layer of 92 over 64 ranks. Worst: layer 41, where rank 24 does" in said


def test_what_is_not_known_is_left_out_or_said():
    without_placement = answer_imbalance(assess_fleet(HOT, Phase.DECODE, ranks=range(0)))
    without_passes = answer_imbalance(assess_fleet(HOT, Phase.DECODE))
    without_tokens = _answer(KnownFleet(tokens_per_minute=0))
    assert "No rank has said which experts it holds" in _check(_report(without_placement))
    assert "unknown, no engine reports its forward passes (moe.step.tokens)" in _check(
        _report(without_passes)
    )
    assert "Idle" not in _check(_report(without_tokens))
    assert "noise makes the last" not in _check(_report(without_passes))


def test_empty_store_says_what_to_do():
    assert _check(_report()).startswith("No expert load is stored.")
