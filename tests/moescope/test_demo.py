"""What `make run` starts: three real processes, one page, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.server_process import free_ports


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_demo_serves_the_page_and_sql_and_leaves_nothing_behind(tmp_path: Path, ended_by: signal.Signals):
    names = ("OTLP_GRPC", "OTLP_HTTP", "SQL", "METRICS", "ALERTS", "DASHBOARD")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    environ = {f"MOESCOPE_{name}_PORT": str(port) for name, port in ports.items()}
    with (tmp_path / "log").open("w") as log:
        demo = subprocess.Popen(
            [sys.executable, "-m", "moescope", "demo", "--ranks", "8"],
            env={**os.environ, **environ, "TMPDIR": str(tmp_path)},
            stderr=log,
            stdout=log,
            # Tests that a shell runs in the background inherit that Ctrl-C is ignored.
            preexec_fn=_take_ctrl_c,  # noqa: PLW1509 - sets a signal and nothing else before the exec
        )
    try:
        rows = wait_for_rows(ports["SQL"], demo)
        page = _body(f"http://localhost:{ports['DASHBOARD']}/")
        rules = _body(f"http://localhost:{ports['ALERTS']}/api/v1/rules")
    finally:
        demo.send_signal(ended_by)
        demo.wait(90)

    assert rows[0].split("\t")[:2] == ["40", "347"], "the planted expert is the most chosen"
    assert b"<title>" in page
    assert b"HotExpertHarmful" in rules
    assert demo.returncode == 0, (tmp_path / "log").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("moescope-demo")] == []
    for port in ports.values():
        with pytest.raises(OSError, match="refused"):
            _body(f"http://127.0.0.1:{port}/")
    assert "Traceback" not in (tmp_path / "log").read_text()


def _body(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def _take_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_rows(port: int, demo: subprocess.Popen) -> list[str]:
    question = (
        "SELECT layer, expert, sum(activations) FROM expert_activations_per_minute "
        "GROUP BY ALL ORDER BY 3 DESC LIMIT 5"
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert demo.poll() is None
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/", data=question.encode(), timeout=30
            ) as answer:
                if rows := answer.read().decode().splitlines():
                    return rows
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("no rows within 120 s")
