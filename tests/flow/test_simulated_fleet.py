"""A fleet in which everything goes wrong, and every view of it: to the token and to the byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = (
    "hot-expert,topic-shift@1m-3m,slow-rank@1m-4m,dead-rank@2m-4m,router-down@3m-4m,kda-pressure,"
    "long-context@2m,prefill-congestion@1m-2m,cache-miss-storm@1m-2m,skewed-clock@1m-2m,"
    "duplicate-instance@1m-3m,silent-rank@2m-4m"
)


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "60"},
        capture_output=True,
        text=True,
        timeout=220,
        cwd=ROOT,
        check=False,
    )


def simulate(server: ServerProcess, truth: Path, *arguments: str) -> None:
    done = run(
        *("-m", "moescope", "simulate", "--endpoint", server.endpoint, "--truth", str(truth)),
        *("--seed", "13", "--duration", "0s", *arguments),
    )
    assert done.returncode == 0, done.stderr


def reconcile(server: ServerProcess, truth: Path) -> subprocess.CompletedProcess:
    return run("benchmarks/reconcile.py", str(truth), "--dsn", server.dsn)


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
    changed = json.loads(truth.read_text())
    changed["groups"]["0"]["traffic"]["decode"]["sent"][0][1] += 1
    truth.write_text(json.dumps(changed))

    compared = reconcile(server, truth)

    assert compared.returncode == 1
    assert "rank_traffic" in compared.stdout
    assert "('0', 'decode', '0', '1', 'sent')" in compared.stdout
    assert compared.stdout.splitlines()[-1] == "1 views differ from the truth"
