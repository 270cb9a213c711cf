"""The SQL page: nothing runs by itself, what runs is shown with its cost, and nothing is written."""

import time

import pytest

from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/sql.py"
FLEET = KnownFleet(num_ranks=13, num_layers=3, minutes=3)
PATIENCE_SECONDS = 60
MEASURE = (
    "SELECT layer, sum(activations) AS activations FROM expert_activations_per_minute "
    "GROUP BY layer ORDER BY layer"
)


@pytest.fixture(scope="module")
def dsn(make_dsn):
    return make_dsn(FLEET)


@pytest.fixture
def run_query(open_page, dsn):
    """Open the page with a query in its address, press Run, and wait for the outcome."""

    def run(sql, dsn=dsn):
        page = open_page(PAGE, dsn, q=sql)
        page.button[0].click().run()
        query = page.session_state["sql_query"]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while query.outcome is None:
            assert time.monotonic() < deadline
        return page.run()

    return run


def test_link_fills_the_editor_and_runs_nothing(open_page, dsn):
    page = open_page(PAGE, dsn, q="SELECT 79")
    assert page.text_area[0].value == "SELECT 79"
    assert "sql_query" not in page.session_state
    assert not page.dataframe


def test_page_without_a_link_begins_with_an_example(open_page, dsn):
    assert page_query(open_page(PAGE, dsn)).startswith("SELECT layer, expert")


def page_query(page):
    return page.text_area[0].value


def test_every_view_is_listed_with_units_and_an_example(open_page, dsn, texts):
    said = texts(open_page(PAGE, dsn))
    for name in ("expert_activations_per_minute", "rank_load", "telemetry_health", "gpu"):
        assert f"FROM {name}" in said
    assert (
        "| `duration_ns` | time spent computing the expert in the minute, over all ranks, nanoseconds |"
        in said
    )


def test_example_goes_into_the_editor_and_the_address(open_page, dsn):
    page = open_page(PAGE, dsn)
    next(button for button in page.button if button.key == "use-rank_load").click().run()
    assert "FROM rank_load" in page_query(page)
    assert "sql_query" not in page.session_state


def test_answer_to_another_text_is_not_shown(run_query):
    page = run_query(MEASURE)
    assert page.dataframe
    next(button for button in page.button if button.key == "use-rank_load").click().run()
    assert not page.dataframe


def test_empty_store_says_how_to_get_data(open_page, make_dsn):
    page = open_page(PAGE, make_dsn())
    assert "moescope simulate" in page.info[0].value
    assert page.text_area


def test_rows_are_shown_with_what_they_cost(run_query):
    page = run_query(MEASURE)
    assert not page.exception
    table = page.dataframe[0].value
    assert table.shape == (3, 2)
    assert table.iloc[:, 1].tolist() == [FLEET.tokens_per_minute * FLEET.top_k * FLEET.minutes * 2] * 3
    cost = next(caption.value for caption in page.caption if "rows read" in caption.value)
    assert cost.startswith("3 rows · ")


def test_chart_has_axes_and_says_what_is_under_the_pointer(run_query, figure_of):
    figure = figure_of(run_query(MEASURE), "sql-chart")
    assert figure["layout"]["yaxis"]["title"]["text"] == "activations"
    assert figure["layout"]["xaxis"]["title"]["text"] == "layer"
    assert "activations" in figure["data"][0]["hovertemplate"]


def test_numbers_beyond_what_browsers_count_stay_exact(run_query):
    page = run_query("SELECT 18446744073709551615 AS big, 7 AS small")
    assert page.dataframe[0].value.iloc[0].tolist() == ["18446744073709551615", 7]


@pytest.mark.parametrize("sql", ["DROP TABLE expert_load", "INSERT INTO token_count VALUES (1)"])
def test_write_is_refused_in_words(run_query, texts, sql):
    page = run_query(sql)
    assert "This page only reads" in texts(page)
    assert "Nothing was changed" in texts(page)
    assert not page.dataframe


def test_error_points_at_its_place(run_query, texts):
    page = run_query("SELECT layer\nFRMO rank_load")
    assert "The query cannot be read" in texts(page)
    assert "FRMO rank_load\n     ▲" in texts(page)
    assert "Line 2, column 6." in texts(page)


def test_query_without_rows_says_so(run_query, texts):
    assert "No row matches" in texts(run_query("SELECT time FROM gpu"))


def test_query_under_way_can_be_cancelled(open_page, dsn, texts):
    page = open_page(
        PAGE, dsn, q="SELECT count() FROM numbers(790000000000) WHERE cityHash64(number) % 13 = 0"
    )
    page.button[0].click().run()
    assert "Running for" in texts(page)
    next(button for button in page.button if button.key == "sql-cancel").click().run()
    assert page.session_state["sql_query"].wait(PATIENCE_SECONDS).title == "Cancelled"


def test_store_that_is_away_is_named(open_page, tmp_path, texts):
    page = open_page(PAGE, f"chdb://{tmp_path}/absent")
    assert not page.exception
    assert "The store does not answer" in texts(page)
