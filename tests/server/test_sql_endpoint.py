"""The ClickHouse HTTP interface, as its clients see it."""

import base64
import gzip
import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from datetime import UTC

import clickhouse_connect
import lz4.frame
import numpy as np
import pytest
import zstandard
from clickhouse_connect.driver.exceptions import DatabaseError

from tests.server.otlp_requests import expert_request

COUNTS = np.array([[13, 0, 23], [0, 79, 1]])
TOP = (
    "SELECT layer, expert, sum(activations) FROM expert_activations_per_minute "
    "GROUP BY ALL ORDER BY 3 DESC LIMIT 3"
)


@pytest.fixture(scope="module", autouse=True)
def known_counts(server):
    server.export(expert_request("sql", COUNTS))


def call(server, path="/", data: bytes | None = None, **headers: str):
    """Status, headers and body."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.url("sql", path), data=data, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def query_path(**parameters: str) -> str:
    return "/?" + urllib.parse.urlencode(parameters)


@pytest.mark.parametrize("path", ["/", "/ping", "/replicas_status"])
def test_health_checks_say_ok(server, path):
    status, _, body = call(server, path)
    assert (status, body) == (200, b"Ok.\n")


def test_unknown_path_says_where_to_ask(server):
    status, _, body = call(server, "/play")
    assert status == 404
    assert body.startswith(b"There is no handle /play")


def test_query_may_stand_in_the_url_in_the_body_or_in_both(server):
    assert call(server, query_path(query="SELECT 13"))[2] == b"13\n"
    assert call(server, data=b"SELECT 13")[2] == b"13\n"
    assert call(server, query_path(query="SELECT 13,"), data=b" 23")[2] == b"13\t23\n"


def test_answer_carries_clickhouses_headers(server):
    path = query_path(query=TOP, query_id="mine")
    _, headers, body = call(server, path)
    assert body == b"2\t1\t79\n1\t2\t23\n1\t0\t13\n"
    assert headers["x-clickhouse-query-id"] == "mine"
    assert headers["x-clickhouse-format"] == "TabSeparated"
    assert headers["x-clickhouse-timezone"] == "UTC"
    assert headers["x-clickhouse-server-display-name"]
    assert headers["content-type"] == "text/tab-separated-values; charset=UTF-8"
    summary = json.loads(headers["x-clickhouse-summary"])
    assert int(summary["read_rows"]) > 0
    assert int(summary["elapsed_ns"]) > 0
    assert summary["result_rows"] == "3"


def test_query_id_cannot_carry_a_header(server):
    _, headers, _ = call(server, query_path(query="SELECT 1", query_id="a\r\nset-cookie: x"))
    assert headers["set-cookie"] is None
    assert "set-cookie" not in headers["x-clickhouse-query-id"]


@pytest.mark.parametrize(
    ("parameters", "headers", "name", "content_type"),
    [
        ({"default_format": "JSONEachRow"}, {}, "JSONEachRow", "application/x-ndjson; charset=UTF-8"),
        ({}, {"x_clickhouse_format": "CSV"}, "CSV", "text/csv; charset=UTF-8; header=absent"),
        (
            {"query": "SELECT 1 FORMAT JSON"},
            {"x_clickhouse_format": "CSV"},
            "JSON",
            "application/json; charset=UTF-8",
        ),
        ({"query": "SELECT 1 FORMAT Native"}, {}, "Native", "application/octet-stream"),
    ],
)
def test_format_comes_from_the_query_the_parameter_or_the_header(
    server, parameters, headers, name, content_type
):
    _, answered, _ = call(server, query_path(**{"query": "SELECT 1", **parameters}), **headers)
    assert (answered["x-clickhouse-format"], answered["content-type"]) == (name, content_type)


@pytest.mark.parametrize(
    ("parameters", "headers", "database"),
    [
        ({}, {}, "moescope"),
        ({"database": "default"}, {}, "moescope"),
        ({"database": "system"}, {}, "system"),
        ({}, {"x_clickhouse_database": "system"}, "system"),
    ],
)
def test_database_is_moescope_unless_another_is_named(server, parameters, headers, database):
    _, _, body = call(server, query_path(query="SELECT currentDatabase()", **parameters), **headers)
    assert body.decode().strip() == database


def test_parameters_are_bound(server):
    path = query_path(
        query="SELECT {a:UInt8}, {b:String}, {c:Array(String)}, {d:Nullable(String)}",
        param_a="13",
        param_b="it's\\ta",
        param_c="['x','y']",
        param_d="\\N",
    )
    assert call(server, path)[2] == b"13\tit\\'s\\ta\t['x','y']\t\\N\n"


def test_settings_come_with_the_url(server):
    path = query_path(query="SELECT toDateTime(0)", session_timezone="Asia/Tokyo")
    _, headers, body = call(server, path)
    assert (body, headers["x-clickhouse-timezone"]) == (b"1970-01-01 09:00:00\n", "Asia/Tokyo")


def test_parameters_that_mean_nothing_here_are_accepted(server):
    path = query_path(
        query="SELECT 1",
        session_id="s",
        session_timeout="60",
        quota_key="q",
        client_protocol_version="54460",
        role="reader",
        wait_end_of_query="1",
        buffer_size="1000",
        send_progress_in_http_headers="1",
        compress="0",
        readonly="2",
        log_comment="hello",
    )
    assert call(server, path, x_clickhouse_user="default", x_clickhouse_key="")[2] == b"1\n"


@pytest.mark.parametrize(
    ("encoding", "unpack"),
    [
        ("gzip", gzip.decompress),
        ("zstd", lambda data: zstandard.ZstdDecompressor().decompress(data)),
        ("lz4", lz4.frame.decompress),
        ("deflate", zlib.decompress),
    ],
)
def test_answer_is_packed_as_the_client_asks(server, encoding, unpack):
    path = query_path(query="SELECT number FROM numbers(1000)", enable_http_compression="1")
    _, headers, body = call(server, path, accept_encoding=f"br, {encoding}")
    assert headers["content-encoding"] == encoding
    assert unpack(body) == b"".join(b"%d\n" % number for number in range(1000))


def test_answer_is_plain_unless_packing_is_enabled(server):
    _, headers, _ = call(server, query_path(query="SELECT 1"), accept_encoding="gzip")
    assert headers["content-encoding"] is None


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("lz4", lz4.frame.compress)])
def test_packed_query_is_read(server, encoding, pack):
    assert call(server, data=pack(b"SELECT 13"), content_encoding=encoding)[2] == b"13\n"


def test_own_block_compression_is_named_as_not_spoken(server):
    status, headers, body = call(server, query_path(query="SELECT 1", compress="1"))
    assert (status, headers["x-clickhouse-exception-code"]) == (501, "48")
    assert b"enable_http_compression=1" in body


@pytest.mark.parametrize(
    ("query", "status", "code", "name"),
    [
        ("SELEC 1", 400, "62", "SYNTAX_ERROR"),
        ("SELECT * FROM nowhere", 404, "60", "UNKNOWN_TABLE"),
        ("SELECT nothing", 404, "47", "UNKNOWN_IDENTIFIER"),
        ("SELECT nofunction(1)", 404, "46", "UNKNOWN_FUNCTION"),
        ("SELECT throwIf(1)", 500, "395", "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
        ("SELECT {missing:String}", 500, "456", "UNKNOWN_QUERY_PARAMETER"),
        ("SELECT 1 FORMAT Nothing", 404, "73", "UNKNOWN_FORMAT"),
        ("SELECT toUInt8('x')", 400, "6", "CANNOT_PARSE_TEXT"),
    ],
)
def test_error_has_clickhouses_code_name_and_status(server, query, status, code, name):
    answered, headers, body = call(server, data=query.encode())
    assert headers["x-clickhouse-exception-code"] == code
    assert f"({name}) (version " in body.decode()
    assert body.decode().startswith(f"Code: {code}. DB::Exception: ")
    assert answered == status


def test_unknown_setting_is_not_found(server):
    status, headers, _ = call(server, query_path(query="SELECT 1", no_such_setting="1"))
    assert (status, headers["x-clickhouse-exception-code"]) == (404, "115")


def test_query_that_takes_too_long_is_ended(server):
    path = query_path(query="SELECT count() FROM numbers(1000000000000)", max_execution_time="0.2")
    started = time.monotonic()
    status, headers, _ = call(server, path)
    assert (status, headers["x-clickhouse-exception-code"]) == (408, "159")
    assert time.monotonic() - started < 30


def test_longer_timeout_than_the_servers_is_shortened(server):
    path = query_path(query="SELECT getSetting('max_execution_time')", max_execution_time="3600")
    assert call(server, path)[2] == b"60\n"


def test_result_with_too_many_rows_is_refused_and_not_cut(server):
    status, headers, body = call(server, data=b"SELECT number FROM numbers(1000001)")
    assert (status, headers["x-clickhouse-exception-code"]) == (500, "396")
    assert b"TOO_MANY_ROWS_OR_BYTES" in body


def test_lower_limit_of_the_client_holds(server):
    path = query_path(query="SELECT number FROM numbers(100000)", max_result_rows="1000")
    assert call(server, path)[1]["x-clickhouse-exception-code"] == "396"


def test_query_that_needs_too_much_memory_is_refused(server):
    path = query_path(
        query="SELECT length(groupArray(number)) FROM numbers(30000000)", max_memory_usage="50000000"
    )
    assert call(server, path)[1]["x-clickhouse-exception-code"] == "241"


def test_no_more_queries_run_at_once_than_the_settings_say(server):
    running = []
    done = threading.Event()

    sleeping = "SELECT count() FROM system.processes WHERE startsWith(query, 'SELECT sleep(0.5)')"

    def watch() -> None:
        while not done.is_set():
            running.append(int(server.engine_scalar(sleeping)))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    threads = [threading.Thread(target=call, args=(server, "/", b"SELECT sleep(0.5)")) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert max(running) == server.settings.sql_threads


def test_query_whose_client_hangs_up_is_ended(server):
    running = "SELECT count() FROM system.processes WHERE startsWith(query, 'SELECT count() FROM numbers(79')"
    query = b"SELECT count() FROM numbers(79000000000) WHERE cityHash64(number) % 13 = 0"
    with socket.create_connection(("127.0.0.1", server.ports.sql)) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(query), query))
        while server.engine_scalar(running) == "0":
            time.sleep(0.02)
    deadline = time.monotonic() + 30
    while server.engine_scalar(running) != "0":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_client_that_asks_for_it_is_kept_from_writing_anyhow(server):
    status, headers, _ = call(server, query_path(readonly="1"), data=b"SELECT 1 INTO OUTFILE '/tmp/x'")
    assert (status, headers["x-clickhouse-exception-code"]) == (500, "164")


def test_too_large_a_query_is_refused(server):
    status, _, body = call(server, data=b"SELECT '" + b"x" * server.settings.max_request_bytes + b"'")
    assert status == 400
    assert b"max_request_bytes" in body


def test_binary_answers_arrive_whole(server):
    _, _, body = call(server, data=b"SELECT unhex('00ff0a0d27') FORMAT RawBLOB")
    assert body == b"\x00\xff\n\r'"


def test_text_beyond_ascii_passes_both_ways(server):
    assert call(server, data="SELECT 'é✓' AS `naïve`".encode())[2] == "é✓\n".encode()


def test_answers_are_counted(server):
    def count(outcome: str) -> float:
        line = f'moescope_sql_queries_total{{outcome="{outcome}"}} '
        return sum(
            float(row.removeprefix(line)) for row in server.page().splitlines() if row.startswith(line)
        )

    before = count("ok"), count("failed"), count("refused")
    for query in (b"SELECT 1", b"SELEC 1", b"SET readonly = 0"):
        call(server, data=query)
    assert (count("ok") - before[0], count("failed") - before[1], count("refused") - before[2]) == (1, 1, 1)


# Stock clients.


@pytest.mark.tools
def test_curl_reads_the_counts(server):
    command = ["curl", "-sS", "--fail", server.url("sql"), "--data-binary", TOP]
    assert (
        subprocess.run(command, check=True, capture_output=True).stdout == b"2\t1\t79\n1\t2\t23\n1\t0\t13\n"
    )


@pytest.fixture
def client(server):
    made = clickhouse_connect.get_client(dsn=f"http://127.0.0.1:{server.ports.sql}/moescope")
    yield made
    made.close()


def test_clickhouse_connect_queries(client):
    assert client.query(TOP).result_rows == [(2, 1, 79), (1, 2, 23), (1, 0, 13)]
    assert client.ping()
    assert client.server_version


def test_clickhouse_connect_works_unconfigured(server):
    client = clickhouse_connect.get_client(host="127.0.0.1", port=server.ports.sql)
    assert client.command("SELECT count() FROM expert_load") == 2
    client.close()


def test_clickhouse_connect_reads_frames_and_arrow(client):
    frame = client.query_df(TOP)
    assert frame.iloc[:, 2].tolist() == [79, 23, 13]
    assert client.query_arrow(TOP).column(2).to_pylist() == [79, 23, 13]
    assert client.query_np("SELECT number FROM numbers(3)").ravel().tolist() == [0, 1, 2]
    with client.query_row_block_stream("SELECT number FROM numbers(100000)") as stream:
        assert sum(len(block) for block in stream) == 100_000


def test_clickhouse_connect_binds_parameters(client):
    query = "SELECT sum(activations) FROM expert_activations_per_minute WHERE layer = {layer:UInt16}"
    assert client.query(query, parameters={"layer": 2}).result_rows == [(80,)]
    assert client.query("SELECT %(a)s", parameters={"a": "it's"}).result_rows == [("it's",)]


def test_clickhouse_connect_sends_settings(client):
    answer = client.query("SELECT getSetting('max_threads')", settings={"max_threads": 1})
    assert answer.result_rows == [(1,)]


def test_clickhouse_connect_keeps_times_in_utc(client):
    ((moment,),) = client.query("SELECT max(time) FROM expert_load").result_rows
    # The client drops the zone of a UTC column.
    assert abs(moment.replace(tzinfo=UTC).timestamp() - time.time()) < 3600


def test_clickhouse_connect_gets_errors_with_code_and_name(client):
    with pytest.raises(DatabaseError, match="UNKNOWN_TABLE") as caught:
        client.query("SELECT * FROM nowhere")
    assert caught.value.code == 60


def test_clickhouse_connect_cannot_write(client):
    with pytest.raises(DatabaseError, match="READONLY"):
        client.command("CREATE TABLE t (a UInt8) ENGINE = Memory")
    with pytest.raises(DatabaseError, match="READONLY"):
        client.insert("otel_metrics_sum", [[1.0]], column_names=["Value"])


def test_basic_authentication_is_accepted_where_no_token_is_set(server):
    credentials = base64.b64encode(b"default:anything").decode()
    assert call(server, data=b"SELECT 1", authorization=f"Basic {credentials}")[0] == 200
