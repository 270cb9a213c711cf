"""What somebody looks at stands in the address, and a change of page does not drop it.

A link of the navigation leads to a page without any parameters. They are kept here for as long as somebody
has the dashboard open, and stand in the address of every page, also of one that does not use them: a copied
link, a reload and a new tab show the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import streamlit as st

SERVICE: Final = "service"
GROUP: Final = "group"
PHASE: Final = "phase"
WINDOW: Final = "window"
UNTIL: Final = "until"
LAYER: Final = "layer"
EXPERT: Final = "expert"
RANK: Final = "rank"
NODE: Final = "node"

_CARRIED: Final = ((SERVICE,), (GROUP,), (PHASE,), (WINDOW,), (UNTIL,), (LAYER, EXPERT), (RANK, NODE))
"""What belongs together comes back together, or not at all."""
_KEPT: Final = "kept_parameters"
_PAGE: Final = "kept_for_page"

_Option = TypeVar("_Option")


def arrive(page: str) -> None:
    """Bring back what the way to this page dropped; what a link says itself wins.

    On the same page nothing comes back: who removed a parameter there meant it.
    """
    if st.session_state.get(_PAGE) != page:
        st.session_state[_PAGE] = page
        kept: dict[str, str] = st.session_state.get(_KEPT, {})
        dropped = [names for names in _CARRIED if not any(name in st.query_params for name in names)]
        st.query_params.update({name: kept[name] for names in dropped for name in names if name in kept})
    _remember()


def point_at(**parameters: object) -> None:
    """Put parameters into the address; None takes one out of it."""
    for name, value in parameters.items():
        if value is not None:
            st.query_params[name] = str(value)
        elif name in st.query_params:
            del st.query_params[name]
    _remember()


def prepare_choice(name: str, options: Sequence[_Option], first: _Option) -> Callable[[], None]:
    """Let the widget whose key is ``name`` show what the address says.

    Args:
        name: of the parameter, and key of the widget, which has no default of its own.
        options: of the widget; the address holds one as text.
        first: what is chosen where the address says nothing, or nothing that there is.

    Returns:
        What the widget calls when somebody chooses.
    """
    wanted = st.query_params.get(name)
    option = next((one for one in options if str(one) == wanted), first)
    st.session_state[name] = option
    if wanted is not None and wanted != str(option):
        point_at(**{name: option})
    return lambda: point_at(**{name: st.session_state[name]})


def _remember() -> None:
    """Outlives a page whose address somebody leaves."""
    names = (name for names in _CARRIED for name in names)
    st.session_state[_KEPT] = {name: st.query_params[name] for name in names if name in st.query_params}
