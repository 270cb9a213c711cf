"""Grafana's boards as a test reads them: panels, queries, and what Grafana puts in place of its macros."""

import json
import re
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BOARDS = DEPLOY / "grafana" / "dashboards"


def read_board(name: str) -> dict:
    return json.loads((BOARDS / f"{name}.json").read_text(encoding="utf-8"))


def panels_of(board: dict) -> list[dict]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets_of(board: dict) -> list[tuple[str, dict]]:
    """Every query of a board with the title of its panel."""
    return [(panel["title"], target) for panel in panels_of(board) for target in panel["targets"]]


def variables_of(board: dict) -> list[tuple[str, str]]:
    """The queries that fill the choices at the top."""
    found = [one for one in board["templating"]["list"] if one["type"] == "query"]
    return [(one["name"], one["definition"]) for one in found]


def as_clickhouse_gets_it(text: str, choices: dict[str, str], start_s: int, end_s: int) -> str:
    """What the plugin sends: its time filter and Grafana's quoted choices filled in."""
    text = re.sub(
        r"\$__timeFilter\((\w+)\)",
        rf"\1 >= toDateTime('{start_s}') AND \1 <= toDateTime('{end_s}')",
        text,
    )
    text = re.sub(r"\$\{(\w+):singlequote\}", lambda match: f"'{choices[match[1]]}'", text)
    assert "$" not in text, text
    return text


def as_prometheus_gets_it(text: str, choices: dict[str, str]) -> str:
    """What Grafana sends to Prometheus."""
    text = text.replace("$__rate_interval", "1m")
    text = re.sub(r"\$(\w+)", lambda match: choices[match[1]], text)
    assert "$" not in text, text
    return text
