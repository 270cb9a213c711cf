"""Skew in the report: the typical layer, the most skewed one, and every layer in JSON."""

import json

import pytest

from moescope.analysis.imbalance_answer import answer_imbalance
from moescope.analysis.imbalance_report import ImbalanceReport
from moescope.analysis.skew import typical
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

FLEET = KnownFleet(sigma=0.3, hot={(Phase.DECODE, 3, 23): 40.0})


def _report(*assessments):
    answers = tuple(answer_imbalance(one) for one in assessments)
    return ImbalanceReport(answers, limit=3, service=None, settings=Settings())


def _skew_lines(answer):
    return [line for line in answer.to_text().splitlines() if "Gini" in line]


def test_text_says_the_typical_layer_and_the_most_skewed_one():
    assessment = assess_fleet(FLEET, Phase.DECODE)
    typical_line, worst_line = _skew_lines(_report(assessment))
    assert typical_line.startswith("Skew, typical layer: busiest fifth ")
    assert f"Gini {typical(assessment.skew.gini):.2f}, " in typical_line
    assert worst_line.startswith("Most skew, layer 3: busiest fifth ")
    assert f"Gini {assessment.skew.gini[2]:.2f}, " in worst_line
    assert (
        f"of {FLEET.num_experts} (entropy {assessment.skew.effective_experts_entropy[2]:.0f})" in worst_line
    )


def test_lines_of_k3_fit_the_terminal():
    k3 = KnownFleet(
        num_layers=92, num_experts=896, top_k=16, num_ranks=64, minutes=1, hot={(Phase.DECODE, 41, 347): 60.0}
    )
    text = _report(assess_fleet(k3, Phase.DECODE)).to_text(100)
    assert "Most skew, layer 41: " in text
    assert max(map(len, text.splitlines())) <= 100


def test_json_has_the_four_measures_of_every_layer():
    assessment = assess_fleet(FLEET, Phase.DECODE)
    (scope,) = _report(assessment).to_dict()["scopes"]
    assert [one["layer"] for one in scope["skew"]] == [1, 2, 3, 4, 5]
    assert scope["skew"][2] == {
        "layer": 3,
        "busiest_fifth_share": pytest.approx(assessment.skew.busiest_fifth_share[2]),
        "gini": pytest.approx(assessment.skew.gini[2]),
        "effective_experts": pytest.approx(assessment.skew.effective_experts[2]),
        "effective_experts_entropy": pytest.approx(assessment.skew.effective_experts_entropy[2]),
    }


def test_skew_needs_no_placement():
    answer = _report(assess_fleet(FLEET, Phase.DECODE, ranks=range(0)))
    assert len(_skew_lines(answer)) == 2
    assert len(answer.to_dict()["scopes"][0]["skew"]) == FLEET.num_layers


def test_fleet_without_tokens_has_no_skew_to_print():
    answer = _report(assess_fleet(KnownFleet(tokens_per_minute=0), Phase.DECODE))
    assert _skew_lines(answer) == []
    assert {one["gini"] for one in answer.to_dict()["scopes"][0]["skew"]} <= {None}
    assert json.dumps(answer.to_dict(), allow_nan=False)
