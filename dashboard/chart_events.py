"""What people do on a heatmap: click a cell, zoom.

Streamlit's own selection events know points, not heatmap cells, and a chart whose data changes is drawn anew,
its zoom lost. So a component without any markup of its own listens to the events that the chart sends anyway.
Every 250 ms it makes sure that it listens to the chart that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

_CELL: Final = "cell"
_ZOOM: Final = "zoom"
_LISTEN: Final = """
export default function ({ data, setTriggerValue }) {
  const listen = () => {
    const plot = document.querySelector(`.st-key-${data.chart} .js-plotly-plot`)
    if (!plot || !plot.on) return
    const isNew = !plot.report
    plot.report = setTriggerValue
    if (!isNew) return
    plot.on('plotly_click', (event) => {
      const cell = event.points.find((one) => Number.isInteger(one.x) && Number.isInteger(one.y))
      if (cell) plot.report('cell', [cell.y, cell.x])
    })
    plot.on('plotly_relayout', (event) => {
      const names = Object.keys(event)
      if (names.some((name) => /^[xy]axis\\.autorange/.test(name))) plot.report('zoom', [])
      else if (names.some((name) => /^[xy]axis\\.range/.test(name)))
        plot.report('zoom', [...plot.layout.xaxis.range, ...plot.layout.yaxis.range])
    })
  }
  listen()
  const timer = setInterval(listen, 250)
  return () => clearInterval(timer)
}
"""

_component = st.components.v2.component("moescope_chart_events", js=_LISTEN)


@dataclass(frozen=True, slots=True)
class Zoom:
    """The part of the first pair of axes that is shown: from, to."""

    x: tuple[float, float]
    y: tuple[float, float]


def watch_chart(chart_key: str, *, on_click: Callable[[int, int], None], subject: str) -> None:
    """Listen to the chart of that key.

    Args:
        chart_key: key of the ``st.plotly_chart``, drawn in the same fragment.
        on_click: called with the axis values (row, column) of a clicked cell.
        subject: what the chart shows; a zoom belongs to it.
    """
    key = f"{chart_key}_events"

    def report_cell() -> None:
        cell = st.session_state[key].get(_CELL)
        if cell:
            on_click(int(cell[0]), int(cell[1]))

    def keep_zoom() -> None:
        ranges = st.session_state[key].get(_ZOOM)
        if ranges is not None:
            zoom = Zoom((ranges[0], ranges[1]), (ranges[2], ranges[3])) if ranges else None
            st.session_state[_zoom_key(chart_key)] = (subject, zoom)

    _component(
        key=key,
        data={"chart": chart_key},
        on_cell_change=report_cell,
        on_zoom_change=keep_zoom,
        height=1,
    )


def current_zoom(chart_key: str, subject: str) -> Zoom | None:
    """The zoom that somebody chose while the chart showed ``subject``; None for the whole of it."""
    kept_subject, zoom = st.session_state.get(_zoom_key(chart_key), ("", None))
    return zoom if kept_subject == subject else None


def _zoom_key(chart_key: str) -> str:
    return f"{chart_key}_zoom"
