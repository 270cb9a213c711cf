"""What a page looks at, chosen by widgets that live in the address: a copied link shows the same thing."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from moescope.analysis.expert_load import LoadScope
from moescope.analysis.span import Deployment, Span, cover
from moescope.dashboard import carry
from moescope.dashboard.carry import EXPERT, GROUP, LAYER, NODE, PHASE, RANK, SERVICE, UNTIL, WINDOW
from moescope.schemas.attributes import Phase

SHOW: Final = "show"
MATRIX: Final = "matrix"
QUERY: Final = "q"
RUNBOOK: Final = "runbook"

WINDOW_SECONDS: Final = {
    "5m": 300,
    "15m": 900,
    "1h": 3_600,
    "6h": 21_600,
    "24h": 86_400,
    "7d": 604_800,
}
DEFAULT_WINDOW: Final = "15m"
REFRESH_SECONDS: Final = 10
_LIVE: Final = "live"
_WHOLE: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class View:
    """What a page looks at.

    ``end_ms`` is None while the page follows the newest data, and the end of the window (Unix milliseconds)
    once it is held still.
    """

    service: str
    window: str
    end_ms: int | None

    @property
    def window_seconds(self) -> int:
        """Length of the window."""
        return WINDOW_SECONDS[self.window]

    @property
    def refresh_seconds(self) -> int | None:
        """How often the page looks again, None while it is held still."""
        return REFRESH_SECONDS if self.end_ms is None else None

    def cover(self, deployment: Deployment, ep_group: str = "") -> Span:
        """What the page looks at of a deployment, or of one of its EP groups."""
        return cover(deployment, self.window_seconds, end_ms=self.end_ms, ep_group=ep_group)


def find_deployment(deployments: Sequence[Deployment], service: str) -> Deployment:
    """The deployment of that name, which the page's choice took from the same list."""
    return next(one for one in deployments if one.service == service)


def filter_row() -> DeltaGenerator:
    """The row that the filters of a page stand in."""
    return st.container(horizontal=True, vertical_alignment="bottom", gap="small")


def choose_service(stored: Sequence[LoadScope] | Sequence[Deployment]) -> str:
    """Draw the choice of a deployment; say so where the address names one of which nothing is stored."""
    services = sorted({one.service for one in stored})
    wanted = st.query_params.get(SERVICE, services[0])
    if wanted not in services:
        st.toast(
            f"Nothing is stored of the deployment {wanted}; this is {services[0]}.", icon=":material/info:"
        )
    on_change = carry.prepare_choice(SERVICE, services, services[0])
    return str(st.selectbox("Deployment", services, key=SERVICE, on_change=on_change, width=200))


def choose_group(scopes: Sequence[LoadScope], service: str) -> str:
    """Draw the choice of an EP group; a deployment with one group needs none."""
    return choose_named_group({scope.ep_group for scope in scopes if scope.service == service})


def choose_named_group(names: Collection[str]) -> str:
    """Draw the choice of one of these EP groups; one needs none."""
    groups = sorted(names)
    if len(groups) == 1:
        return groups[0]
    on_change = carry.prepare_choice(GROUP, groups, groups[0])
    return str(st.selectbox("EP group", groups, key=GROUP, on_change=on_change, width=120))


def choose_phase(scopes: Sequence[LoadScope], service: str, ep_group: str) -> Phase:
    """Draw the choice of a phase and return it, even one of which nothing is stored."""
    stored = {scope.phase for scope in scopes if (scope.service, scope.ep_group) == (service, ep_group)}
    return choose_any_phase(Phase.DECODE if Phase.DECODE in stored else Phase.PREFILL)


def choose_any_phase(first: Phase = Phase.DECODE) -> Phase:
    """Draw the choice of a phase where it is not known of which anything is stored."""
    on_change = carry.prepare_choice(PHASE, list(Phase), first)
    chosen = st.segmented_control("Phase", list(Phase), required=True, key=PHASE, on_change=on_change)
    return chosen or first


def choose_window(stored: Sequence[LoadScope] | Sequence[Deployment], service: str) -> View:
    """Draw the choice of a window and the live switch."""
    on_change = carry.prepare_choice(WINDOW, list(WINDOW_SECONDS), DEFAULT_WINDOW)
    window = st.segmented_control(
        "Window", list(WINDOW_SECONDS), required=True, key=WINDOW, on_change=on_change
    )
    newest_ms = max(one.end_ms for one in stored if one.service == service)
    return View(service, window or DEFAULT_WINDOW, _choose_end(newest_ms))


def find_scope(
    scopes: Sequence[LoadScope], service: str, ep_group: str, phase: Phase | None
) -> LoadScope | None:
    """The scope of that name, None when nothing of it is stored."""
    wanted = (service, ep_group, phase)
    return next((one for one in scopes if (one.service, one.ep_group, one.phase) == wanted), None)


def link_params(
    view: View,
    *,
    ep_group: str | None = None,
    phase: Phase | None = None,
    layer: int | None = None,
    expert: int | None = None,
    rank: int | None = None,
    node: str | None = None,
) -> dict[str, str]:
    """The address parameters of what a link points at."""
    params = {
        SERVICE: view.service,
        WINDOW: view.window,
        UNTIL: view.end_ms,
        GROUP: ep_group,
        PHASE: phase,
        LAYER: layer,
        EXPERT: expert,
        RANK: rank,
        NODE: node,
    }
    return {name: str(value) for name, value in params.items() if value is not None}


def picked_expert() -> tuple[int, int] | None:
    """Layer and expert from the address, if it names both."""
    layer, expert = whole_number(LAYER), whole_number(EXPERT)
    return None if layer is None or expert is None else (layer, expert)


def pick_expert(layer: int, expert: int) -> None:
    """Put a layer and an expert into the address."""
    carry.point_at(layer=layer, expert=expert)


def _choose_end(newest_ms: int) -> int | None:
    """Draw the live switch. Held still, the end of the window stands in the address."""
    held = whole_number(UNTIL)
    if held is None and UNTIL in st.query_params:
        carry.point_at(until=None)
    st.session_state[_LIVE] = held is None
    st.toggle(
        "Live",
        key=_LIVE,
        on_change=_hold_or_follow,
        args=(newest_ms,),
        help=f"Look again every {REFRESH_SECONDS} seconds. Switched off, the window stays where it is "
        "and the address holds its end.",
    )
    return held


def whole_number(name: str) -> int | None:
    """What a parameter says, where it is a whole number that a store can hold."""
    text = st.query_params.get(name, "")
    return int(text) if _WHOLE.fullmatch(text) else None


def _hold_or_follow(newest_ms: int) -> None:
    carry.point_at(until=None if st.session_state[_LIVE] else newest_ms)
