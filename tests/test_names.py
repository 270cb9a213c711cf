"""Nothing names a metric, an attribute or a setting that is not declared."""

import re
import subprocess
from pathlib import Path

import pytest

from moescope.schemas import attributes
from moescope.schemas.metrics import METRICS
from moescope.schemas.page_metrics import PAGE_FAMILIES, PAGE_ONLY_METRICS
from moescope.schemas.settings import setting_rows
from moescope.server.own_metrics import OwnMetrics

ROOT = Path(__file__).parent.parent
TRACKED = subprocess.run(
    ["git", "ls-files", "*.py", "*.sql", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
# Tests name what does not exist on purpose.
FILES = [path for path in TRACKED if not path.startswith(("tests/", "moescope/schemas"))]

DECLARED = {metric.name for metric in (*METRICS, *PAGE_ONLY_METRICS)} | {
    value for value in vars(attributes).values() if isinstance(value, str) and "." in value
}
NAME = re.compile(r"(?<![\w./-])(?:moe|gen_ai)\.[a-z_]+(?:\.[a-z_]+)*")
SETTING = re.compile(r"\bMOESCOPE_[A-Z_]+\b")
# Families and wildcards in prose, and what only tests and tools read.
PROSE = {"MOESCOPE_", "MOESCOPE_CORE_PYTHON", "MOESCOPE_ARTIFACTS"}


SERIES = re.compile(r"(?<![\w./:-])(?:moe|moescope|gen_ai|hw)_[a-z0-9_]+(?![\w:]|\()")
SUFFIXES = ("", "_bucket", "_sum", "_count", "_total")
ON_PAGES = {
    *(metric.prometheus_name for metric in (*METRICS, *PAGE_ONLY_METRICS)),
    *(family.metric.prometheus_name for family in PAGE_FAMILIES),
    *(family.name for family in OwnMetrics().registry.collect()),
}
# Words of the same look: a column, what `moescope alerts run` says of itself, users, a label, a file's key.
OTHER_WORDS = re.compile(
    r"moe_layers|moescope_alerts_\w*|moescope_(?:reader|writer|dashboard)|moe_(?:config|load_balancer)"
)
PUBLISHED = [
    path
    for path in subprocess.run(
        ["git", "ls-files", "*.md", "docs", "deploy", "examples", "moescope/alerting/rules"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if (ROOT / path).is_file()
]


@pytest.mark.parametrize("path", PUBLISHED)
def test_every_series_that_is_published_stands_on_a_page(path: str):
    """Docs, rules, boards and configurations name what Prometheus can find."""
    named = set(SERIES.findall((ROOT / path).read_text(encoding="utf-8", errors="replace")))
    known = {name + suffix for name in ON_PAGES for suffix in SUFFIXES}

    assert {name for name in named - known if not OTHER_WORDS.fullmatch(name)} == set()


@pytest.mark.parametrize("path", PUBLISHED)
def test_every_dotted_name_that_is_published_is_declared(path: str):
    named = set(NAME.findall((ROOT / path).read_text(encoding="utf-8", errors="replace")))

    assert {name for name in named if not any(known.startswith(name) for known in DECLARED)} == set()


@pytest.mark.parametrize("path", FILES)
def test_every_metric_and_attribute_that_a_file_names_is_declared(path: str):
    named = set(NAME.findall((ROOT / path).read_text(encoding="utf-8")))

    assert {name for name in named if not any(known.startswith(name) for known in DECLARED)} == set()


@pytest.mark.parametrize("path", FILES)
def test_every_setting_that_a_file_names_is_declared(path: str):
    named = set(SETTING.findall((ROOT / path).read_text(encoding="utf-8")))

    assert named - {row.env for row in setting_rows()} - PROSE == set()
