"""What a benchmark ran on, and the line it ends with."""

from __future__ import annotations

import json
import os
import platform
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


def print_result(name: str, ratio: float, unit: str, **figures: Any) -> None:
    """Print the one JSON object that ends a benchmark's output."""
    print(
        json.dumps(
            {"name": name, "ratio": round(ratio, 4), "unit": unit, "machine": describe_machine(), **figures}
        )
    )
