"""The pages of a simulated fleet over hours, as Prometheus would have scraped them, made in seconds.

What is real: the fleet's processes and their OTLP, the server's receivers, store and page, and the analysis.
What is not: the clocks. The page's clocks follow the simulation, so that a window of the past is traffic and
not history; the analysis judges whenever a window is stored, so its newest window is the one that has just
ended. Only the engine's own clock cannot be moved, and whether somebody is silent is judged by it: what it
says of silence and of counts that do not add up is left out.
"""

import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from moescope.analysis.fleet_judge import FleetJudge
from moescope.exporters.otlp_config import load_otlp_config
from moescope.exporters.prometheus import render_page
from moescope.exporters.prometheus_counts import PageCounts
from moescope.exporters.prometheus_judgement import judged_families
from moescope.schemas.fleet import FindingKind, FleetJudgement
from moescope.schemas.settings import Settings
from moescope.server import fleet_page, page_windows
from moescope.server.app import Server
from moescope.simulator.fleet import Fleet
from moescope.simulator.plan import make_plan
from tests.deploy.prometheus_rules import ALERTS, FOLDER, RECORDED, RULE_FILES, selectors

WINDOW_MINUTES = 60
"""Of a window, and between two pages. A state stays until the next page: a wrong one outlasts any `for`."""
LOOKS = 4
"""Closer looks for each page: one of each kind."""
_NS = 10**9
_BY_THE_ENGINES_CLOCK = {
    FindingKind.SILENT_RANK,
    FindingKind.SILENT_PROCESS,
    FindingKind.RANK_WITHOUT_COUNTS,
    FindingKind.RANK_NOT_CONSERVED,
}
_AGE_OF_THE_SERVERS_JUDGE = "moescope_fleet_judgement_age_seconds"
"""It has none here: the analysis is asked beside it."""
_GROWS = re.compile(r"(_total|_bucket|_count|_sum)$")

Series = dict[str, dict[int, float]]
"""Value by window, of each series in the notation of a selector."""


def watched() -> set[str]:
    """Names that any rule asks for: what promtool has to know."""
    asked = [expression for alert in ALERTS for expression in alert.expressions] + list(RECORDED.values())
    return {name for expression in asked for name, _ in selectors(expression)} - set(RECORDED)


class SimulatedPages:
    """A server and a fleet whose windows it takes one by one."""

    def __init__(self, folder: Path, monkeypatch: Any, hours: float, scenarios: list[str]) -> None:
        self._now_ns = 0
        counts = partial(PageCounts, monotonic=lambda: self._now_ns / _NS, clock_ns=lambda: self._now_ns)
        monkeypatch.setattr(fleet_page, "PageCounts", counts)
        monkeypatch.setattr(page_windows, "MAX_AGE_SECONDS", 10 * 86_400.0)
        ports = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}
        self._settings = Settings(
            **ports,
            data_dir=str(folder),
            engine_memory_bytes=2 * 2**30,
            fleet_page_window_seconds=60 * WINDOW_MINUTES,
            # Four ranks without second copies: losing a quarter with each of them is as it was meant.
            failover_lost_share=0.3,
            # Nothing of the time may be gone before it was looked at.
            landing_ttl_hours=72,
            raw_ttl_hours=72,
            minute_ttl_days=30,
        )
        self._hours = hours
        plan = make_plan(
            model="mixtral", ranks=4, tensor_parallel=1, scenarios=scenarios, seed=13, service=""
        )
        # A tenth of the usual requests: enough for every floor, and what takes time is to draw their experts.
        self._plan = replace(plan, requests_per_second=0.1)

    def record(self) -> Series:
        """Let the whole time pass."""
        series: Series = defaultdict(dict)
        names = watched()
        with Server(self._settings) as server:
            dsn = f"http://127.0.0.1:{server.ports.sql}/moescope"
            config = load_otlp_config({}, endpoint=f"http://127.0.0.1:{server.ports.otlp_grpc}")
            fleet = Fleet(self._plan, config, self._settings)
            judge = FleetJudge(dsn, self._settings, clock_ms=lambda: self._now_ns // 10**6)
            for window, stored in enumerate(fleet.backfill(self._hours * 3600, 60 * WINDOW_MINUTES)):
                assert stored, "the server took every window"
                self._now_ns = fleet._now_ns
                for sample in self._page(server, judge):
                    if sample.name in names:
                        series[notation(sample.name, sample.labels)][window] = sample.value
            judge.close()
            assert fleet.close(60)
        return series

    def _page(self, server: Server, judge: FleetJudge) -> Iterator[Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.ports.metrics}/metrics", timeout=60) as answer:
            page = samples(answer.read().decode())
            yield from (sample for sample in page if sample.name != _AGE_OF_THE_SERVERS_JUDGE)
        judge.judge()
        for _ in range(LOOKS):
            judge.look_closer()
        judgement: FleetJudgement = judge.judge()
        kept = tuple(one for one in judgement.findings if one.kind not in _BY_THE_ENGINES_CLOCK)
        families = judged_families(replace(judgement, findings=kept), hot_experts=20)
        yield from samples(render_page(families).decode())


def samples(page: str) -> Iterator[Any]:
    for family in text_string_to_metric_families(page):
        yield from family.samples


def notation(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


def minutes_of(name: str, values: dict[int, float], windows: int) -> str:
    """One value a minute: a counter grows evenly within a window, a state stays until the next page."""
    said: list[str] = []
    for window in range(windows):
        now, then = values.get(window), values.get(window + 1)
        for minute in range(WINDOW_MINUTES):
            if now is None:
                said.append("_")
            elif then is None or then < now or not _GROWS.search(name.partition("{")[0]):
                said.append(f"{now:g}" if not _GROWS.search(name.partition("{")[0]) else f"{now:.17g}")
            else:
                said.append(f"{now + (then - now) * minute / WINDOW_MINUTES:.17g}")
    return " ".join(said)


def write_rule_test(path: Path, series: Series, hours: float, quiet_hours: float, fires: list[str]) -> None:
    """A test for promtool: nothing fires within the first hours, and what was planted fires by the end.

    Args:
        path: where it goes.
        series: of :class:`SimulatedPages`.
        hours: all of them.
        quiet_hours: from the start, in which nobody may be told anything.
        fires: alerts that must fire at some time after that.
    """
    windows = round(hours * 60 / WINDOW_MINUTES)
    quiet = round(quiet_hours * 60) - WINDOW_MINUTES  # a page stands at the end of its window, the first at 0
    end = windows * WINDOW_MINUTES - 1
    firing = 'ALERTS{alertstate="firing"'
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": minutes_of(name, values, windows)} for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname) (count_over_time({firing}}}[{quiet}m]))",
                "eval_time": f"{quiet}m",
            },
            *(
                {
                    "expr": f'count(max_over_time({firing},alertname="{name}"}}[{end - quiet}m])) > bool 0',
                    "eval_time": f"{end}m",
                    "exp_samples": [{"value": 1}],
                }
                for name in fires
            ),
        ],
    }
    groups = [group["name"] for rules in RULE_FILES for group in yaml.safe_load(rules.read_text())["groups"]]
    recorded_first = sorted(
        groups, key=lambda name: (name != "moescope-traffic", not name.endswith("rates"), name)
    )
    document = {
        "rule_files": [str(FOLDER / rules.name) for rules in RULE_FILES],
        "evaluation_interval": "5m",
        "group_eval_order": recorded_first,
        "tests": [test],
    }
    path.write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), width=10**9))
