"""Imbalance by layer, one panel a phase, for the overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moescope.analysis.assessment import LoadAssessment
from moescope.analysis.imbalance import RATIO_FORMULA
from moescope.dashboard import theme
from moescope.dashboard.labels import PHASE_LABEL

_HEIGHT: Final = 150


def draw_layer_imbalance(assessments: Sequence[LoadAssessment], *, acceptable_ratio: float) -> go.Figure:
    """Draw every assessment with a placement in a panel of its own, one below the other."""
    drawn = [one for one in assessments if one.imbalance is not None]
    figure = make_subplots(rows=max(len(drawn), 1), shared_xaxes=True, vertical_spacing=0.16)
    for row, assessment in enumerate(drawn, start=1):
        _add_panel(figure, row, assessment, acceptable_ratio, names_group=len(drawn) > len(PHASE_LABEL))
    figure.update_xaxes(title={"text": "layer", "standoff": 8}, row=max(len(drawn), 1), col=1)
    figure.update_xaxes(showgrid=False)
    figure.update_layout(
        height=_HEIGHT * max(len(drawn), 1) + 70,
        margin={"l": 48, "r": 16, "t": 28, "b": 48},
        bargap=0.3,
        showlegend=False,
        uirevision="layers",
    )
    return figure


def _add_panel(
    figure: go.Figure, row: int, assessment: LoadAssessment, acceptable_ratio: float, *, names_group: bool
) -> None:
    imbalance, placement, scope = assessment.imbalance, assessment.placement, assessment.window.scope
    if imbalance is None or placement is None:
        return
    figure.add_trace(
        go.Bar(
            x=assessment.window.layers,
            y=imbalance.ratio,
            marker={
                "color": [theme.BAD if bad else theme.OK for bad in imbalance.is_imbalanced],
                "line": {"width": 0},
            },
            customdata=placement.ranks[imbalance.hottest_rank],
            hovertemplate="Layer %{x}: rank %{customdata} does <b>%{y:.2f} ×</b> the mean rank's work"
            "<extra></extra>",
        ),
        row=row,
        col=1,
    )
    figure.add_hline(
        y=acceptable_ratio, line={"color": theme.LIMIT, "width": 1.2, "dash": "dot"}, row=row, col=1
    )
    top = max(float(np.nanmax(imbalance.ratio, initial=1.0)), acceptable_ratio)
    figure.update_yaxes(range=[1, 1 + 1.12 * (top - 1)], nticks=4, row=row, col=1)
    group = f", EP group {scope.ep_group}" if names_group else ""
    figure.add_annotation(
        text=f"<b>{PHASE_LABEL[scope.phase]}</b>{group}, {RATIO_FORMULA}",
        xref="x domain",
        yref="y domain",
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        font={"color": theme.PHASE_COLOR[scope.phase]},
        row=row,
        col=1,
    )
