"""Clicks on the cells of a heatmap.

Streamlit's own selection events know points, not heatmap cells, so a component without any markup of its own
listens to the click event that the chart already sends. Every 250 ms it makes sure that it listens to the
chart that is there: a refresh may have drawn a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import streamlit as st

_CELL: Final = "cell"
_LISTEN: Final = """
export default function ({ data, setTriggerValue }) {
  const report = (event) => {
    const point = event.points.find((one) => Number.isInteger(one.x) && Number.isInteger(one.y))
    if (point) setTriggerValue('cell', [point.y, point.x])
  }
  const listen = () => {
    const plot = document.querySelector(`.st-key-${data.chart} .js-plotly-plot`)
    if (!plot || !plot.on || plot.reportsClicksTo === report) return
    if (plot.reportsClicksTo) plot.removeListener('plotly_click', plot.reportsClicksTo)
    plot.reportsClicksTo = report
    plot.on('plotly_click', report)
  }
  listen()
  const timer = setInterval(listen, 250)
  return () => clearInterval(timer)
}
"""

_component = st.components.v2.component("moescope_cell_clicks", js=_LISTEN)


def watch_cells(chart_key: str, on_click: Callable[[int, int], None]) -> None:
    """Call ``on_click(row, column)`` with the axis values of a clicked cell of the chart of that key."""
    key = f"{chart_key}_clicks"

    def report() -> None:
        cell = st.session_state[key].get(_CELL)
        if cell:
            on_click(int(cell[0]), int(cell[1]))

    _component(key=key, data={"chart": chart_key}, on_cell_change=report, height=1)
