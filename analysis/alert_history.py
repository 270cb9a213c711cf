"""When alerts were pending, firing or without data: stretches of time from every source."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from moescope.analysis.alert_http import addresses, get_json
from moescope.analysis.alert_parts import NAME, about, moment, severity_of, state_of
from moescope.analysis.alert_records import AlertSpan, AlertState
from moescope.schemas.errors import AlertSourceError
from moescope.schemas.settings import Settings

_POINTS: Final = 720
"""Of a Prometheus's answer: a few pixels each."""
_MIN_STEP_SECONDS: Final = 15
_NOT_FOUND: Final = 404
_QUERY: Final = "ALERTS"
_STATE_LABEL: Final = "alertstate"
Labels = tuple[tuple[str, str], ...]


def read_history(
    settings: Settings, *, seconds: float, names: frozenset[str], now: datetime | None = None
) -> tuple[AlertSpan, ...]:
    """Ask every source what happened; those that give no answer are left out, as the page names them already.

    Args:
        settings: whose sources are asked.
        seconds: so far back.
        names: of the rules that are shown, for a Prometheus that has others too.
        now: the end of the time that is asked for.
    """
    end = now or datetime.now(UTC)
    start = end - timedelta(seconds=seconds)
    spans: list[AlertSpan] = []
    for address in addresses(settings.alert_sources):
        try:
            spans += _spans_of(address, settings, start, end, names)
        except (AlertSourceError, AttributeError, KeyError, TypeError, ValueError):
            continue
    return tuple(sorted(spans, key=lambda span: (span.start, span.name)))


def _spans_of(
    address: str, settings: Settings, start: datetime, end: datetime, names: frozenset[str]
) -> Iterator[AlertSpan]:
    span = {"start": f"{start.timestamp():.3f}", "end": f"{end.timestamp():.3f}"}
    try:
        events = get_json(address, "/api/v1/history", settings, span)["data"]["events"]
    except AlertSourceError as error:
        if error.status != _NOT_FOUND:
            raise
    except (KeyError, TypeError):
        return
    else:
        yield from spans_from_events(events, start, end)
        return
    step = max(_MIN_STEP_SECONDS, int((end - start).total_seconds() / _POINTS))
    last = math.ceil(end.timestamp())
    # A whole number of steps, so that the last point is now.
    first = last - step * math.ceil((end - start).total_seconds() / step)
    asked = {"query": _QUERY, "start": str(first), "end": str(last), "step": str(step)}
    answer = get_json(address, "/api/v1/query_range", settings, asked)
    series = [one for one in answer["data"]["result"] if one["metric"].get(NAME) in names]
    yield from spans_from_samples(series, step, end)


def spans_from_events(
    events: Sequence[Mapping[str, Any]], start: datetime, end: datetime
) -> Iterator[AlertSpan]:
    """Put changes of state together: what an alert became lasts until it becomes something else.

    What an alert was before its first event lasted since ``start`` at least.
    """
    by_alert: dict[Labels, list[Mapping[str, Any]]] = {}
    for event in events:
        pairs = sorted((str(name), str(value)) for name, value in event.get("labels", {}).items())
        by_alert.setdefault(tuple(pairs), []).append(event)
    for labels, changes in by_alert.items():
        times = [start, *(moment(change.get("at")) or start for change in changes), end]
        states = [state_of(changes[0].get("from")), *(state_of(change.get("to")) for change in changes)]
        for index, (state, (since, until)) in enumerate(zip(states, itertools.pairwise(times), strict=True)):
            if state is not AlertState.INACTIVE and until > since:
                yield _span(dict(labels), state, since, until, is_open=index == len(changes))


def spans_from_samples(
    series: Sequence[Mapping[str, Any]], step: float, end: datetime
) -> Iterator[AlertSpan]:
    """Put the points of ``ALERTS`` together: a gap of more than a step ends a stretch.

    Args:
        series: ``metric`` and ``values`` each, as Prometheus's ``query_range`` has them.
        step: between two points, seconds.
        end: of what was asked for; what has a point within a step of it goes on.
    """
    for one in series:
        labels = {str(name): str(value) for name, value in one["metric"].items()}
        state = state_of(labels.pop(_STATE_LABEL, ""))
        labels.pop("__name__", None)
        times = [float(at) for at, _ in one["values"]]
        breaks = [index for index, (a, b) in enumerate(itertools.pairwise(times), 1) if b - a > 1.5 * step]
        for first, last in itertools.pairwise([0, *breaks, len(times)]):
            since, until = times[first], times[last - 1] + step
            is_open = until >= end.timestamp()
            yield _span(labels, state, _utc(since), min(_utc(until), end), is_open=is_open)


def _span(
    labels: Mapping[str, str], state: AlertState, start: datetime, end: datetime, *, is_open: bool
) -> AlertSpan:
    return AlertSpan(
        str(labels.get(NAME, "")), about(labels), severity_of(labels), state, start, end, is_open
    )


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
