"""Axis titles and units, derived from the metric registry and the attribute vocabularies."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import streamlit as st

from moescope.analysis.expert_load import TimeArray
from moescope.schemas.attributes import Phase
from moescope.schemas.metrics import Metric

PHASE_LABEL: Final = {phase: phase.value.capitalize() for phase in Phase}
_UNIT_WORDS: Final = {"By": "bytes"}
_UTC: Final = ZoneInfo("UTC")


def unit_words(metric: Metric) -> str:
    """The unit as a word: ``{token}`` is ``tokens``, ``By`` is ``bytes``; other symbols stay as they are."""
    is_annotation = metric.unit.startswith("{")
    return f"{metric.unit.strip('{}')}s" if is_annotation else _UNIT_WORDS.get(metric.unit, metric.unit)


def rate_title(metric: Metric) -> str:
    """Title of an axis that shows a counted metric by the minute."""
    return f"{metric.name}, {unit_words(metric)} a minute"


def value_title(metric: Metric) -> str:
    """Title of an axis that shows a metric's own values; seconds read themselves off their labels."""
    return f"{metric.name}, {unit_words(metric)}"


def viewer_zone() -> tzinfo:
    """The time zone of whoever looks, UTC where the browser does not say."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return _UTC


def time_label(moment: datetime) -> str:
    """``14:03:20 (13:03:20 UTC)``; once where the viewer's zone is UTC."""
    local = moment.astimezone(viewer_zone())
    utc = moment.astimezone(_UTC)
    if local.utcoffset() == utc.utcoffset():
        return f"{utc:%H:%M:%S} UTC"
    day = f" {utc:%d %b}" if local.date() != utc.date() else ""
    return f"{local:%H:%M:%S} ({utc:%H:%M:%S} UTC{day})"


def local_times(times: TimeArray) -> TimeArray:
    """Shift UTC times to the viewer's zone: figures show what they are given."""
    if not len(times):
        return times
    newest = times[-1].astype("datetime64[s]").item().replace(tzinfo=_UTC)
    offset = newest.astimezone(viewer_zone()).utcoffset()
    return times + np.timedelta64(int(offset.total_seconds()) if offset else 0, "s")


def zone_title() -> str:
    """Title of a time axis."""
    return f"Time ({viewer_zone()})"
