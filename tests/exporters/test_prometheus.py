"""The page itself: its names are pinned, Prometheus accepts it, and nothing on it misleads."""

import math
import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moescope.exporters.prometheus import render_page
from moescope.exporters.prometheus_judgement import judged_families
from moescope.exporters.prometheus_state import FamilyState, Sample
from moescope.schemas.fleet import FleetJudgement
from moescope.schemas.metrics import MEMORY_USAGE, METRICS, TOKENS
from moescope.schemas.page_metrics import (
    HOT_EXPERT_CAPACITY_SHARE,
    HOT_EXPERT_LOAD,
    NOT_ON_A_PAGE,
    PAGE_FAMILIES,
    PAGE_ONLY_METRICS,
)
from tests.exporters.golden_pages import FOLDER, JUDGEMENT, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_the_golden_one(name: str):
    assert PAGES[name]().decode() == (FOLDER / name).read_text(encoding="utf-8"), (
        "if that is meant, write the new one with: python -m tests.exporters.golden_pages"
    )


@pytest.mark.tools
@pytest.mark.parametrize("name", PAGES)
def test_promtool_finds_nothing_wrong_with_a_page(name: str):
    assert shutil.which("promtool"), "promtool is in the Debian package prometheus"
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=PAGES[name](), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_every_family_that_is_declared_is_on_the_golden_page_of_the_fleet():
    shown = {line.split()[2] for line in PAGES["fleet.prom"]().decode().splitlines() if "# TYPE" in line}

    declared = {family.metric.prometheus_name for family in PAGE_FAMILIES}
    assert shown == declared | {metric.prometheus_name for metric in PAGE_ONLY_METRICS}


def test_a_rank_shows_the_same_names_as_the_fleet_and_only_itself():
    fleet, rank = ((FOLDER / name).read_text() for name in PAGES)

    def types(page: str) -> set[str]:
        return {line for line in page.splitlines() if line.startswith(("# TYPE", "# HELP"))}

    assert types(rank) < types(fleet)
    waited_for = [line for line in rank.splitlines() if line.startswith("moe_dispatch_waited_for")]
    own = [line for line in rank.splitlines() if "ep_rank=" in line and line not in waited_for]
    assert own
    assert all('ep_rank="1"' in line for line in own)


@pytest.mark.parametrize("name", PAGES)
def test_no_index_encoded_metric_and_no_series_per_expert_is_on_a_page(name: str):
    page = PAGES[name]().decode()

    for metric in METRICS:
        if metric.is_index_encoded:
            assert f"# TYPE {metric.prometheus_name} histogram" not in page
    assert {line.partition("{")[0] for line in page.splitlines() if "expert=" in line} <= {
        "moe_hot_expert_load_ratio",
        "moe_hot_expert_capacity_share_ratio",
    }
    assert not {name for name in NOT_ON_A_PAGE if name.replace(".", "_") + "{" in page}


def test_what_is_not_known_is_not_on_the_page():
    page = PAGES["fleet.prom"]().decode()

    assert "NaN" not in page
    assert 'moe_layer_imbalance_net_ratio{ep_group="0",layer="1",phase="decode",service="fleet"} 2.13' in page
    assert not re.search(r'^moe_layer_imbalance\w*{.*layer="2"', page, re.MULTILINE)
    assert render_page([FamilyState(MEMORY_USAGE, ("service",), (Sample(("fleet",), math.nan),))]) == b""


@pytest.mark.parametrize("metric", [HOT_EXPERT_LOAD, HOT_EXPERT_CAPACITY_SHARE], ids=lambda one: one.name)
def test_the_list_of_hot_experts_never_grows_beyond_the_setting(metric):
    hot = {
        count: next(
            family for family in judged_families(JUDGEMENT, hot_experts=count) if family.metric is metric
        )
        for count in (0, 1, 2, 20)
    }

    assert {count: len(family.samples) for count, family in hot.items()} == {0: 0, 1: 1, 2: 2, 20: 2}
    assert hot[1].samples[0].labels[:5] == ("fleet", "0", "decode", "1", "4"), "the worst stays"


def test_a_page_of_nothing_is_a_valid_page():
    assert render_page(judged_families(FleetJudgement(), hot_experts=20)) == b""


def test_label_values_are_escaped():
    service = 'blue "green"\\\nred'
    page = render_page([FamilyState(TOKENS, ("service",), (Sample((service,), 13.0),))]).decode()

    assert 'service="blue \\"green\\"\\\\\\nred"' in page
    (family,) = text_string_to_metric_families(page)
    assert [(sample.labels["service"], sample.value) for sample in family.samples] == [(service, 13.0)]


def test_buckets_are_cumulative_and_end_in_the_count():
    families = list(text_string_to_metric_families(PAGES["fleet.prom"]().decode()))
    histograms = [family for family in families if family.type == "histogram"]

    assert len(histograms) == 9
    for family in histograms:
        series: dict[tuple, list[float]] = {}
        counts = {}
        for sample in family.samples:
            key = tuple((name, value) for name, value in sample.labels.items() if name != "le")
            if sample.name.endswith("_bucket"):
                series.setdefault(key, []).append(sample.value)
            elif sample.name.endswith("_count"):
                counts[key] = sample.value
        assert {key: max(values) for key, values in series.items()} == counts
        assert all(values == sorted(values) for values in series.values())
