"""Every view of a store against the truth of a simulated fleet: to the token and to the byte.

    python benchmarks/reconcile.py truth.json --dsn http://127.0.0.1:8123/moescope

The store must hold this one run and nothing else of that service. A rank whose clock ran ahead has no newest
state until time has caught up with it: compare runs that end later. Whole numbers must be equal; seconds,
which are sums of doubles in another order, equal to one part in a thousand million. Prints a row per view and
ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NULL = "ᴺᵁᴸᴸ"
"""How the format with numbers as text, which keeps whole numbers whole, writes NULL."""
Key = tuple[str | int, ...]
Numbers = dict[Key, float]
ROUNDING = 1e-9
APPORTIONED = 1e-6
"""The view shares a layer's nanoseconds out over its experts and the sum puts them together again."""


@dataclass(frozen=True)
class Check:
    view: str
    expected: Numbers
    found: Numbers
    relative: float = 0.0

    def differing(self) -> list[Key]:
        """Keys whose numbers differ; what is missing on one side is 0, and what is no number differs."""
        return [key for key in self.expected.keys() | self.found.keys() if not self._agrees(key)]

    def _agrees(self, key: Key) -> bool:
        expected, found = self.expected.get(key, 0), self.found.get(key, 0)
        return abs(expected - found) <= self.relative * abs(expected)


class Store:
    def __init__(self, dsn: str, service: str) -> None:
        parts = urllib.parse.urlsplit(dsn)
        database = parts.path.strip("/") or "moescope"
        self._url = f"{parts.scheme}://{parts.netloc}/?database={database}&default_format=JSONCompactStrings"
        self._service = service

    def has_column(self, view: str, column: str) -> bool:
        where = f"database = currentDatabase() AND table = '{view}' AND name = '{column}'"
        return self._rows(f"SELECT count() FROM system.columns WHERE {where}") != [["0"]]

    def numbers(self, select: str, view: str, keys: str, where: str = "1") -> list[list[str]]:
        """Rows of ``keys`` and what is selected, of this service."""
        grouped = f"GROUP BY {keys}" if keys else ""
        columns = f"{keys}, {select}" if keys else select
        return self._rows(
            f"SELECT {columns} FROM {view} WHERE service = '{self._service}' AND {where} {grouped}"
        )

    def _rows(self, query: str) -> list[list[str]]:
        request = urllib.request.Request(self._url, data=query.encode())
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)["data"]

    def table(self, select: Mapping[str, str], view: str, keys: str, where: str = "1") -> Numbers:
        """By key and name of each selected number; NULL is left out."""
        width = len(keys.split(",")) if keys else 0
        rows = self.numbers(", ".join(select.values()), view, keys, where)
        return {
            (*row[:width], name): _number(text)
            for row in rows
            for name, text in zip(select, row[width:], strict=True)
            if text != _NULL
        }


def _number(text: str) -> float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _sums(**columns: str) -> dict[str, str]:
    return {name: f"sum({column})" for name, column in columns.items()}


def _newest(**columns: str) -> dict[str, str]:
    return {name: f"argMax({column}, time)" for name, column in columns.items()}


