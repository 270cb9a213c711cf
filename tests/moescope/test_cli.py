"""The command line as a person meets it: real processes, exit codes, and what they are told."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from moescope.schemas.report_schema import read_report_schema
from tests.server_process import ServerProcess, free_ports


def run(*arguments: str, timeout: float = 60, **environ: str) -> subprocess.CompletedProcess:
    environ = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", **environ}
    return subprocess.run(
        [sys.executable, "-m", "moescope", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def serve(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess:
    ports = free_ports(4)
    names = ("otlp-grpc", "otlp-http", "sql", "metrics")
    options = [f"--{name}-port={port}" for name, port in zip(names, ports, strict=True)]
    return run("serve", "--data-dir", str(tmp_path / "data"), *options, *arguments, **environ)


def test_version_is_on_stdout():
    done = run("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, "moescope 0.1.0\n", "")


@pytest.mark.parametrize(
    "arguments", [["serve", "--sqlport", "1"], ["simulate", "--ranks", "none"], ["repotr"]]
)
def test_wrong_use_ends_with_2_and_nothing_on_stdout(arguments: list[str]):
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_port_that_no_machine_has_is_named(tmp_path: Path):
    done = serve(tmp_path, "--sql-port", "70000")

    assert done.returncode == 2
    assert "--sql-port=70000 is out of range; it takes from 0 to 65535" in done.stderr


def test_busy_port_is_named_with_the_way_to_change_it(tmp_path: Path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        done = serve(tmp_path, "--sql-port", str(port))

    assert done.returncode == 2
    assert str(port) in done.stderr
    assert "--sql-port" in done.stderr
    assert "Traceback" not in done.stderr


def test_data_directory_that_is_a_file_is_named(tmp_path: Path):
    (tmp_path / "data").write_text("not a folder")

    done = serve(tmp_path)

    assert done.returncode == 2
    assert str(tmp_path / "data") in done.stderr
    assert "Traceback" not in done.stderr


def test_second_server_on_the_same_data_names_the_first(server: ServerProcess):
    done = serve(server.data_dir.parent)

    assert done.returncode == 2
    assert str(server.process.pid) in done.stderr
    assert server.sql("SELECT 1") == [["1"]], "the first one serves on"


def test_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path):
    done = serve(tmp_path, MOESCOPE_SQL_PROT="1")

    assert done.returncode == 2
    assert "MOESCOPE_SQL_PROT; did you mean MOESCOPE_SQL_PORT?" in done.stderr


def test_truth_in_a_folder_that_is_not_there_is_refused_before_anything_runs():
    done = run("simulate", "--truth", "/nowhere/truth.json")

    assert done.returncode == 2
    assert "there is no folder /nowhere" in done.stderr


def test_simulation_without_an_endpoint_says_what_was_not_stored(tmp_path: Path):
    [port] = free_ports(1)
    done = run(
        *("simulate", "--model", "mixtral", "--ranks", "1", "--duration", "0.1s", "--interval", "0.1s"),
        *("--endpoint", f"127.0.0.1:{port}"),
        MOESCOPE_FLUSH_TIMEOUT_SECONDS="0.1",
    )

    assert done.returncode == 1
    assert "did not acknowledge" in done.stderr
    assert "moescope serve" in done.stderr


@pytest.mark.parametrize(
    "report", ["hotspots", "imbalance", "quality", "latency", "memory", "traffic", "failover"]
)
def test_report_without_a_store_says_how_to_start_one(report: str):
    [port] = free_ports(1)
    done = run("report", report, "--dsn", f"http://127.0.0.1:{port}/moescope")

    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "moescope serve" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def patient_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server to which nobody is silent: what its reports are asked before may take minutes."""
    monkeypatch.setenv("MOESCOPE_SILENT_AFTER_SECONDS", "3600")
    made = ServerProcess(tmp_path / "data").start()
    yield made
    made.stop()


