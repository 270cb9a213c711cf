"""What a benchmark ran on, and the line it ends with."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any


def describe_machine() -> str:
    """Processor, cores that this process may use, and versions that decide over speed."""
    import numpy as np

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Python {platform.python_version()}, numpy {np.__version__}"


def print_result(
    name: str,
    ratio: float,
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    **figures: Any,
) -> None:
    """Print the one JSON object that ends a benchmark's output; exit with 1 where the ratio misses its limit.

    A run with ``--quick`` is a smoke test: too short to judge, it only reports.
    """
    is_met = (at_least is None or ratio >= at_least) and (at_most is None or ratio <= at_most)
    limits = {"at_least": at_least, "at_most": at_most}
    result = {"name": name, "ratio": round(ratio, 4), "unit": unit, "machine": describe_machine()}
    result |= {key: limit for key, limit in limits.items() if limit is not None}
    print(json.dumps({**result, "is_met": is_met, **figures}), flush=True)
    if not is_met and "--quick" not in sys.argv:
        sys.exit(1)
