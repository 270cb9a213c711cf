"""The page of ranks: work, passes, stragglers, waits, and one rank's detail."""

import pytest

from tests.analysis.known_telemetry import DISPATCH, STEPS, WAITS
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/ranks.py"
FLEET = KnownFleet(num_ranks=7, num_layers=3, num_experts=79, minutes=5)
FIGURES = ["rank_work", "rank_times", "wait_matrix", "activated"]


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


def _headings(page):
    return [heading.value for heading in page.subheader]


@pytest.fixture
def is_strict(monkeypatch):
    """The fixtures' waits are milliseconds of a minute: any cost counts."""
    monkeypatch.setenv("MOESCOPE_STRAGGLER_COST_SHARE", "0.0001")


@pytest.mark.usefixtures("is_strict")
def test_rank_that_all_wait_for_is_named_with_the_reports_sentences(open_page, dsn, texts):
    said = texts(open_page(PAGE, dsn))
    assert "Rank 6 is" in said
    assert "Each other rank loses" in said


def test_every_figure_has_ranks_and_sentences_under_the_pointer(open_page, dsn, figure_of):
    page = open_page(PAGE, dsn)
    assert not page.exception
    for key in FIGURES:
        for trace in figure_of(page, key)["data"]:
            assert trace.get("hovertemplate"), (key, trace.get("name"))


def test_rank_of_the_address_is_opened_and_marked(open_page, dsn, figure_of, texts):
    page = open_page(PAGE, dsn, rank="6")
    assert not page.exception
    assert "Rank 6 on node-1" in _headings(page)
    marks = figure_of(page, "rank_work")["layout"]["shapes"]
    assert any((mark["x0"], mark["x1"]) == (5.5, 6.5) for mark in marks if "x1" in mark)
    names = [trace["name"] for trace in figure_of(page, "one_rank")["data"]]
    assert names.count("rank 6") == 4
    assert "It waits for rank" in texts(page)


@pytest.mark.parametrize("rank", ["79", "last"])
def test_rank_that_is_not_there_opens_nothing(open_page, dsn, rank):
    page = open_page(PAGE, dsn, rank=rank)
    assert not page.exception
    assert not any(heading.startswith("Rank ") and " on " in heading for heading in _headings(page))


@pytest.mark.usefixtures("is_strict")
def test_table_lists_every_rank_and_marks_the_named_one(open_page, dsn):
    table = next(one.value for one in open_page(PAGE, dsn).dataframe if "Host" in one.value)
    assert table["Rank"].tolist() == list(range(7))
    assert table[table[""] == "●"]["Rank"].tolist() == [6]
    assert table["Pass"].tolist() == pytest.approx([30.0] * 7)


def test_prefill_has_no_experts_read(open_page, dsn):
    page = open_page(PAGE, dsn, phase="prefill")
    assert not page.exception
    assert "Experts read in one pass" not in _headings(page)


def test_one_rank_alone_is_drawn(open_page, make_telemetry_dsn, figure_of):
    page = open_page(PAGE, make_telemetry_dsn(KnownFleet(num_ranks=1, num_layers=3, minutes=1)), rank="0")
    assert not page.exception
    assert figure_of(page, "rank_work")["data"]


def test_128_ranks_are_drawn(open_page, make_dsn, figure_of):
    page = open_page(PAGE, make_dsn(KnownFleet(num_ranks=128, num_experts=256, minutes=2)), rank="127")
    assert not page.exception
    assert len(figure_of(page, "rank_work")["data"]) == 3
    assert "Rank 127" in _headings(page)


def test_what_is_missing_is_named(open_page, make_telemetry_dsn, texts):
    fleet = KnownFleet(num_ranks=2, num_layers=2, minutes=1)
    page = open_page(PAGE, make_telemetry_dsn(fleet, without=[DISPATCH, STEPS, WAITS]))
    assert not page.exception
    said = texts(page)
    assert "No rank timed its forward passes" in said
    assert "Who is late cannot be told" in said