def test_reports_and_doctor_name_the_planted_expert(patient_server: ServerProcess, tmp_path: Path):
    server = patient_server
    simulated = run(
        *("simulate", "--model", "deepseek-v3", "--ranks", "32", "--tensor-parallel", "8", "--seed", "7"),
        *("--scenario", "hot-expert", "--backfill", "4m", "--duration", "1s", "--interval", "1s"),
        *("--endpoint", server.endpoint, "--truth", str(tmp_path / "truth")),
        timeout=200,
    )
    assert simulated.returncode == 0, simulated.stderr
    assert simulated.stdout == ""

    hotspots = run("report", "hotspots", "--dsn", server.dsn)
    as_json = json.loads(run("report", "hotspots", "--dsn", server.dsn, "--json").stdout)
    imbalance = run("report", "imbalance", "--dsn", server.dsn, MOESCOPE_IMBALANCE_RATIO="1.5")
    misspelt = run("report", "latency", "--dsn", server.dsn, "--service", "nosuch")
    quality = run("report", "quality", "--dsn", server.dsn)
    doctor = run("doctor", "--dsn", server.dsn, OTEL_EXPORTER_OTLP_ENDPOINT=server.endpoint)

    assert "128" in hotspots.stdout
    assert max(map(len, hotspots.stdout.splitlines())) <= 100
    assert '"expert": 128' in json.dumps(as_json)
    assert hotspots.returncode == imbalance.returncode == 1, "the planted expert does harm"
    assert "40" in imbalance.stdout
    assert (misspelt.returncode, misspelt.stdout) == (2, "")
    assert misspelt.stderr == (
        "moescope: --service nosuch: nothing is stored of it; stored are: deepseek-v3\n"
    )
    assert quality.returncode == 0, quality.stdout
    assert doctor.returncode == 0, doctor.stdout


def test_migrate_shows_and_applies_over_http(tmp_path: Path):
    ports = dict(zip(("otlp-grpc", "otlp-http", "sql", "metrics"), free_ports(4), strict=True))
    made = ServerProcess(tmp_path / "data")
    made.grpc_port, made.http_port, made.sql_port, made.metrics_port = ports.values()
    os.environ["MOESCOPE_SQL_READ_ONLY"] = "0"
    try:
        made.start()
    finally:
        del os.environ["MOESCOPE_SQL_READ_ONLY"]
    dsn = f"http://127.0.0.1:{made.sql_port}/elsewhere"
    try:
        before = json.loads(run("migrate", "--dsn", dsn, "--dry-run", "--json").stdout)
        applied = run("migrate", "--dsn", dsn)
        after = json.loads(run("migrate", "--dsn", dsn, "--json").stdout)

        assert before["database"] == "elsewhere"
        assert before["applied"] == []
        assert applied.returncode == 0, applied.stderr
        assert after["applied_before"] == before["pending"] != []
        jsonschema.validate(before, read_report_schema("migrate"))
        jsonschema.validate(after, read_report_schema("migrate"))
        assert after["applied"] == []
        assert made.sql("SELECT count() FROM elsewhere.expert_activations_per_minute") == [["0"]]
    finally:
        made.stop()


def test_doctor_names_what_does_not_answer_and_the_way_out():
    endpoint, store = free_ports(2)
    done = run(
        *("doctor", "--json", "--dsn", f"http://127.0.0.1:{store}/moescope"),
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{endpoint}",
    )

    wrong = {
        check["subject"]: check["message"]
        for check in json.loads(done.stdout)["checks"]
        if check["verdict"] == "wrong"
    }
    assert done.returncode == 1
    assert set(wrong) == {"OTLP endpoint", "store"}
    assert f"127.0.0.1:{endpoint}" in wrong["OTLP endpoint"]
    assert f"127.0.0.1:{store}" in wrong["store"]
    assert all("moescope serve" in message for message in wrong.values())


def test_doctor_reads_an_ipv6_endpoint_without_a_port():
    done = run(
        *("doctor", "--json"),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://[::1]",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )

    assert "Traceback" not in done.stderr
    assert "http://[::1]/v1/metrics" in done.stdout


def test_store_that_is_away_is_one_line_and_no_attempts():
    done = run("report", "quality", "--dsn", "http://127.0.0.1:1/moescope")

    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "nobody answers at http://127.0.0.1:1/moescope" in line
