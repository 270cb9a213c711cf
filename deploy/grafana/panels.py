"""Grafana's panels as plain data: what both boards are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

SCHEMA_VERSION: Final = 41
GRID_WIDTH: Final = 24
PALETTE: Final = "palette-classic-by-name"

PROMETHEUS: Final = {"type": "prometheus", "uid": "moescope-prometheus"}
CLICKHOUSE: Final = {"type": "grafana-clickhouse-datasource", "uid": "moescope-clickhouse"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel before it has a place.

    Attributes:
        title: sentence case.
        description: what the numbers are; shown behind the panel's "i".
        kind: ``timeseries``, ``table`` or ``stat``.
        targets: queries, as their source's plugin writes them.
        unit: Grafana's name of the unit.
        width: of 24 columns.
        height: rows of about 30 pixels.
        maximum: of the axis, where it has one.
    """

    title: str
    description: str
    kind: str
    targets: tuple[dict[str, Any], ...]
    unit: str
    width: int = 8
    height: int = 8
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with panels below it."""

    title: str
    panels: tuple[Panel, ...] = field(default_factory=tuple)


def promql(*queries: tuple[str, str], instant: bool = False) -> tuple[dict[str, Any], ...]:
    """Targets of the Prometheus source: (expression, legend) each."""
    return tuple(
        {
            "datasource": PROMETHEUS,
            "refId": chr(ord("A") + index),
            "expr": expression,
            "legendFormat": legend,
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if instant else {}),
        }
        for index, (expression, legend) in enumerate(queries)
    )


def sql(text: str, *, kind: str) -> tuple[dict[str, Any], ...]:
    """One target of the ClickHouse source; a time series has the columns time, labels as text, values."""
    is_series = kind == "timeseries"
    return (
        {
            "datasource": CLICKHOUSE,
            "refId": "A",
            "editorType": "sql",
            "queryType": "timeseries" if is_series else "table",
            "format": 0 if is_series else 1,
            "rawSql": text,
        },
    )


def board(
    *, uid: str, title: str, description: str, variables: list[dict[str, Any]], rows: list[Row]
) -> dict[str, Any]:
    """A dashboard in Grafana's JSON model."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["moescope"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "title": "moescope boards",
                "type": "dashboards",
                "tags": ["moescope"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": variables},
        "panels": list(_placed(rows)),
    }


def variable(name: str, label: str, source: dict[str, str], query: str) -> dict[str, Any]:
    """A choice at the top of a board, filled by a query."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": source,
        "query": {"query": query, "refId": name} if source is PROMETHEUS else query,
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }


def choice(name: str, label: str, values: tuple[str, ...]) -> dict[str, Any]:
    """A choice at the top of a board among values that are known; the first is chosen at first."""
    options = [{"text": value, "value": value, "selected": value == values[0]} for value in values]
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ",".join(values),
        "current": options[0],
        "options": options,
        "multi": False,
        "includeAll": False,
    }


def _placed(rows: list[Row]) -> Iterator[dict[str, Any]]:
    y, number = 0, 1
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": GRID_WIDTH, "h": 1},
        }
        number, y, x, tallest = number + 1, y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > GRID_WIDTH:
                x, y, tallest = 0, y + tallest, 0
            yield {
                "id": number,
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
                **_drawn(panel),
            }
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest


def _drawn(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "color": {"mode": PALETTE}}
    if panel.kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 0, "showPoints": "never", "spanNulls": False}
        defaults["min"] = 0
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    options: dict[str, Any] = {}
    if panel.kind == "timeseries":
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "area"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": panel.targets[0]["datasource"],
        "targets": list(panel.targets),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        **({"transformations": _TABLE_OF_LABELS} if _is_labels_table(panel) else {}),
    }


def _is_labels_table(panel: Panel) -> bool:
    return panel.kind == "table" and panel.targets[0]["datasource"] is PROMETHEUS


_HIDDEN: Final = ("Time", "__name__", "instance", "job", "service")
_TABLE_OF_LABELS: Final = [
    {"id": "organize", "options": {"excludeByName": dict.fromkeys(_HIDDEN, True)}},
]
