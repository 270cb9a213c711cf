"""The page of expert load: the heatmap, what is ringed, and one expert's history."""

import json

import pytest

from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/expert_load.py"
FLEET = KnownFleet(num_layers=7, num_experts=79, num_ranks=13, sigma=0.3, hot={(Phase.DECODE, 5, 23): 60.0})


@pytest.fixture(scope="module")
def dsn(make_dsn):
    return make_dsn(FLEET)


def _figure(page, index=0):
    return json.loads(page.get("plotly_chart")[index].proto.spec)


def _trace(page, kind, index=0):
    return next(trace for trace in _figure(page, index)["data"] if trace["type"] == kind)


def _headings(page):
    return [heading.value for heading in page.subheader]


def test_most_harmful_expert_is_ringed_and_opened(open_page, dsn):
    page = open_page(PAGE, dsn)
    assert not page.exception
    rings = next(trace for trace in _figure(page)["data"] if trace.get("name") == "harmful hot expert")
    assert (rings["y"], rings["x"]) == ([5], [23])
    assert _headings(page)[0] == "Expert 23 of layer 5"
    assert any("harmful" in text.value for text in page.markdown)


def test_address_opens_an_experts_history(open_page, dsn):
    page = open_page(PAGE, dsn, layer="2", expert="13", phase="prefill")
    assert _headings(page)[0] == "Expert 13 of layer 2"
    history = [trace["name"] for trace in _figure(page, 1)["data"]]
    assert history == ["median of the layer", "prefill", "median of the layer", "decode"]


def test_clicked_cell_stands_in_the_address(open_page, dsn, monkeypatch):
    from moescope.dashboard import chart_events

    monkeypatch.setattr(chart_events, "watch_chart", lambda _key, on_click, subject: on_click(3, 7))
    page = open_page(PAGE, dsn)
    assert page.query_params == {"layer": "3", "expert": "7"}
    assert _headings(page.run())[0] == "Expert 7 of layer 3"


def test_phase_in_the_address_chooses_what_is_drawn(open_page, dsn):
    page = open_page(PAGE, dsn, phase="prefill")
    rings = next(trace for trace in _figure(page)["data"] if trace.get("name") == "harmful hot expert")
    assert rings["x"] == []


def test_cells_travel_as_numbers_without_text(open_page, dsn):
    for show in ("of median", "per minute"):
        cells = _trace(open_page(PAGE, dsn, show=show), "heatmap")
        assert cells["z"]["dtype"] == "u2"
        assert cells["z"]["shape"] == "7, 79"
        assert "text" not in cells
        assert "customdata" not in cells


def test_imbalance_of_each_layer_stands_beside_the_heatmap(open_page, dsn):
    bars = _trace(open_page(PAGE, dsn), "bar")
    assert len(bars["customdata"]) == 7
    assert bars["marker"]["color"].count(bars["marker"]["color"][4]) == 1


def test_ranking_lists_the_planted_expert_first(open_page, dsn):
    table = open_page(PAGE, dsn).dataframe[0].value
    assert table.iloc[0][["Layer", "Expert"]].tolist() == [5, 23]
    assert table.iloc[0][""] == "●"


def test_expert_that_the_model_lacks_is_said_to_be_missing(open_page, dsn):
    page = open_page(PAGE, dsn, layer="0", expert="13")
    assert page.info[0].value == "The model has no expert 13 in layer 0."
    assert not page.exception


def test_window_held_still_stays_in_the_address(open_page, dsn):
    until = str((FLEET.end_s - 60) * 1000)
    page = open_page(PAGE, dsn, until=until)
    assert not page.toggle[0].value
    assert page.toggle[0].label == "Live"
    assert page.caption[0].value.startswith("4 min to ")
    assert "In the typical layer the busiest fifth gets " in page.caption[0].value
    assert "(Gini 0." in page.caption[0].value


def test_switching_live_off_puts_the_end_of_the_window_into_the_address(open_page, dsn):
    page = open_page(PAGE, dsn)
    assert page.toggle[0].value
    page.toggle[0].set_value(False).run()
    assert page.query_params["until"] == str(FLEET.end_s * 1000)
    page.toggle[0].set_value(True).run()
    assert "until" not in page.query_params


def test_nonsense_in_the_address_is_ignored(open_page, dsn):
    page = open_page(PAGE, dsn, window="a fortnight", until="tomorrow", layer="top", expert="best")
    assert not page.exception
    assert _headings(page)[0] == "Expert 23 of layer 5"


def test_phase_that_is_not_served_is_explained(open_page, make_dsn):
    page = open_page(PAGE, make_dsn(KnownFleet(phases=(Phase.DECODE,))), phase="prefill")
    assert "Nothing of prefill is stored" in page.info[0].value
    assert not page.exception


def test_one_rank_needs_no_strip_of_imbalance(open_page, make_dsn):
    page = open_page(PAGE, make_dsn(KnownFleet(num_ranks=1)))
    assert not page.exception
    assert "bar" not in [trace["type"] for trace in _figure(page)["data"]]


def test_fleet_without_hot_experts_invites_a_click(open_page, make_dsn):
    page = open_page(PAGE, make_dsn(KnownFleet(sigma=0.05)))
    captions = [caption.value for caption in page.caption]
    assert "Click a cell to see its expert's history." in captions
    assert "No expert is certainly above its layer's usual." in captions


def test_empty_store_says_how_to_fill_it(open_page, make_dsn, texts):
    assert "moescope simulate --model kimi-k3" in texts(open_page(PAGE, make_dsn()))


def test_zoom_survives_a_refresh_and_ends_with_its_subject(open_page, dsn):
    from moescope.dashboard.chart_events import Zoom

    page = open_page(PAGE, dsn)
    page.session_state["expert_load_chart_zoom"] = ("known-fleet/0", Zoom((10.5, 30.5), (4.5, 1.5)))
    assert _figure(page.run())["layout"]["xaxis"]["range"] == [10.5, 30.5]
    page.session_state["expert_load_chart_zoom"] = ("elsewhere/0", Zoom((10.5, 30.5), (4.5, 1.5)))
    assert _figure(page.run())["layout"]["xaxis"]["range"] == [-0.5, 78.5]


def test_expert_has_its_time_its_weights_and_its_failovers(open_page, make_telemetry_dsn, texts, figure_of):
    fleet = KnownFleet(num_ranks=3, num_layers=3, minutes=2)
    page = open_page(PAGE, make_telemetry_dsn(fleet), layer="3", expert="7")
    assert not page.exception
    said = texts(page)
    assert "Its weights take 12.4 MiB." in said
    assert "Another copy stood in for it 14 times in this window (14 rank down)." in said
    titles = [note["text"] for note in figure_of(page, "expert_latency")["layout"]["annotations"]]
    assert "Decode, time a token" in titles[0]
    assert "moe.expert.group.duration, apportioned" in titles[0]


def test_expert_without_other_metrics_has_its_load_alone(open_page, dsn):
    assert len(open_page(PAGE, dsn).get("plotly_chart")) == 2
