"""Starting, stopping and everything that keeps a server from starting."""

import base64
import dataclasses
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest

from moescope.schemas.errors import DataDirectoryError, PortError, SettingError, StoreUnavailableError
from moescope.schemas.settings import Settings
from moescope.server.app import Server, describe
from moescope.server.data_directory import DataDirectory
from tests.server.conftest import FREE_PORTS
from tests.server.otlp_requests import expert_request
from tests.server_process import free_ports

TOKEN = "correct-horse-battery-staple"
COUNTS = [[13, 0, 23]]


def settings_in(folder: Path, **overrides) -> Settings:
    return Settings(**FREE_PORTS | {"data_dir": str(folder), "engine_memory_bytes": 2**30} | overrides)


@pytest.fixture
def busy_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("setting", "who"),
    [
        ("otlp_grpc_port", "OTLP/gRPC"),
        ("otlp_http_port", "OTLP/HTTP"),
        ("sql_port", "the ClickHouse SQL endpoint"),
        ("metrics_port", "/metrics and the health pages"),
    ],
)
def test_busy_port_is_named_with_who_needs_it_and_what_moves_it(tmp_path, busy_port, setting, who):
    server = Server(settings_in(tmp_path / "data", **{setting: busy_port}))
    with pytest.raises(PortError) as caught:
        server.start()
    option = "--" + setting.replace("_", "-")
    assert str(caught.value) == (
        f"port {busy_port} on 127.0.0.1, needed by {who}, is used by another process; "
        f"choose another with {option} or MOESCOPE_{setting.upper()}"
    )
    assert caught.value.exit_code == 2
    assert not (tmp_path / "data").exists(), "the engine was opened although a port is busy"


def test_port_given_twice_is_named(tmp_path):
    (port,) = free_ports(1)
    with pytest.raises(PortError, match=f"port {port} is asked for by OTLP/HTTP and by the ClickHouse SQL"):
        Server(settings_in(tmp_path, otlp_http_port=port, sql_port=port)).start()


def test_address_of_another_machine_is_refused(tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with pytest.raises(PortError, match=r"--host 192\.0\.2\.1 is no address of this machine"):
        Server(settings_in(tmp_path, host="192.0.2.1", token_file=str(token))).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_host_that_others_reach_needs_a_token(tmp_path, host):
    with pytest.raises(SettingError, match=r"a token is needed.*--token-file") as caught:
        Server(settings_in(tmp_path, host=host)).start()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "content", ["", "short\n", "two words are\nnot one line of a token\n", "naïve-token-naïve\n"]
)
def test_token_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(SettingError, match="openssl rand -hex 32"):
        Server(settings_in(tmp_path, token_file=str(path))).start()


def test_missing_token_file_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"nowhere cannot be read: .*No such file"):
        Server(settings_in(tmp_path, token_file="nowhere")).start()


def test_data_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match=f"{path} is not a directory.*--data-dir"):
            Server(settings_in(path)).start()


def test_data_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    # The superuser may write anywhere, so the system's answer is played.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataDirectoryError, match=r"cannot be read and written by this user.*chown"):
        Server(settings_in(tmp_path)).start()


def test_data_directory_that_the_engine_reads_as_a_pattern_is_refused(tmp_path):
    with pytest.raises(DataDirectoryError, match="reads as a pattern"):
        Server(settings_in(tmp_path / "a*b")).start()


