"""The reports, from a store to the terminal and to JSON."""

import json

import jsonschema
import pytest

from moescope.analysis import report
from moescope.schemas.attributes import Phase
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet

SETTINGS = Settings()
FLEET = KnownFleet(sigma=0.3, hot={(Phase.DECODE, 3, 23): 40.0})
WINDOW = {"window_seconds": 300.0, "settings": SETTINGS}


@pytest.fixture(scope="module")
def store(known_store):
    return known_store(FLEET)


def _scope(answer, phase):
    return next(one for one in answer.to_dict()["scopes"] if one["phase"] == phase)


def test_hotspots_name_the_planted_expert_first(store):
    answer = report.hotspots(store, **WINDOW)
    first = _scope(answer, "decode")["experts"][0]
    assert (first["layer"], first["expert"], first["harmful"]) == (3, 23, True)
    assert first["assignments"] == FLEET.counts(Phase.DECODE)[:, 2, 23].sum()
    assert _scope(answer, "prefill")["harmful_experts"] == 0
    assert answer.has_problem


def test_hotspots_fit_the_terminal(store):
    text = report.hotspots(store, **WINDOW).to_text(100)
    assert "known-fleet, EP group 0, decode: 5 min to " in text
    assert max(map(len, text.splitlines())) <= 100
    said = " ".join(text.split())
    assert "1 harmful. Where copies help: `moescope plan --service known-fleet --ep-group 0`." in said
    assert "0 harmful: no copy takes much of a rank, and none makes a layer imbalanced." in said
    assert "relief: by so much max / mean of the layer would fall without it." in said
    planted = next(line.split() for line in text.splitlines() if line.endswith("harmful"))
    assert planted[:2] == ["3", "23"]


def test_imbalance_lists_every_layer_in_json_and_the_worst_first_in_text(store):
    answer = report.imbalance(store, **WINDOW)
    layers = _scope(answer, "decode")["layers"]
    assert [one["layer"] for one in layers] == [1, 2, 3, 4, 5]
    assert [one["verdict"] for one in layers] == ["ok", "ok", "imbalanced", "ok", "ok"]
    assert layers[2]["hottest_rank"] == 2
    assert answer.to_dict()["formula"]["ratio"] == "max / mean rank load"
    section = answer.to_text().split("decode: ")[1].splitlines()
    heading = next(number for number, line in enumerate(section) if line.startswith("layer  max/mean"))
    assert section[heading + 1].split()[0] == "3"
    assert max(map(len, answer.to_text(100).splitlines())) <= 100


@pytest.mark.parametrize("name", ["hotspots", "imbalance"])
def test_answers_of_a_fleet_with_hot_experts_are_what_their_schema_says(store, name):
    answer = getattr(report, name)(store, **WINDOW).to_dict()
    jsonschema.Draft202012Validator(read_report_schema(name)).validate(json.loads(json.dumps(answer)))
    assert answer["scopes"][0]["assignments"] > 0


def test_quality_shows_that_counts_equal_tokens_times_top_k_times_layers(store):
    answer = report.quality(store)
    (process,) = answer.to_dict()["instances"]
    assert process["tokens"] == 2 * 5 * FLEET.tokens_per_minute
    assert process["assignments"] == process["tokens"] * FLEET.top_k * FLEET.num_layers
    assert process["missing_assignments"] == 0
    assert "1 rank reporting" in answer.to_text() or "1 silent" in answer.to_text()


def test_reports_are_plain_json(store):
    for answer in (
        report.hotspots(store, **WINDOW),
        report.imbalance(store, **WINDOW),
        report.quality(store),
    ):
        assert json.loads(json.dumps(answer.to_dict(), allow_nan=False)) == answer.to_dict()


def test_service_that_is_not_there_gets_the_way_out(store):
    text = report.hotspots(store, **WINDOW, service="elsewhere").to_text()
    assert text.startswith("No expert load is stored of elsewhere.")
    assert "moescope simulate" in text
    assert not report.hotspots(store, **WINDOW, service="elsewhere").has_problem
