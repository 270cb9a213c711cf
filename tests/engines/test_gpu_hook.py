"""The benchmark for CUDA GPUs, as far as it runs without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_hook.py"


def run(*arguments, **environ):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ | environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_dry_run_counts_what_it_was_handed_and_ends_in_one_line_of_json():
    done = run("--device", "cpu")

    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    result = json.loads(last)
    assert {"name", "ratio", "unit", "machine"} <= set(result)
    assert result["is_dry_run"]
    assert [row["tokens"] for row in result["rows"]] == [1, 13, 79]
    assert result["ratio"] == max(row["ratio"] for row in result["rows"]) > 1
    assert "nothing synchronises" in table[-1]


def test_without_a_device_it_says_so_in_one_line():
    done = run(CUDA_VISIBLE_DEVICES="")

    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        "There is no CUDA device here; --device cpu makes a dry run."
    )
