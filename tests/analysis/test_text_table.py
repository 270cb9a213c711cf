"""Tables and words for a terminal."""

import pytest

from moescope.analysis import words
from moescope.analysis.text_table import Column, render_table

COLUMNS = (Column("layer"), Column("name", left=True))


def test_numbers_stand_right_and_text_left():
    assert render_table(COLUMNS, [["7", "hot"], ["13", "cold"]], 40) == (
        "layer  name\n    7  hot\n   13  cold"
    )


def test_line_too_long_shortens_text_never_numbers():
    lines = render_table(COLUMNS, [["347896", "a rank with a very long name"]], 20).splitlines()
    assert max(map(len, lines)) <= 20
    assert lines[1] == "347896  a rank with…"


def test_table_without_rows_keeps_its_headings():
    assert render_table(COLUMNS, [], 40) == "layer  name"


@pytest.mark.parametrize(
    ("seconds", "text"), [(7, "7 s"), (90, "90 s"), (900, "15 min"), (7200, "2 h"), (3 * 86400, "3 days")]
)
def test_durations_have_one_unit(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (0.25, "0.25"),
        (79.5, "79.5"),
        (999.96, "1.00 k"),
        (1234, "1.23 k"),
        (23_000_000, "23.0 M"),
        (7.9e11, "790 G"),
    ],
)
def test_large_numbers_have_three_digits_and_a_prefix(value, text):
    assert words.compact(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (3.01, "301 %"), (0.013, "1.3 %"), (0.0002, "0.02 %")]
)
def test_small_shares_keep_their_digits(share, text):
    assert words.percent(share) == text


def test_long_lists_of_ranks_end_with_how_many_more():
    assert words.listed("rank", [5]) == "Rank 5"
    assert words.listed("rank", [5, 17, 40]) == "Ranks 5, 17 and 40"
    assert words.listed("rank", list(range(64))) == "Ranks 0, 1, 2, 3, 4, 5 and 58 more"
