"""The page of health: who reports, what was computed, and what the machines say."""

import pytest

from tests.analysis.known_telemetry import FAILED_EXPERT
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/health.py"
FLEET = KnownFleet(num_ranks=13, num_layers=3, minutes=3)


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


def test_every_process_has_a_row_with_its_component(open_page, dsn):
    table = open_page(PAGE, dsn).dataframe[0].value
    assert table["Component"].value_counts().to_dict() == {"rank": 13, "scheduler": 1, "frontend": 1}
    counting = table[table["Tokens"] != ""]
    assert counting["EP rank"].tolist() == [0]
    assert counting["Reconciled"].tolist() == ["yes"]
    assert table["Failures"].sum() == 0


def test_excluded_rows_are_drawn_apart_from_the_load(open_page, dsn, figure_of, texts):
    page = open_page(PAGE, dsn)
    traces = figure_of(page, "tokens")["data"]
    assert [one["name"] for one in traces] == ["prefill", "decode", "decode padding"]
    assert [one["xaxis"] for one in traces] == ["x", "x", "x2"]
    assert "of all rows are no part of the load" in texts(page)


def test_gpus_are_drawn_by_rank(open_page, dsn, figure_of):
    busy, memory, links = figure_of(open_page(PAGE, dsn), "gpus")["data"]
    assert busy["x"] == [str(rank) for rank in range(13)]
    assert busy["y"] == pytest.approx([0.79] * 13)
    assert memory["y"] == pytest.approx([115 / 141] * 13)
    assert links["customdata"][5] == "node-1 GPU-5"


def test_failovers_name_the_expert_and_the_reason(open_page, dsn, texts):
    page = open_page(PAGE, dsn)
    assert "21 times another copy served" in texts(page)
    row = page.dataframe[1].value.iloc[0]
    assert (row["Layer"], row["Expert"], row["Failovers"]) == (3, FAILED_EXPERT, 21)
