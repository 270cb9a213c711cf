"""What is compared with what: the choice of B, which lives in the address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from moescope.analysis.span import Deployment
from moescope.dashboard import carry
from moescope.dashboard.view import View, find_deployment

WITH: Final = "with"
WITH_GROUP: Final = "with_group"
BACK: Final = "back"

_SAME_TIME: Final = "0h"
_WINDOW_BEFORE: Final = "window"
_HOURS_BACK: Final = {"1h": 1, "24h": 24, "7d": 168}
_BACK_WORDS: Final = {
    _SAME_TIME: "same time",
    _WINDOW_BEFORE: "window before",
    **{back: f"{back} before" for back in _HOURS_BACK},
}
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class OtherSide:
    """The window that is compared with.

    Attributes:
        end_ms: end of the window, Unix milliseconds.
        words: which one it is.
    """

    deployment: Deployment
    ep_group: str
    end_ms: int
    words: str


def choose_other_side(deployments: Sequence[Deployment], view: View, ep_group: str, end_ms: int) -> OtherSide:
    """Draw the choice of B, beside A which ends at ``end_ms``."""
    services = [one.service for one in deployments]
    service = str(
        st.selectbox(
            "Compare with",
            services,
            index=services.index(view.service),
            key=WITH,
            bind="query-params",
            width=200,
        )
    )
    other = find_deployment(deployments, service)
    groups = sorted(other.ep_groups)
    group = ep_group if ep_group in groups else groups[0]
    if len(groups) > 1:
        group = str(
            st.selectbox(
                "Its EP group",
                groups,
                index=groups.index(group),
                key=WITH_GROUP,
                bind="query-params",
                width=120,
            )
        )
    is_same = (service, group) == (view.service, ep_group)
    back = _choose_back(is_same=is_same)
    return OtherSide(other, group, end_ms - _shift_ms(back, view), _BACK_WORDS[back])


def _choose_back(*, is_same: bool) -> str:
    """Draw the choice of the time; a group is not compared with itself at the same time."""
    options = [*(() if is_same else (_SAME_TIME,)), _WINDOW_BEFORE, *_HOURS_BACK]
    chosen = st.segmented_control(
        "Its time",
        options,
        required=True,
        format_func=_BACK_WORDS.__getitem__,
        key=BACK,
        on_change=carry.prepare_choice(BACK, options, options[0]),
    )
    return str(chosen or options[0])


def _shift_ms(back: str, view: View) -> int:
    if back == _WINDOW_BEFORE:
        return view.window_seconds * 1000
    return _HOURS_BACK.get(back, 0) * _HOUR_MS
