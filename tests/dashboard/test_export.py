"""Every figure gives away its numbers and itself."""

import io
import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from moescope.analysis.heatmap import CellValue, make_cells
from moescope.dashboard.export import write_csv
from moescope.dashboard.figure_data import drawn_values
from moescope.dashboard.figures.expert_load import draw_expert_load
from moescope.dashboard.figures.panels import PanelTitle, add_line, make_panels
from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet, assess_fleet

TIMES = np.array([0, 60_000], "datetime64[ms]")


def test_points_carry_their_panel_their_series_and_the_axis_titles():
    figure = make_panels([PanelTitle("Running", "moe.requests.running, requests")], columns=1, revision="one")
    for name, values in (("p50", [7.0, 13.0]), ("p99", [23.0, 79.0])):
        add_line(figure, (1, 1), TIMES, np.array(values), name=name, hover="", line={})
    table = drawn_values(figure)
    assert table.columns.tolist() == ["panel", "series", "Time (UTC)", "y"]
    assert table["panel"].unique().tolist() == ["Running, moe.requests.running, requests"]
    assert table[table["series"] == "p99"]["y"].tolist() == [23.0, 79.0]


def test_every_cell_of_a_heatmap_is_a_row():
    fleet = KnownFleet(num_layers=3, num_experts=23, num_ranks=13)
    assessment = assess_fleet(fleet, Phase.DECODE)
    cells = make_cells(assessment.window, CellValue.PER_MINUTE)
    figure = draw_expert_load(assessment, cells, acceptable_ratio=2.0)
    found = drawn_values(figure).dropna(subset="value")
    assert len(found) == 3 * 23
    assert found["value"].tolist() == figure.data[0].z.ravel().tolist()
    assert found["x"].tolist()[:24] == [*range(23), 0]


def test_figure_without_points_is_an_empty_table():
    assert drawn_values(go.Figure()).empty


def test_csv_opens_with_the_letters_that_it_was_written_with():
    text = write_csv(pd.DataFrame({"× median": [1.5], "layer": [41]}))
    assert text.startswith("\N{BYTE ORDER MARK}".encode())
    assert pd.read_csv(io.BytesIO(text)).to_dict("list") == {"× median": [1.5], "layer": [41]}


def _draw_two():
    import pandas as pd
    import plotly.graph_objects as go

    from moescope.dashboard.export import show_figure

    show_figure(go.Figure(go.Bar(x=[0, 1], y=[7, 13])), key="drawn_load", alt="Load.", name="load")
    show_figure(
        go.Figure(go.Bar(x=[0], y=[7])), key="own", alt="Own.", data=lambda: pd.DataFrame({"rank": [5]})
    )


@pytest.fixture(scope="module")
def page():
    page = AppTest.from_function(_draw_two).run()
    assert not page.exception
    return page


def test_figure_has_a_button_for_its_numbers(page):
    assert [button.label for button in page.get("download_button")] == ["CSV", "CSV"]
    assert [button.proto.deferred_file_id != "" for button in page.get("download_button")] == [True, True]


def test_picture_is_the_only_button_of_the_figure_itself(page):
    config = json.loads(page.get("plotly_chart")[0].proto.config)
    assert config["modeBarButtons"] == [["toImage"]]
    assert config["toImageButtonOptions"]["filename"] == "moescope-load"
    assert (
        json.loads(page.get("plotly_chart")[1].proto.config)["toImageButtonOptions"]["filename"]
        == "moescope-own"
    )
