"""The documented views beside the editor: columns, units, and an example of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from moescope.analysis.sql_views import DocumentedView


def show_views(views: Sequence[DocumentedView], use: Callable[[str], None]) -> None:
    """List the views; ``use`` puts an example into the editor."""
    for view in views:
        with st.expander(f"`{view.name}`  \n{view.question}", key=f"view-{view.name}"):
            _show_view(view, use)


def _show_view(view: DocumentedView, use: Callable[[str], None]) -> None:
    if not view.columns:
        st.warning("The store lacks this view. Run: `moescope migrate`", icon=":material/warning:")
        return
    st.caption(view.example.question)
    st.code(view.example.sql, language="sql", wrap_lines=True)
    st.button(
        "Put into the editor",
        key=f"use-{view.name}",
        icon=":material/edit:",
        on_click=use,
        args=(view.example.sql,),
        type="secondary",
    )
    rows = [f"| `{one.name}` | {one.comment} | `{one.type}` |" for one in view.columns]
    st.markdown("\n".join(["| column | what it is | type |", "|---|---|---|", *rows]))
    if view.note:
        st.caption(view.note)
