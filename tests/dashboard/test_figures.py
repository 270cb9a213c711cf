"""Figures as pure functions: what they carry, and what they leave out."""

import json

import numpy as np
import pytest

from moescope.analysis.expert_history import ExpertHistory, ExpertSeries
from moescope.analysis.heatmap import PERCENT, CellValue, make_cells
from moescope.dashboard import theme
from moescope.dashboard.figures.expert_history import draw_expert_history
from moescope.dashboard.figures.expert_load import MAX_RINGS, draw_expert_load, zoom_in
from moescope.dashboard.figures.layer_imbalance import draw_layer_imbalance
from moescope.dashboard.labels import rate_title
from moescope.schemas import metrics
from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet, assess_fleet

K3 = KnownFleet(
    num_layers=92, num_experts=896, top_k=16, num_ranks=64, minutes=3, sigma=0.5,
    hot={(Phase.DECODE, 41, 347): 60.0},
)  # fmt: skip


@pytest.fixture(scope="module")
def k3():
    return assess_fleet(K3, Phase.DECODE)


def _draw(assessment, value=CellValue.TIMES_MEDIAN, **options):
    return draw_expert_load(assessment, make_cells(assessment.window, value), acceptable_ratio=2.0, **options)


def _heatmap(figure):
    return next(trace for trace in figure.data if trace.type == "heatmap")


def test_k3_travels_in_about_a_quarter_of_a_megabyte(k3):
    assert len(_draw(k3).to_json()) < 260_000
    assert len(_draw(k3, CellValue.PER_MINUTE).to_json()) < 330_000


def test_cells_say_their_own_numbers(k3):
    cells = _heatmap(_draw(k3))
    tokens = k3.window.tokens
    expected = tokens[40, 347] / np.median(tokens[40])
    assert cells.z.dtype == np.uint16
    assert cells.z[40, 347] / PERCENT == pytest.approx(expected, abs=0.01)
    assert cells.hovertemplate.startswith("Layer %{y}, expert %{x}: <b>%{z:,.0f} %</b> of the layer's median")
    assert cells.text is None
    assert cells.customdata is None


def test_counts_are_assignments_a_minute(k3):
    cells = _heatmap(_draw(k3, CellValue.PER_MINUTE))
    assert cells.z.dtype == np.uint16
    assert cells.z[40, 347] == round(k3.window.tokens[40, 347] / 3)


def test_colours_change_evenly_by_the_octave(k3):
    cells = make_cells(k3.window, CellValue.PER_MINUTE)
    np.testing.assert_allclose(np.diff(np.log2(cells.steps)), 1)
    scale = _heatmap(_draw(k3, CellValue.PER_MINUTE)).colorscale
    assert [color for _, color in scale[1:]] == list(theme.SEQUENTIAL)


def test_colour_scale_is_labelled_at_the_steps_of_the_cells(k3):
    figure = _draw(k3)
    bar = next(trace for trace in figure.data if trace.type == "scatter" and trace.marker.showscale)
    assert bar.marker.colorbar.ticktext == ("¼ ×", "½ ×", "1 ×", "2 ×", "4 ×", "8 ×", "16 ×")
    cells = _heatmap(figure)
    assert [round(at * cells.zmax) for at, _ in cells.colorscale] == [0, 25, 50, 100, 200, 400, 800, 1600]


def test_axis_titles_come_from_the_registry(k3):
    titles = [annotation.text for annotation in _draw(k3, CellValue.PER_MINUTE).layout.annotations]
    assert rate_title(metrics.EXPERT_TOKENS) in titles
    assert rate_title(metrics.EXPERT_TOKENS) == "moe.expert.tokens, tokens a minute"


def test_rings_stand_on_harmful_experts_only(k3):
    rings = next(trace for trace in _draw(k3).data if trace.name == "harmful hot expert")
    assert len(rings.x) == k3.hot_experts.num_harmful < len(k3.hot_experts)
    assert (rings.y[0], rings.x[0]) == (41, 347)
    assert len(rings.x) <= MAX_RINGS


def test_cross_hairs_stand_on_what_was_picked(k3):
    lines = _draw(k3, selected=(7, 79)).layout.shapes
    assert {(line.y0, line.y1) for line in lines} >= {(7, 7)}
    assert {(line.x0, line.x1) for line in lines} >= {(79, 79)}


def test_zoom_shows_the_same_layers_in_both_panels(k3):
    figure = _draw(k3)
    zoom_in(figure, x=(300.5, 400.5), y=(50.5, 30.5))
    assert figure.layout.xaxis.range == (300.5, 400.5)
    assert figure.layout.yaxis.range == figure.layout.yaxis2.range == (50.5, 30.5)


def test_imbalanced_layer_is_the_one_in_another_colour(k3):
    figure = draw_layer_imbalance([k3], acceptable_ratio=2.0)
    colors = figure.data[0].marker.color
    assert [layer for layer, color in zip(figure.data[0].x, colors, strict=True) if color == theme.BAD] == [
        41
    ]


def test_layer_without_tokens_is_drawn_as_a_gap():
    fleet = KnownFleet(tokens_per_minute=0)
    figure = _draw(assess_fleet(fleet, Phase.DECODE))
    assert json.loads(figure.to_json())["data"]


def test_history_without_points_draws_an_empty_panel():
    nothing = ExpertSeries(np.empty(0, "datetime64[ms]"), *(np.empty(0) for _ in range(3)))
    series = dict.fromkeys(Phase, nothing)
    history = ExpertHistory(41, 347, 60, series, 0, np.empty(0, np.int64))
    assert len(draw_expert_history(history, Phase.DECODE).data) == 2


def test_single_point_of_a_history_is_visible():
    one = ExpertSeries(np.array([0], "datetime64[ms]"), *(np.array([7.0]) for _ in range(3)))
    history = ExpertHistory(41, 347, 60, {Phase.DECODE: one, Phase.PREFILL: one}, 1, np.array([3]))
    assert {trace.mode for trace in draw_expert_history(history, Phase.PREFILL).data} == {"markers"}


def test_phases_have_axes_of_their_own():
    many = ExpertSeries(np.array([0, 60_000], "datetime64[ms]"), *(np.array([7.0, 13.0]) for _ in range(3)))
    history = ExpertHistory(41, 347, 60, {Phase.DECODE: many, Phase.PREFILL: many}, 1, np.array([3]))
    figure = draw_expert_history(history, Phase.DECODE)
    assert [trace.yaxis for trace in figure.data] == ["y", "y", "y2", "y2"]
