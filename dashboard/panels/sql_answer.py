"""What a query brought back: rows, a chart, what it cost; or why it brought nothing."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from moescope.analysis import words
from moescope.analysis.sql_answer import Column, SqlAnswer, ValueKind
from moescope.analysis.sql_chart import ROWS, ChartChoice, choose_chart, lay_out, measures, names_rows
from moescope.analysis.sql_problem import ProblemKind, SqlProblem
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.sql import draw_answer

_MAX_EXACT: Final = 2**53
"""Beyond it a browser's numbers round: such columns go there as text."""
_MAX_HEIGHT: Final = 560
_ROW_HEIGHT: Final = 35
_MAX_SHOWN_TEXT: Final = 100_000
_ONE_LINE: Final = "one line"


def show_answer(answer: SqlAnswer, *, limit: int, seconds: float) -> None:
    """Show rows, chart, download and cost."""
    with st.container(border=True, gap="small"):
        _show_cost(answer, seconds)
        if answer.own_format:
            _show_text(answer)
            return
        if answer.is_cut:
            st.warning(
                f"Only the first {words.integer(limit)} rows came; there are more. Narrow the query, or take "
                "all of them from the SQL endpoint with curl.",
                icon=":material/content_cut:",
            )
        if not answer.row_count:
            st.info(
                "No row matches. The query ran; look at more time, or at other names.",
                icon=":material/info:",
            )
        choice = choose_chart(answer)
        if choice is None:
            _show_rows(answer)
            return
        rows, chart = st.tabs(["Table", "Chart"], key=f"sql-tabs-{answer.query_id}")
        with rows:
            _show_rows(answer)
        with chart:
            _show_chart(answer, choice)


def show_problem(problem: SqlProblem) -> None:
    """Show why there is no answer, where in the text, and what to do."""
    icon = {
        ProblemKind.WRITE: ":blue[:material/lock:]",
        ProblemKind.CANCELLED: ":gray[:material/cancel:]",
    }.get(problem.kind, ":red[:material/error:]")
    with st.container(border=True, gap="small"):
        st.subheader(f"{icon} {problem.title}", anchor=False)
        if problem.place is not None:
            place = problem.place
            st.code(f"{place.text}\n{' ' * (place.column - 1)}▲", language=None)
            st.caption(f"Line {place.line}, column {place.column}.")
        st.text(problem.message)
        if problem.advice:
            st.markdown(problem.advice)
        if problem.code is not None:
            st.caption(f"ClickHouse's error {problem.code}, {problem.name or 'without a name'}.")
        if problem.detail != problem.message:
            with st.expander("All that the store said"):
                st.text(problem.detail)


def _show_cost(answer: SqlAnswer, seconds: float) -> None:
    cost = answer.cost
    rows = "" if answer.own_format else words.count(answer.row_count, "row")
    parts = [
        rows,
        f"{words.seconds(seconds)} in all",
        f"{words.seconds(cost.seconds)} in the store" if cost.seconds else "",
        f"{words.compact(cost.read_rows)} rows read" if cost.read_rows is not None else "",
        f"{words.si_bytes(cost.read_bytes)} read" if cost.read_bytes is not None else "",
        f"{words.binary_bytes(cost.memory_bytes)} of memory" if cost.memory_bytes is not None else "",
    ]
    st.caption(" · ".join(part for part in parts if part), help=f"Query id: `{answer.query_id}`")


def _show_rows(answer: SqlAnswer) -> None:
    table = pd.DataFrame({index: _cells(column) for index, column in enumerate(answer.columns)})
    st.dataframe(
        table,
        hide_index=True,
        height=min(_MAX_HEIGHT, _ROW_HEIGHT * (max(answer.row_count, 1) + 1) + 3),
        key=f"sql-rows-{answer.query_id}",
        column_config={str(index): _config(column) for index, column in enumerate(answer.columns)},
        alt="The rows of the answer.",
    )
    _download(answer.csv, "CSV", "csv", "text/csv", answer.query_id)


def _cells(column: Column) -> pd.Series[Any]:
    values = column.cells
    if column.kind is ValueKind.INTEGER:
        is_exact = all(value is None or abs(int(value)) <= _MAX_EXACT for value in values)
        if is_exact:
            return pd.Series(values, dtype="Int64")
        return pd.Series([None if value is None else str(value) for value in values], dtype="object")
    if column.kind is ValueKind.FLOAT:
        return pd.Series(values, dtype="float64")
    return pd.Series(values, dtype="object")


def _config(column: Column) -> Any:
    note = column.type
    if column.kind is ValueKind.FLOAT:
        return st.column_config.NumberColumn(column.name, help=note, format="%.6g")
    if column.kind is ValueKind.INTEGER:
        return st.column_config.Column(column.name, help=note)
    return st.column_config.TextColumn(column.name, help=note)


def _show_chart(answer: SqlAnswer, suggested: ChartChoice) -> None:
    names = [column.name for column in answer.columns]
    with st.container(horizontal=True, gap="medium"):
        along = _choose("Along", [*([ROWS] if names_rows(answer) else []), *names], suggested.x, answer)
        up = _choose("Up", [column.name for column in measures(answer)], suggested.y, answer)
        apart = _choose("Lines by", [_ONE_LINE, *names], suggested.series or _ONE_LINE, answer)
    chart = lay_out(answer, ChartChoice(along, up, "" if apart == _ONE_LINE else apart))
    show_figure(
        draw_answer(chart),
        key=f"sql-chart-{answer.query_id}",
        name="query",
        alt=f"{up} by {along} as the query answered.",
    )
    if chart.left_out:
        st.caption(chart.left_out)


def _choose(label: str, options: list[str], suggested: str, answer: SqlAnswer) -> str:
    # A query may name two columns alike.
    options = list(dict.fromkeys(options))
    key = f"sql-{label}-{answer.query_id}"
    return str(st.selectbox(label, options, index=options.index(suggested), key=key, width=176))


def _show_text(answer: SqlAnswer) -> None:
    st.caption(f"As the query asks: `FORMAT {answer.own_format}`.")
    st.code(answer.text[:_MAX_SHOWN_TEXT], language=None, height=_MAX_HEIGHT)
    if len(answer.text) > _MAX_SHOWN_TEXT:
        st.caption(f"The first {words.integer(_MAX_SHOWN_TEXT)} characters; the download has all of them.")
    _download(lambda: answer.text, "Download", "txt", "text/plain", answer.query_id)


def _download(make: Any, label: str, ending: str, media_type: str, query_id: str) -> None:
    st.download_button(
        label,
        data=make,
        file_name=f"moescope-query.{ending}",
        mime=media_type,
        key=f"sql-download-{query_id}",
        on_click="ignore",
        type="tertiary",
        icon=":material/download:",
        help="Every row of the answer, with every digit.",
    )