def _groups(truth: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from truth["groups"].items()


def expert_activations(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (phase, str(layer), str(expert), "n"): count
        for phase, rows in truth["phases"].items()
        for layer, row in zip(truth["layers"], rows, strict=True)
        for expert, count in enumerate(row)
    }
    found = store.table(_sums(n="activations"), "expert_activations_per_minute", "phase, layer, expert")
    yield Check("expert_activations_per_minute", expected, found)
    by_layer: Counter[Key] = Counter()
    for (phase, layer, _, _), count in expected.items():
        by_layer[phase, layer, "n"] += count
    found = store.table(_sums(n="tokens"), "expert_latency", "phase, layer")
    yield Check("expert_latency, tokens", dict(by_layer), found)


def rank_load(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    """By rank: copies of an expert share its tokens evenly; each ratio follows from its own layer."""
    expected: Counter[Key] = Counter()
    unseen = _unseen(truth)
    for group, part in _groups(truth):
        for row, slots in enumerate(part["placement"]["physical_to_logical_map"]):
            ranks = [slot * truth["ranks"] // len(slots) for slot in range(len(slots))]
            held = [
                (rank, expert)
                for rank, expert in zip(ranks, slots, strict=True)
                if expert >= 0 and (group, rank) not in unseen
            ]
            copies = Counter(expert for _, expert in held)
            for phase, rows in part["expert_tokens"].items():
                for rank, expert in held:
                    key = (group, phase, str(truth["layers"][row]), str(rank))
                    expected[*key, "load"] += rows[row][expert] / copies[expert]
                    expected[*key, "wrong ratios"] = 0
    layers = (
        "SELECT *, avg(load) OVER (PARTITION BY time, service, ep_group, phase, layer) AS mean FROM rank_load"
    )
    wrong = _wrong("load_ratio", "load / mean", empty="mean = 0", then="load_ratio = 1")
    keys = "ep_group, phase, layer, ep_rank"
    found = store.table({"load": "sum(load)", "wrong ratios": wrong}, f"({layers})", keys)
    yield Check("rank_load", dict(expected), found, ROUNDING)


def _wrong(ratio: str, right: str, *, empty: str, then: str) -> str:
    """Counts rows whose ratio does not follow from the row; NULL and NaN do not either."""
    return f"countIf(NOT ifNull(if({empty}, {then}, abs({ratio} - {right}) <= {ROUNDING}), 0))"


def expert_latency(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (group, phase, str(layer), "ns"): nanoseconds
        for group, part in _groups(truth)
        for phase, row in part["expert_group_ns"].items()
        for layer, nanoseconds in enumerate(row)
    }
    found = store.table(
        _sums(ns="duration_ns"), "expert_latency", "ep_group, phase, layer", "source = 'apportioned'"
    )
    yield Check("expert_latency, ns", expected, found, APPORTIONED)


def expert_memory(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected: Counter[Key] = Counter()
    for group, part in _groups(truth):
        each = part["placement"]["expert_bytes"]
        for layer, slots in zip(truth["layers"], part["placement"]["physical_to_logical_map"], strict=True):
            for slot, expert in enumerate(slots):
                if expert >= 0:
                    rank = slot * truth["ranks"] // len(slots)
                    expected[group, str(rank), str(layer), str(expert), "replicas"] += 1
                    expected[group, str(rank), str(layer), str(expert), "bytes"] += each
    keys = "ep_group, ep_rank, layer, expert"
    found = store.table(_sums(replicas="replicas", bytes="bytes"), "expert_memory", keys)
    unseen = _unseen(truth)
    seen = {key: value for key, value in expected.items() if (key[0], int(key[1])) not in unseen}
    yield Check("expert_memory", seen, found)


def _unseen(truth: dict[str, Any]) -> set[tuple[str, int]]:
    """Ranks that never reported: nobody knows what they hold."""
    return {rank for rank, memory in _ranks(truth, "memory") if not memory}


def _ranks(truth: dict[str, Any], name: str) -> Iterator[tuple[tuple[str, int], Any]]:
    for group, part in _groups(truth):
        for rank, values in enumerate(part[name]):
            yield (group, rank), values


def failovers(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (group, str(row["layer"]), str(row["expert"]), row["reason"], "n"): row["failovers"]
        for group, part in _groups(truth)
        for row in part["failovers"]
    }
    keys = "ep_group, layer, expert, reason"
    yield Check("expert_failovers", expected, store.table(_sums(n="failovers"), "expert_failovers", keys))


def rank_traffic(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (group, phase, str(rank), str(peer), name): value
        for group, part in _groups(truth)
        for phase, matrices in part["traffic"].items()
        for name, matrix in matrices.items()
        for rank, row in enumerate(matrix)
        for peer, value in enumerate(row)
    }
    columns = _sums(sent="bytes_sent", received="bytes_received", tokens="tokens", assignments="assignments")
    found = store.table(columns, "rank_traffic", "ep_group, phase, ep_rank, peer_rank")
    yield Check("rank_traffic", expected, found)


def dispatch(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (group, stage, str(rank), str(peer), "ns"): value
        for group, part in _groups(truth)
        for stage, matrix in part["wait_ns"].items()
        for rank, row in enumerate(matrix)
        for peer, value in enumerate(row)
    }
    found = store.table(
        {"ns": "sum(wait_seconds) * 1e9"}, "dispatch_wait", "ep_group, stage, ep_rank, peer_rank"
    )
    yield Check("dispatch_wait", expected, found, ROUNDING)
    expected = {
        (group, phase, stage, str(rank), name): value
        for group, part in _groups(truth)
        for phase, stages in part["dispatch"].items()
        for stage, columns in stages.items()
        for name, values in columns.items()
        for rank, value in enumerate(values)
    }
    found = store.table(
        _sums(calls="calls", seconds="total_seconds"),
        "dispatch_time",
        "ep_group, phase, stage, ep_rank",
        "layer = -1",
    )
    yield Check("dispatch_time", expected, found, ROUNDING)


def steps(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (group, phase, str(rank), name): value
        for group, part in _groups(truth)
        for phase, columns in part["steps"].items()
        for name, values in columns.items()
        for rank, value in enumerate(values)
    }
    columns = _sums(steps="steps", tokens="tokens", seconds="total_seconds")
    found = store.table(columns, "step_time", "ep_group, phase, ep_rank")
    yield Check("step_time", expected, found, ROUNDING)
    expected = {
        (group, phase, excluded, str(rank), "n"): value
        for group, part in _groups(truth)
        for phase, kinds in part["tokens"].items()
        for excluded, values in kinds.items()
        for rank, value in enumerate(values)
    }
    found = store.table(_sums(n="tokens"), "tokens_per_second", "ep_group, phase, excluded, ep_rank")
    yield Check("tokens_per_second", expected, found)


def memory(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (*_text(rank), pool, name): value
        for rank, pools in _ranks(truth, "memory")
        for pool, values in pools.items()
        for name, value in values.items()
    }
    columns = _newest(used="used_bytes", limit="limit_bytes")
    keys = "ep_group, ep_rank, pool"
    yield Check("memory_by_pool", expected, store.table(columns, "memory_by_pool", keys))
    expected = {
        (*_text(rank), pool, "used_ratio"): values["used"] / values["limit"]
        for rank, pools in _ranks(truth, "memory")
        for pool, values in pools.items()
        if values["limit"]
    }
    found = store.table(_newest(used_ratio="used_ratio"), "memory_by_pool", keys)
    yield Check("memory_by_pool, ratio", expected, found, ROUNDING)
    expected = {
        (*_text(rank), name): value
        for rank, values in _ranks(truth, "cache")
        for name, value in values.items()
    }
    columns = {
        **_newest(kda_slots="kda_slots", kda_slots_limit="kda_slots_limit"),
        **_newest(mla_blocks="mla_blocks", mla_blocks_limit="mla_blocks_limit"),
        **_sums(kda_copies_on_write="kda_copies_on_write", kda_copies_checkpoint="kda_copies_checkpoint"),
    }
    yield Check("cache_state", expected, store.table(columns, "cache_state", "ep_group, ep_rank"))
    expected = {
        (*_text(rank), name): value
        for rank, values in _ranks(truth, "gpu")
        for name, value in values.items()
        if name != "utilization"
    }
    columns = {
        **_newest(memory_used_bytes="memory_used_bytes", memory_limit_bytes="memory_limit_bytes"),
        **_sums(sent_bytes="sent_bytes", received_bytes="received_bytes"),
    }
    yield Check("gpu", expected, store.table(columns, "gpu", "ep_group, ep_rank"))
    if not _has_a_minute_per_window(truth, store):
        print("gpu.utilization: windows shorter than a minute share a mean; not compared", file=sys.stderr)
        return
    expected = {(*_text(rank), "busy"): values["utilization"] for rank, values in _ranks(truth, "gpu")}
    found = store.table(_newest(busy="utilization"), "gpu", "ep_group, ep_rank")
    yield Check("gpu, utilization", expected, found, ROUNDING)


def _text(rank: tuple[str, int]) -> tuple[str, str]:
    return rank[0], str(rank[1])


def requests(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    expected = {
        (group, f"{name}_tokens"): value
        for group, part in _groups(truth)
        for name, value in part["prefix_cache"].items()
    }
    names = ("hit_tokens", "partial_hit_tokens", "miss_tokens")
    found = store.table(_sums(**{name: name for name in names}), "prefix_cache", "ep_group")
    yield Check("prefix_cache", expected, found)
    of_all = " + ".join(names)
    wrong = _wrong(
        "hit_ratio",
        f"(hit_tokens + partial_hit_tokens) / ({of_all})",
        empty=f"{of_all} = 0",
        then="isNull(hit_ratio)",
    )
    expected = {(group, "wrong ratios"): 0 for group, _ in _groups(truth)}
    yield Check(
        "prefix_cache, ratio", expected, store.table({"wrong ratios": wrong}, "prefix_cache", "ep_group")
    )
    expected = {
        (group, metric, name): value
        for group, part in _groups(truth)
        for metric, values in part["latency"].items()
        for name, value in values.items()
    }
    columns = {"observations": "sum(observations)", "seconds": "sum(mean_seconds * observations)"}
    found = store.table(columns, "request_latency", "ep_group, metric")
    yield Check("request_latency", expected, found, ROUNDING)
    yield from goodput(truth, store)
    yield from request_load(truth, store)


def goodput(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    """The ranks of every minute: a group that only prefills finishes nothing and costs as much."""
    expected = {
        (group, name): value for group, part in _groups(truth) for name, value in part["goodput"].items()
    }
    expected |= {(group, "most ranks"): part["goodput"]["ranks"] for group, part in _groups(truth)}
    columns = {
        **_sums(requests="requests", good_requests="good_requests"),
        **_sums(output_tokens="output_tokens", good_tokens="good_tokens"),
        "ranks": "min(ranks)",
        "most ranks": "max(ranks)",
    }
    if not store.has_column("goodput", "covered_seconds"):  # such a store has rows of finished requests only
        idle = {group for group, part in _groups(truth) if not part["goodput"]["requests"]}
        expected = {key: value for key, value in expected.items() if key[0] not in idle}
    yield Check("goodput", expected, store.table(columns, "goodput", "ep_group"))


def _has_a_minute_per_window(truth: dict[str, Any], store: Store) -> bool:
    """Whether no two windows share a minute; one more tells the end of the processes."""
    minutes = store.table({"n": "uniqExact(time)"}, "request_load", "ep_group")
    return set(minutes.values()) == {truth["windows"] + 1}


def request_load(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    """States: exact where each window has a minute of its own, and one more tells the end of the process."""
    if not _has_a_minute_per_window(truth, store):
        print("request_load: windows shorter than a minute share a mean; not compared", file=sys.stderr)
        return
    expected = {
        (group, name): values["sum"] + values["last"]
        for group, part in _groups(truth)
        for name, values in part["load"].items()
    }
    found = store.table(_sums(running="running", waiting="waiting"), "request_load", "ep_group")
    yield Check("request_load", expected, found, ROUNDING)


def health(truth: dict[str, Any], store: Store) -> Iterator[Check]:
    """Over what the raw tables still keep: within the raw retention (a setting) that is the whole run."""
    expected: Counter[Key] = Counter()
    for group, part in _groups(truth):
        expected[group, "tokens"] = sum(sum(part["tokens"][phase]["none"]) for phase in truth["phases"])
        expected[group, "missing"] = 0
    columns = _sums(tokens="tokens", missing="missing_assignments")
    yield Check("telemetry_health", dict(expected), store.table(columns, "telemetry_health", "ep_group"))


CHECKS: tuple[Callable[[dict[str, Any], Store], Iterator[Check]], ...] = (
    *(expert_activations, rank_load, expert_latency, expert_memory, failovers, rank_traffic, dispatch, steps),
    *(memory, requests, health),
)


def reconcile(truth: dict[str, Any], dsn: str) -> list[Check]:
    """Compare every view; prints a row for each and returns those that differ."""
    store = Store(dsn, truth["service"])
    wrong = []
    print(f"{'view':32} {'numbers':>9} {'differ':>7}")
    for checks in CHECKS:
        for check in checks(truth, store):
            differing = check.differing()
            print(f"{check.view:32} {len(check.expected):>9,} {len(differing):>7,}")
            for key in sorted(differing, key=str)[:3]:
                print(f"    {key}: emitted {check.expected.get(key, 0)}, stored {check.found.get(key, 0)}")
            if differing:
                wrong.append(check)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("truth", type=Path, help="file that moescope simulate --truth wrote")
    parser.add_argument("--dsn", default="http://127.0.0.1:8123/moescope", help="the store")
    arguments = parser.parse_args()
    wrong = reconcile(json.loads(arguments.truth.read_text(encoding="utf-8")), arguments.dsn)
    print("every number agrees" if not wrong else f"{len(wrong)} views differ from the truth")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
