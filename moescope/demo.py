"""``make run``: the server, a simulated fleet that misbehaves, alert rules and the dashboard."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from moescope.schemas.errors import MissingExtraError, UsageError
from moescope.schemas.settings import Settings

_READY_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 15.0
_BACKFILL: Final = "30m"
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class _Part:
    """One process of the demo."""

    name: str
    process: subprocess.Popen[bytes]


def run_demo(settings: Settings, *, ranks: int, open_browser: bool) -> None:
    """Run the demo until Ctrl-C or until a part of it ends.

    Raises:
        UsageError: a part ended by itself; it has said why.
        MissingExtraError: Streamlit is not installed.
    """
    _require_streamlit()
    page = f"http://localhost:{settings.dashboard_port}"
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        data_dir = settings.data_dir or stack.enter_context(_temporary_folder())
        dsn = f"http://127.0.0.1:{settings.sql_port}/{settings.database}"
        environ = {**os.environ, "MOESCOPE_DSN": dsn, "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "1"}
        environ |= _alert_environ(settings, page)
        parts: list[_Part] = []
        stack.callback(_stop, parts)

        def start(name: str, *arguments: str) -> _Part:
            part = _Part(name, _start([sys.executable, *arguments], environ))
            parts.append(part)
            return part

        server = start("server", "-m", "moescope", "serve", "--data-dir", data_dir)
        with console.status("Starting the server …"):
            _wait_until_ready(f"http://127.0.0.1:{settings.metrics_port}/readyz", server)
        start("fleet", *_simulate(settings, ranks))
        start("alerts", "-m", "moescope", "alerts", "run", *_alert_options(settings, data_dir))
        dashboard = start("dashboard", *dashboard_command(settings))
        with console.status("Starting the dashboard …"):
            _wait_until_ready(f"{page}/_stcore/health", dashboard)
        console.print(_welcome(page, settings))
        if open_browser:
            webbrowser.open(page)
        _watch(parts)


def run_dashboard(settings: Settings) -> None:
    """Serve the dashboard in this process's place until it is ended."""
    _require_streamlit()
    command = [sys.executable, *dashboard_command(settings)]
    os.environ["MOESCOPE_DSN"] = settings.dsn
    os.execv(sys.executable, command)  # noqa: S606 - the page takes this process's place, signals included


def dashboard_command(settings: Settings) -> list[str]:
    """Arguments for Python that serve the dashboard."""
    app = Path(__file__).resolve().parent / "dashboard" / "app.py"
    options: Mapping[str, str] = {
        "server.port": str(settings.dashboard_port),
        "server.address": settings.host,
        "server.headless": "true",
        "browser.gatherUsageStats": "false",
    }
    return ["-m", "streamlit", "run", str(app), *(f"--{name}={value}" for name, value in options.items())]


def _simulate(settings: Settings, ranks: int) -> list[str]:
    # Four tensor-parallel ranks share their tokens, as K3 is served: a fourth of the ranks count.
    tensor_parallel = 4 if ranks % 4 == 0 else 1
    return [
        *("-m", "moescope", "simulate", "--model", "kimi-k3", "--ranks", str(ranks)),
        *("--tensor-parallel", str(tensor_parallel), "--seed", "7"),
        *("--scenario", "hot-expert,slow-rank@20m-25m"),
        *("--backfill", _BACKFILL, "--endpoint", f"http://127.0.0.1:{settings.otlp_grpc_port}"),
    ]


def _alert_environ(settings: Settings, page: str) -> dict[str, str]:
    """Where the parts find each other. What is simulated must wake nobody."""
    return {
        "MOESCOPE_ALERT_SOURCES": f"http://127.0.0.1:{settings.alerts_port}",
        "MOESCOPE_ALERTMANAGER_URL": "",
        "MOESCOPE_ALERT_WEBHOOK_URL": "",
        "MOESCOPE_DASHBOARD_URL": page,
    }


def _alert_options(settings: Settings, data_dir: str) -> list[str]:
    state = Path(data_dir) / "alerts.sqlite"
    return ["--state-file", str(state), "--alerts-port", str(settings.alerts_port)]


def _start(command: list[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a part in a session of its own: Ctrl-C reaches the demo, which ends the parts in order."""
    return subprocess.Popen(  # noqa: S603 - our own modules
        command,
        env=environ,
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one system call
    )


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM when the demo dies without a word: no part is left with its port."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _require_streamlit() -> None:
    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtraError("the dashboard", "dashboard")


def _wait_until_ready(url: str, part: _Part) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if part.process.poll() is not None:
            raise UsageError(f"the {part.name} ended before it was ready; its message stands above")
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(url, timeout=2) as answer,  # noqa: S310 - our own loopback URL
        ):
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise UsageError(f"the {part.name} was not ready within {_READY_SECONDS:.0f} s")


def _watch(parts: list[_Part]) -> None:
    while True:
        for part in parts:
            if part.process.poll() is not None:
                raise UsageError(
                    f"the {part.name} ended (exit code {part.process.returncode}); stopping the demo"
                )
        time.sleep(0.5)


def _stop(parts: list[_Part]) -> None:
    """End the parts from the last to the first, so that the fleet can still hand over its last window."""
    for part in reversed(parts):
        part.process.terminate()
        try:
            part.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            part.process.kill()
            part.process.wait()


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="moescope-demo-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _welcome(page: str, settings: Settings) -> str:
    sql = f"http://127.0.0.1:{settings.sql_port}/"
    question = (
        "SELECT layer, expert, sum(activations) FROM expert_activations_per_minute "
        "GROUP BY ALL ORDER BY 3 DESC LIMIT 5"
    )
    return (
        f"\n  [bold]{page}[/bold]   a simulated Kimi-K3 fleet with one hot expert\n"
        f"  curl '{sql}' --data-binary '{question}'\n\n  Ctrl-C ends all of it.\n"
    )