def test_second_server_on_the_same_directory_names_the_first(tmp_path):
    program = (
        "import sys, pathlib; from moescope.server.data_directory import DataDirectory; "
        "owned = DataDirectory(pathlib.Path(sys.argv[1])); print('owned', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"owned\n"
        with pytest.raises(DataDirectoryError, match=rf"another moescope server \(process {other.pid}\)"):
            Server(settings_in(tmp_path)).start()
        other.stdin.close()
    DataDirectory(tmp_path).close()


def test_lock_of_a_killed_server_is_free(tmp_path):
    (tmp_path / "server.lock").write_text("1\n")
    directory = DataDirectory(tmp_path)
    assert (tmp_path / "server.lock").read_text() == f"{os.getpid()}\n"
    with (tmp_path / "server.lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    directory.close()


def test_failed_start_leaves_nothing_open(tmp_path, busy_port):
    failing = Server(settings_in(tmp_path, sql_port=busy_port))
    with pytest.raises(PortError):
        failing.start()
    with Server(settings_in(tmp_path)) as server:
        assert server.ports.sql


def test_server_starts_again_on_its_data(make_server, tmp_path):
    server = make_server(data_dir=str(tmp_path))
    server.export(expert_request("again", COUNTS))
    assert make_server(data_dir=str(tmp_path)).expert_sums("again") == [[1, 0, 13], [1, 2, 23]]


def test_stopping_ends_running_queries_and_stores_what_was_taken(make_server):
    server = make_server()
    answers = []

    def ask() -> None:
        try:
            server.sql("SELECT count() FROM numbers(1000000000000)")
        except urllib.error.HTTPError as error:
            with error:
                answers.append(error.code)
        except OSError as error:
            answers.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    waiting = "SELECT count() FROM system.processes WHERE startsWith(query, 'SELECT count() FROM numbers')"
    deadline = time.monotonic() + 30
    while server.engine_scalar(waiting) == "0":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = time.monotonic()
    server.stop()
    asking.join(30)
    assert answers
    assert time.monotonic() - started < 30


def test_other_clickhouse_takes_the_rows_and_no_sql_port_is_opened(make_server, tmp_path):
    first = make_server(sql_read_only=False)
    dsn = f"http://127.0.0.1:{first.ports.sql}/moescope"
    settings = settings_in(tmp_path)
    with Server(settings, dsn) as second:
        assert second.ports.sql is None
        assert any(
            "not here: the data goes to http://127.0.0.1" in line for line in describe(second, settings, dsn)
        )
        with grpc.insecure_channel(f"127.0.0.1:{second.ports.otlp_grpc}") as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
            body = expert_request("elsewhere", COUNTS)
            assert export(body, timeout=60) == b""
            assert export(body, timeout=60) == b""
    assert first.expert_sums("elsewhere") == [[1, 0, 13], [1, 2, 23]]
    assert list(tmp_path.iterdir()) == []


def test_other_clickhouse_that_does_not_answer_is_named(tmp_path):
    (port,) = free_ports(1)
    with pytest.raises(StoreUnavailableError, match=f"ClickHouse at http://127.0.0.1:{port}"):
        Server(settings_in(tmp_path), f"http://127.0.0.1:{port}").start()


def test_description_says_where_everything_is(tmp_path):
    settings = settings_in(tmp_path)
    text = "\n".join(describe(Server(settings), settings))
    assert "read-only" in text
    assert str(tmp_path) in text
    writable = dataclasses.replace(settings, sql_read_only=False)
    assert "WRITES ALLOWED" in "\n".join(describe(Server(writable), writable))


@pytest.fixture(scope="module")
def guarded(make_server, tmp_path_factory):
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN + "\n")
    return make_server(token_file=str(path))


def status_of(url: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data=data, headers=names), timeout=30
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def test_health_pages_ask_for_no_token(guarded):
    assert status_of(guarded.url("metrics", "/healthz")) == (200, "alive\n")
    assert status_of(guarded.url("metrics", "/readyz")) == (200, "ready\n")


@pytest.mark.parametrize(
    "authorization", ["", "Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"]
)
def test_wrong_token_is_turned_away_everywhere(guarded, authorization):
    headers = {"authorization": authorization} if authorization else {}
    with pytest.raises(grpc.RpcError) as caught:
        guarded.export(expert_request("guarded", COUNTS), **headers)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    http = guarded.url("otlp_http", "/v1/metrics")
    assert status_of(http, b"", content_type="application/x-protobuf", **headers)[0] == 401
    assert status_of(guarded.url("metrics", "/metrics"), **headers)[0] == 401
    status, body = status_of(guarded.url("sql"), b"SELECT 1", **headers)
    assert status == 403
    assert body.startswith("Code: 516. DB::Exception: default: Authentication failed")


def test_right_token_opens_otlp_and_metrics(guarded):
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.export(expert_request("guarded", COUNTS), **bearer) == b""
    http = guarded.url("otlp_http", "/v1/metrics")
    assert status_of(http, b"", content_type="application/x-protobuf", **bearer)[0] == 200
    assert status_of(guarded.url("metrics", "/metrics"), **bearer)[0] == 200


@pytest.mark.parametrize(
    ("headers", "parameters"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, ""),
        ({"authorization": "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()}, ""),
        ({"x_clickhouse_user": "default", "x_clickhouse_key": TOKEN}, ""),
        ({}, f"?user=default&password={TOKEN}"),
        ({}, f"?password={TOKEN}"),
    ],
)
def test_right_token_opens_sql_in_each_of_clickhouses_ways(guarded, headers, parameters):
    assert status_of(guarded.url("sql", "/" + parameters), b"SELECT 13", **headers) == (200, "13\n")


@pytest.mark.parametrize("credentials", ["Basic !!", "Basic " + base64.b64encode(b"\xff").decode()])
def test_credentials_that_are_none_are_turned_away(guarded, credentials):
    assert status_of(guarded.url("sql"), b"SELECT 1", authorization=credentials)[0] == 403


def test_process_ends_cleanly_on_sigterm(tmp_path):
    program = (
        "import sys, logging; logging.basicConfig(level='INFO')\n"
        "from moescope.schemas.settings import Settings\n"
        "from moescope.server.app import run\n"
        "ports = dict.fromkeys(('otlp_grpc_port','otlp_http_port','sql_port','metrics_port'), 0)\n"
        "run(Settings(data_dir=sys.argv[1], **ports))\n"
        "print('ended', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        seen = []
        while not any("readyz" in line for line in seen):
            seen.append(process.stderr.readline())
            assert seen[-1], "".join(seen)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "ended\n")
