"""Which chart suits an answer."""

import pytest

from moescope.analysis.sql_answer import Column, Cost, SqlAnswer, kind_of
from moescope.analysis.sql_chart import ROWS, ChartChoice, ChartKind, choose_chart, lay_out

NO_COST = Cost(None, None, None, None)


def answer_of(**columns):
    """An answer from name=(type, values)."""
    made = tuple(
        Column(name, type_, kind_of(type_), tuple(values)) for name, (type_, values) in columns.items()
    )
    return SqlAnswer(made, len(made[0].cells), False, "", "", NO_COST, "id")


TIMES = ("DateTime64(0, 'UTC')", ["2026-01-02 03:04:00", "2026-01-02 03:05:00", "2026-01-02 03:06:00"])


@pytest.mark.parametrize(
    ("columns", "choice"),
    [
        ({"time": TIMES, "mean_seconds": ("Float64", [1, 2, 3])}, ("time", "mean_seconds", "")),
        (
            {"layer": ("UInt16", [7, 7, 13]), "expert": ("UInt16", [79, 23, 7]), "n": ("UInt64", [3, 2, 1])},
            (ROWS, "n", ""),
        ),
        ({"pool": ("String", ["a", "b", "c"]), "bytes": ("UInt64", [3, 2, 1])}, ("pool", "bytes", "")),
        ({"load": ("Float64", [1, 2, 3]), "seconds": ("Float64", [4, 5, 6])}, ("load", "seconds", "")),
        (
            {"ep_rank": ("UInt16", [0, 1, 2]), "share": ("Decimal(9, 2)", ["1.5", "2", "3"])},
            ("ep_rank", "share", ""),
        ),
        ({"layer": ("UInt16", [1, 2, 3]), "expert": ("UInt16", [7, 8, 9])}, ("layer", "expert", "")),
    ],
)
def test_columns_are_chosen_by_what_they_are(columns, choice):
    chosen = choose_chart(answer_of(**columns))
    assert (chosen.x, chosen.y, chosen.series) == choice


@pytest.mark.parametrize(
    "columns",
    [
        {"n": ("UInt64", [79])},
        {"a": ("String", ["x", "y"]), "b": ("String", ["x", "y"])},
        {"n": ("UInt64", [7, 13])},
    ],
)
def test_what_cannot_be_drawn_is_not(columns):
    assert choose_chart(answer_of(**columns)) is None


def test_lines_are_told_apart_by_what_gives_one_value_a_place():
    two = answer_of(
        time=("DateTime", ["2026-01-02 03:04:00"] * 2 + ["2026-01-02 03:05:00"] * 2),
        source=("String", ["x", "x", "y", "y"]),
        phase=("String", ["decode", "prefill"] * 2),
        seconds=("Float64", [1.0, 2.0, 3.0, 4.0]),
    )
    choice = choose_chart(two)
    assert choice == ChartChoice("time", "seconds", "phase")
    chart = lay_out(two, choice)
    assert chart.kind is ChartKind.LINE
    assert {one.name: one.y for one in chart.series} == {"decode": (1.0, 3.0), "prefill": (2.0, 4.0)}


def test_newest_first_is_drawn_from_left_to_right():
    answer = answer_of(
        time=("DateTime", ["2026-01-02 03:05:00", "2026-01-02 03:04:00"]), n=("UInt64", [13, 7])
    )
    (line,) = lay_out(answer, ChartChoice("time", "n", "")).series
    assert line.y == (7, 13)


def test_ranks_are_in_the_order_of_their_numbers():
    ranks = [11, 2, 0, 23]
    answer = answer_of(
        time=("DateTime", ["2026-01-02 03:05:00"] * 4), ep_rank=("UInt16", ranks), n=("UInt64", [1, 2, 3, 4])
    )
    chart = lay_out(answer, ChartChoice("time", "n", "ep_rank"))
    assert [one.name for one in chart.series] == ["ep_rank 0", "ep_rank 2", "ep_rank 11", "ep_rank 23"]


def test_more_lines_than_anybody_tells_apart_are_left_out_and_counted():
    answer = answer_of(
        layer=("UInt16", [7] * 23),
        name=("String", [f"n{n}" for n in range(23)]),
        n=("UInt64", list(range(23))),
    )
    chart = lay_out(answer, ChartChoice("layer", "n", "name"))
    assert len(chart.series) == 16
    assert chart.left_out == "The first 16 of 23 lines are drawn."


def test_bars_stand_together_by_what_comes_with_each_name():
    answer = answer_of(
        ep_rank=("UInt16", [0, 0, 1, 1]),
        pool=("String", ["weights", "runtime"] * 2),
        used_bytes=("UInt64", [79, 23, 13, 7]),
    )
    assert choose_chart(answer) == ChartChoice("ep_rank", "used_bytes", "pool")


def test_rows_that_nothing_tells_apart_have_a_place_each():
    answer = answer_of(
        layer=("UInt16", [40, 40, 7]),
        expert=("UInt16", [347, 347, 13]),
        phase=("String", ["decode", "prefill", "decode"]),
        activations=("UInt64", [79, 23, 13]),
    )
    choice = choose_chart(answer)
    assert choice == ChartChoice(ROWS, "activations", "")
    chart = lay_out(answer, choice)
    assert chart.kind is ChartKind.BAR
    assert chart.series[0].x == (
        "layer 40, expert 347, decode",
        "layer 40, expert 347, prefill",
        "layer 7, expert 13, decode",
    )
