"""A fleet in which everything goes wrong, and every view of it: to the token and to the byte."""

import contextlib
import importlib.util
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import run_python
from tests.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("reconcile", ROOT / "benchmarks" / "reconcile.py")
assert _spec is not None
reconciling = importlib.util.module_from_spec(_spec)
sys.modules["reconcile"] = reconciling
_spec.loader.exec_module(reconciling)
EVERYTHING = (
    "hot-expert,topic-shift@1m-3m,slow-rank@1m-4m,dead-rank@2m-4m,router-down@3m-4m,kda-pressure,"
    "long-context@2m,prefill-congestion@1m-2m,cache-miss-storm@1m-2m,skewed-clock@1m-2m,"
    "duplicate-instance@1m-3m,silent-rank@2m-4m"
)


def simulate(server: ServerProcess, truth: Path, *arguments: str) -> None:
    done = run_python(
        *("-m", "moescope", "simulate", "--endpoint", server.endpoint, "--truth", str(truth)),
        *("--seed", "13", "--duration", "0s", *arguments),
    )
    assert done.returncode == 0, done.stderr


def reconcile(server: ServerProcess, truth: Path) -> subprocess.CompletedProcess:
    return run_python("benchmarks/reconcile.py", str(truth), "--dsn", server.dsn)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "gpt-oss", "--ranks", "8", "--scenario", EVERYTHING, "--backfill", "6m"),
        (
            *("--model", "mixtral", "--ranks", "4", "--ep-groups", "2", "--roles", "disaggregated"),
            *("--tensor-parallel", "2", "--backfill", "2m"),
        ),
    ],
    ids=["everything at once", "prefill and decode apart"],
)
def test_every_view_holds_what_was_emitted(server: ServerProcess, tmp_path: Path, arguments: tuple[str, ...]):
    truth = tmp_path / "truth.json"
    simulate(server, truth, *arguments)

    compared = reconcile(server, truth)

    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert compared.stdout.splitlines()[-1] == "every number agrees"


def test_one_byte_of_difference_is_found_and_named(server: ServerProcess, tmp_path: Path):
    truth = tmp_path / "truth.json"
    simulate(server, truth, "--model", "mixtral", "--ranks", "2", "--backfill", "1m")
    emitted = json.loads(truth.read_text())

    def differing(change) -> list[str]:
        changed = json.loads(truth.read_text())
        change(changed["groups"]["0"])
        with contextlib.redirect_stdout(io.StringIO()):
            return [check.view for check in reconciling.reconcile(changed, server.dsn)]

    def swap_two_experts(group: dict) -> None:
        row = group["placement"]["physical_to_logical_map"][13]
        row[0], row[-1] = row[-1], row[0]

    assert differing(lambda group: group["goodput"].update(ranks=3)) == ["goodput"]
    assert differing(lambda group: group["gpu"][1].update(utilization=1.5)) == ["gpu, utilization"]
    assert differing(swap_two_experts) == ["rank_load", "expert_memory"], "the sum of a layer stays the same"
    weights = emitted["groups"]["0"]["memory"][1]["weights"]
    assert differing(lambda group: group["memory"][1]["weights"].update(limit=weights["limit"] * 2)) == [
        *("memory_by_pool", "memory_by_pool, ratio")
    ]
    emitted["groups"]["0"]["traffic"]["decode"]["sent"][0][1] += 1
    truth.write_text(json.dumps(emitted))

    compared = reconcile(server, truth)

    assert compared.returncode == 1
    assert "rank_traffic" in compared.stdout
    assert "('0', 'decode', '0', '1', 'sent')" in compared.stdout
    assert compared.stdout.splitlines()[-1] == "1 views differ from the truth"


def test_what_is_no_number_does_not_agree(server: ServerProcess):
    check = reconciling.Check("any", {("a",): 13.0, ("b",): 1.0}, {("a",): math.nan, ("b",): 1.0}, 1e-9)
    assert check.differing() == [("a",)]

    rows = " UNION ALL ".join(
        f"SELECT 'x' AS service, '{group}' AS ep_group, {part} AS part, {whole} AS whole, {ratio} AS ratio"
        for group, part, whole, ratio in (
            *(("right", 1, 4, "toNullable(0.25)"), ("right", 0, 0, "toNullable(1.0)")),
            *(("nan", 1, 4, "nan"), ("null", 1, 4, "NULL"), ("wrong", 1, 4, "0.26"), ("empty", 0, 0, "nan")),
        )
    )
    wrong = reconciling._wrong("ratio", "part / whole", empty="whole = 0", then="ratio = 1")
    found = reconciling.Store(server.dsn, "x").table({"wrong": wrong}, f"({rows})", "ep_group")

    assert {group: count for (group, _), count in found.items()} == {
        "right": 0,
        "nan": 1,
        "null": 1,
        "wrong": 1,
        "empty": 1,
    }
