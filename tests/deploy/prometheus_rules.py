"""The rules of deploy/prometheus as data."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from moescope.schemas.page_metrics import label_name
from moescope.server.own_metrics import OwnMetrics
from tests.exporters.golden_pages import fleet_page

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDER = DEPLOY / "prometheus"
RULE_FILES = sorted(FOLDER.glob("*.rules.yaml"))
TEST_FILES = sorted(FOLDER.glob("tests/*_test.yaml"))
TARGET_LABELS = {"instance", "job"}

_TEXT = re.compile(r'"[^"]*"|`[^`]*`')
_SELECTOR = re.compile(r"\b((?:moescope|moe|gen_ai|hw|service_ep_group)[a-z0-9_:]*)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LISTED = re.compile(r"\b(?:by|on|ignoring|group_left|without)\s*\(([^)]*)\)")
_QUERY = re.compile(r"printf `([^`]*)`|query \"([^\"]*)\"")


@dataclass(frozen=True)
class Alert:
    """One alerting rule."""

    name: str
    file: str
    rule: dict

    @property
    def severity(self) -> str:
        return self.rule["labels"]["severity"]

    @property
    def expressions(self) -> list[str]:
        """Its own expression, and those that its texts ask."""
        texts = " ".join(self.rule["annotations"].values())
        return [self.rule["expr"], *(first or second for first, second in _QUERY.findall(texts))]


def rules_of(path: Path) -> list[dict]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


ALERTS = [
    Alert(rule["alert"], path.name, rule) for path in RULE_FILES for rule in rules_of(path) if "alert" in rule
]
RECORDED = {
    rule["record"]: rule["expr"] for path in RULE_FILES for rule in rules_of(path) if "record" in rule
}
NAMES = sorted({alert.name for alert in ALERTS})


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Each metric of an expression, and the labels that it is asked for."""
    return [
        (name, set(_LABEL.findall(labels or "")))
        for name, labels in _SELECTOR.findall(_LISTED.sub("", expression))
        if not name.endswith("_")
    ]


def listed_labels(expression: str) -> set[str]:
    """Labels that stand in by, on and their like."""
    return {
        label.strip() for found in _LISTED.findall(expression) for label in found.split(",") if label.strip()
    }


@cache
def page_labels() -> dict[str, frozenset[str]]:
    """Series of our pages by name, with their labels: the fleet, and the server itself."""
    labels: dict[str, frozenset[str]] = {}
    for line in fleet_page().decode().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels[name] = frozenset(_LABEL.findall(rest.partition("} ")[0]))
    for family in OwnMetrics().registry.collect():
        collector = next(
            one for one in vars(OwnMetrics()).values() if getattr(one, "_name", "") == family.name
        )
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(
            family.type, ("",)
        )
        for suffix in suffixes:
            labels[family.name + suffix] = frozenset(collector._labelnames) | (
                {"le"} if suffix == "_bucket" else set()
            )
    return labels


__all__ = ["ALERTS", "NAMES", "RECORDED", "Alert", "label_name", "page_labels", "selectors"]
