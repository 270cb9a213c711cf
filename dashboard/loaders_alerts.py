"""Alerts, their history and their runbook, each read once for everybody who looks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import streamlit as st

from moescope.analysis.alert_history import read_history
from moescope.analysis.alert_records import Alerts, AlertSpan
from moescope.analysis.alert_sources import read_alerts
from moescope.analysis.runbook import RunbookSection, read_runbook
from moescope.dashboard.loaders import FRESH_SECONDS, get_settings
from moescope.schemas.settings import Settings

RUNBOOK_FILE: Final = Path(__file__).parent / "runbook.md"
_HISTORY_SECONDS: Final = 30


def load_alerts() -> Alerts:
    """What fires now; sources that give no answer are named in it."""
    return _load_alerts(get_settings())


@st.cache_resource(ttl=FRESH_SECONDS, max_entries=4, show_spinner=False)
def _load_alerts(settings: Settings) -> Alerts:
    return read_alerts(settings)


def load_alert_history(seconds: float, names: frozenset[str]) -> tuple[AlertSpan, ...]:
    """What fired, so far back."""
    return _load_alert_history(get_settings(), seconds, names)


@st.cache_resource(ttl=_HISTORY_SECONDS, max_entries=12, show_spinner=False)
def _load_alert_history(settings: Settings, seconds: float, names: frozenset[str]) -> tuple[AlertSpan, ...]:
    return read_history(settings, seconds=seconds, names=names)


@st.cache_resource(show_spinner=False)
def load_runbook() -> Mapping[str, RunbookSection]:
    """The runbook's sections by the name of their alert."""
    return read_runbook(RUNBOOK_FILE.read_text(encoding="utf-8"))
