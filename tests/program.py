"""Run a program of the project as a user does: a process of its own, from the project's folder."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_python(*arguments: str, timeout: float = 220, **environ: str) -> subprocess.CompletedProcess:
    """Run this Python; its last window has a minute to be accepted, however busy the machine is."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "60", **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        check=False,
    )


def run_moescope(*arguments: str, timeout: float = 220, **environ: str) -> subprocess.CompletedProcess:
    """Run the command line."""
    return run_python("-m", "moescope", *arguments, timeout=timeout, **environ)
