"""However a process ends, what it counted arrives, once. Real processes, real sockets."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

PRELUDE = """
import multiprocessing, os, signal, sys, time
import numpy as np
import moescope
from moescope import ModelShape, Row

def count(recorder, tokens):
    recorder.begin_step((Row.DECODE, tokens))
    recorder.record_topk(1, np.tile([[0, 2]], (tokens, 1)))

recorder = moescope.instrument(shape=ModelShape("tiny", 2, (1,), 3, 2), service="svc")
count(recorder, 13)
"""


def run(endpoint, script: str, *, expected_code: int | None = 0, **environ: str) -> str:
    process = start(endpoint, script, **environ)
    _, errors = process.communicate(timeout=60)
    assert expected_code is None or process.returncode == expected_code, errors
    return errors


def start(endpoint, script: str, **environ: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        env={
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": endpoint.protocol,
            "MOESCOPE_INTERVAL_SECONDS": "3600",
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def counted(endpoint) -> dict[str, list[int]]:
    """Sums by instance, each distinct request once, as the store keeps them."""
    sums: dict[str, list[int]] = {}
    for body in set(endpoint.bodies):
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            attributes = {a.key: a.value.string_value for a in resource_metrics.resource.attributes}
            for metric in resource_metrics.scope_metrics[0].metrics:
                if metric.name == "moe.expert.tokens":
                    for point in metric.histogram.data_points:
                        total = sums.setdefault(attributes["service.instance.id"], [0, 0, 0])
                        sums[attributes["service.instance.id"]] = [
                            a + b for a, b in zip(total, point.bucket_counts, strict=True)
                        ]
    return sums


def test_normal_end_hands_over_the_last_window(endpoint):
    run(endpoint, "")

    assert list(counted(endpoint).values()) == [[13, 0, 13]]


def test_exception_at_the_top_hands_over_the_last_window(endpoint):
    run(endpoint, "raise RuntimeError", expected_code=1)

    assert list(counted(endpoint).values()) == [[13, 0, 13]]


def test_sigterm_hands_over_the_last_window_and_still_ends_the_process(endpoint):
    process = start(endpoint, "print('ready', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)

    assert process.returncode == -signal.SIGTERM
    assert list(counted(endpoint).values()) == [[13, 0, 13]]


def test_sigterm_handler_of_the_engine_is_left_alone(endpoint):
    script = """
    import signal
    handler = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("ready", flush=True)
    time.sleep(60)
    """
    process = start(endpoint, script)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)

    assert process.returncode == 7
    assert list(counted(endpoint).values()) == [[13, 0, 13]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_child_reports_its_own_counts_as_itself(endpoint, method: str, tmp_path):
    # A file, since spawn cannot import what was given with -c.
    script = tmp_path / "program.py"
    script.write_text(
        "import multiprocessing, os, sys\nimport numpy as np\nimport moescope\n"
        "from moescope import ModelShape, Row\n\n"
        "def count(recorder, tokens):\n"
        "    recorder.begin_step((Row.DECODE, tokens))\n"
        "    recorder.record_topk(1, np.tile([[0, 2]], (tokens, 1)))\n\n"
        "def child(recorder):\n"
        "    recorder = recorder or make()\n"
        "    count(recorder, 23)\n\n"
        "def make():\n"
        "    return moescope.instrument(shape=ModelShape('tiny', 2, (1,), 3, 2), service='svc')\n\n"
        "if __name__ == '__main__':\n"
        "    recorder = make()\n"
        "    count(recorder, 13)\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        f"    given = recorder if '{method}' == 'fork' else None\n"
        "    process = context.Process(target=child, args=(given,))\n"
        "    process.start()\n"
        "    process.join(30)\n"
        "    assert process.exitcode == 0, process.exitcode\n"
    )
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": endpoint.protocol,
        "MOESCOPE_INTERVAL_SECONDS": "3600",
    }
    done = subprocess.run(
        [sys.executable, str(script)], env=environ, timeout=60, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert sorted(counted(endpoint).values()) == [[13, 0, 13], [23, 0, 23]]


def test_forked_child_that_counts_nothing_reports_nothing(endpoint):
    script = """
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    process = multiprocessing.get_context("fork").Process(target=lambda: None)
    process.start(); process.join(30)
    assert process.exitcode == 0
    """
    run(endpoint, script)

    assert list(counted(endpoint).values()) == [[13, 0, 13]]
    assert len(endpoint.bodies) == 1


def test_fork_after_the_connection_is_open_doubles_nothing(endpoint):
    script = """
    assert recorder.flush(10)
    pid = os.fork()
    if pid == 0:
        count(recorder, 23)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    count(recorder, 79)
    """
    run(endpoint, script)

    assert sorted(counted(endpoint).values()) == [[23, 0, 23], [92, 0, 92]]


def test_end_does_not_wait_longer_than_it_was_told_for_an_endpoint_that_is_away(endpoint):
    endpoint.stop()
    errors = run(endpoint, "", MOESCOPE_FLUSH_TIMEOUT_SECONDS="0.2")
    endpoint.stop = lambda: None

    assert "lost with this process" in errors


def test_switched_off_means_not_a_single_request(endpoint):
    run(endpoint, "assert type(recorder).__name__ == 'NullRecorder'", OTEL_SDK_DISABLED="true")

    assert endpoint.bodies == []


def test_end_keeps_its_time_out_where_the_endpoint_accepts_and_never_answers():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        endpoint = SimpleNamespace(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        for endpoint.protocol in ("grpc", "http/protobuf"):
            script = "before = time.monotonic(); recorder.close(1.0); print(time.monotonic() - before)"
            process = start(endpoint, script)
            output, errors = process.communicate(timeout=60)

            assert float(output) < 8, "one second was given; ten is the time-out of a request"
            assert "lost with this process" in errors


def test_certificate_that_is_not_there_keeps_neither_serving_nor_the_end_of_the_process(endpoint):
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere/ca.pem",
        "MOESCOPE_FLUSH_TIMEOUT_SECONDS": "0.2",
    }
    script = "assert not recorder.flush(0.1); print('ready', flush=True); time.sleep(60)"
    process = start(endpoint, script, **environ)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)

    assert process.returncode == -signal.SIGTERM
