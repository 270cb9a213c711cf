"""Attacks on the read-only SQL endpoint. Each is refused with ClickHouse's own code 164, or does nothing."""

import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from moescope.schemas.sql_tokens import TokenKind, tokenize

READONLY = "164"


@pytest.fixture(scope="module")
def secret(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "token"
    path.write_text("swordfish\n")
    return path


def ask(server, query: str, method="POST", **parameters: str) -> tuple[int, str, str]:
    """Status, exception code and body."""
    url = server.url("sql", "/")
    if method == "GET":
        parameters = {"query": query, **parameters}
    if parameters:
        url += "?" + urllib.parse.urlencode(parameters)
    data = query.encode("utf-8", "surrogateescape") if method == "POST" else None
    request = urllib.request.Request(url, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, "", answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.headers["x-clickhouse-exception-code"], error.read().decode(errors="replace")


WRITES = [
    "INSERT INTO otel_metrics_sum (Value) VALUES (1)",
    "INSERT INTO otel_metrics_sum (Value) SELECT 1",
    "INSERT INTO otel_metrics_sum (Value) FORMAT TabSeparated 1",
    "INSERT INTO otel_metrics_sum FROM INFILE '{secret}' FORMAT CSV",
    "INSERT INTO FUNCTION file('{secret}.out') SELECT 1",
    "CREATE TABLE t (a UInt8) ENGINE = Memory",
    "CREATE TEMPORARY TABLE t (a UInt8)",
    "CREATE TABLE t ENGINE = File(CSV, '{secret}') AS SELECT 1",
    "CREATE FUNCTION f AS x -> x",
    "CREATE DATABASE d",
    "CREATE USER u",
    "GRANT ALL ON *.* TO u",
    "DROP TABLE otel_metrics_sum",
    "TRUNCATE TABLE otel_metrics_sum",
    "ALTER TABLE otel_metrics_sum DELETE WHERE 1",
    "DELETE FROM otel_metrics_sum WHERE 1",
    "RENAME TABLE otel_metrics_sum TO x",
    "DETACH TABLE otel_metrics_sum",
    "OPTIMIZE TABLE otel_metrics_sum",
    "SYSTEM SHUTDOWN",
    "SYSTEM STOP MERGES",
    "KILL QUERY WHERE 1",
    "KILL MUTATION WHERE 1",
    "BACKUP TABLE otel_metrics_sum TO File('{secret}.backup')",
    "RESTORE TABLE otel_metrics_sum FROM File('{secret}.backup')",
    "CHECK TABLE otel_metrics_sum",
    "BEGIN TRANSACTION",
    "EXECUTE AS default SELECT 1",
    "EXPLAIN ANALYZE INSERT INTO otel_metrics_sum (Value) SELECT 1",
    "SELECT 1 PARALLEL WITH SELECT 2",
]

SETTINGS = [
    "SET readonly = 0",
    "SET readonly=0",
    "set/**/readonly/**/=/**/0",
    "SELECT 1 SETTINGS readonly = 0",
    "SELECT 1 FORMAT JSON SETTINGS readonly = 0",
    "SET max_execution_time = 0",
    "SELECT 1 SETTINGS max_memory_usage = 0",
    "SET allow_introspection_functions = 1",
    "SET dialect = 'prql'",
    "SELECT 1 AS a SETTINGS select = 'file(\\'{secret}\\')'",
    "SELECT 1 AS a FROM system.one SETTINGS filter = 'file(\\'{secret}\\') = \\'\\''",
    "SELECT 1 AS a FROM system.one SETTINGS `order` = 'file(\\'{secret}\\')'",
    "SELECT 1 SETTINGS output_format_schema = '{secret}.out'",
    "SELECT 1 FORMAT Protobuf SETTINGS format_schema = '{secret}'",
]

FILES = [
    "SELECT file('{secret}')",
    "SELECT `file`('{secret}')",
    "SELECT \"file\"('{secret}')",
    "SELECT `fi\\x6ce`('{secret}')",
    "SELECT\u00a0file\u2003('{secret}')",
    "SELECT file /* ' */ ('{secret}')",
    "SELECT file -- (\n ('{secret}')",
    "SELECT file # (\n ('{secret}')",
    "SELECT file($${secret}$$)",
    "SELECT file($tag${secret}$tag$)",
    "SELECT 'it\\'s', file('{secret}')",
    "SELECT 'it''s', file('{secret}')",
    "SELECT '\\\\', file('{secret}')",
    "SELECT '--', file('{secret}') --'",
    "SELECT '/*', file('{secret}') /*' */",
    "SELECT `a``b`, file('{secret}') FROM (SELECT 1 AS `a``b`)",
    "SELECT * FROM (SELECT (SELECT file('{secret}')))",
    "WITH file('{secret}') AS x SELECT x",
    "WITH (SELECT file('{secret}')) AS x SELECT x",
    "WITH t AS (SELECT file('{secret}') AS x) SELECT * FROM t",
    "SELECT 1 WHERE file('{secret}') != ''",
    "SELECT number FROM numbers(1) ORDER BY file('{secret}')",
    "SELECT count() FROM numbers(1) GROUP BY file('{secret}')",
    "SELECT arrayMap(x -> file(x), ['{secret}'])",
    "SELECT arrayMap(file, ['{secret}'])",
    "SELECT arrayMap(`file`, ['{secret}'])",
    "WITH file AS f SELECT arrayMap(f, ['{secret}'])",
    "SELECT * APPLY(file) FROM (SELECT '{secret}' AS a)",
    "SELECT * APPLY file FROM (SELECT '{secret}' AS a)",
    "SELECT COLUMNS('a') APPLY(x -> file(x)) FROM (SELECT '{secret}' AS a)",
    "SELECT * REPLACE (file(a) AS a) FROM (SELECT '{secret}' AS a)",
    "SELECT * FROM view(SELECT file('{secret}'))",
    "SELECT x FROM (SELECT '{secret}' AS a) ARRAY JOIN [file(a)] AS x",
    "SHOW TABLES WHERE name = file('{secret}')",
    "EXPLAIN SELECT file('{secret}')",
    "EXPLAIN AST SELECT file('{secret}')",
    "DESCRIBE (SELECT file('{secret}'))",
    "DESCRIBE file('{secret}')",
    "DESCRIBE TABLE file('{secret}', 'LineAsString')",
    "DESC file('{secret}')",
    "SELECT * FROM file('{secret}', 'LineAsString')",
    "SELECT * FROM `file`('{secret}', 'LineAsString')",
    "SELECT * FROM loop(file('{secret}', 'LineAsString')) LIMIT 1",
    "SELECT 'x' IN file('{secret}', 'LineAsString')",
    "SELECT 1 UNION ALL SELECT file('{secret}')",
    "(SELECT 1) UNION ALL (SELECT file('{secret}'))",
    "SELECT file('{secret}') INTO OUTFILE '{secret}.out'",
    "SELECT 1 INTO OUTFILE '{secret}.out'",
    "select 1 into/**/outfile '{secret}.out' truncate",
    "SELECT 1 INTO OUTFILE '{secret}.out' AND STDOUT",
    "SHOW TABLES INTO OUTFILE '{secret}.out'",
    "EXPLAIN SELECT 1 INTO OUTFILE '{secret}.out'",
    "DESCRIBE TABLE otel_metrics_sum INTO OUTFILE '{secret}.out'",
]

OUTSIDE = [
    "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
    "DESCRIBE url('http://127.0.0.1:1/')",
    "DESCRIBE TABLE s3('http://127.0.0.1:1/bucket/key.csv')",
    "SELECT * FROM s3('http://127.0.0.1:1/bucket/key.csv', 'CSV', 'a String')",
    "SELECT * FROM executable('/bin/cat {secret}', 'LineAsString', 'a String')",
    "SELECT * FROM remote('127.0.0.1:1', 'system.one')",
    "SELECT * FROM cluster('default', 'system.one')",
    "SELECT * FROM mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
    "SELECT * FROM sqlite('{secret}', 't')",
    "DESCRIBE sqlite('{secret}', 't')",
    "SELECT * FROM fileCluster('default', '{secret}', 'LineAsString')",
    "SELECT * FROM icebergLocal('{secret}')",
    "SELECT * FROM deltaLakeLocal('{secret}')",
    "SELECT * FROM filesystem('/')",
    "SELECT * FROM Python(secret)",
    "SELECT * FROM python(secret)",
    "SELECT * FROM `Python`(secret)",
    "SELECT * FROM eval('SELECT file(\\'{secret}\\')')",
    "SELECT aiGenerate('x', map())",
]


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("query", WRITES + SETTINGS + FILES + OUTSIDE)
def test_attack_is_refused_in_clickhouses_own_words(server, secret, query, method):
    status, code, body = ask(server, query.replace("{secret}", str(secret)), method)
    assert (status, code) == (500, READONLY), body
    assert re.match(
        r"Code: 164\. DB::Exception: .*\(READONLY\) \(version [\d.]+ \(embedded\)\)\n$", body, re.DOTALL
    )
    assert "swordfish" not in body
    assert [path.name for path in secret.parent.iterdir()] == ["token"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1; SELECT 2",
        "EXPLAIN KILL QUERY WHERE 1",
        "SELECT 1; DROP TABLE otel_metrics_sum",
        "SELECT 1 /* ; */; SELECT file('{secret}')",
        "SELECT \uff46ile('{secret}')",
        "SELECT {f:Identifier}('{secret}')",
        "SELECT * APPLY {f:Identifier} FROM (SELECT '{secret}' AS a)",
    ],
)
def test_what_clickhouse_itself_cannot_parse_is_a_syntax_error(server, secret, query):
    status, code, body = ask(server, query.replace("{secret}", str(secret)), param_f="file")
    assert (status, code) == (400, "62")
    assert "SYNTAX_ERROR" in body
    assert "formatQuery" not in body


@pytest.mark.parametrize("value", ["file", "FILE", " file ", "fi\\x6ce", "fi\\\\le"])
def test_function_named_by_a_parameter_is_refused(server, secret, value):
    query = f"SELECT arrayMap({{f:Identifier}}, ['{secret}'])"
    status, code, body = ask(server, query, param_f=value)
    assert (status, code) == (500, READONLY), body
    assert "swordfish" not in body


@pytest.mark.parametrize(
    "query", ["SELECT * FROM '{secret}'", "SELECT * FROM `{secret}`", "DESCRIBE `{secret}`"]
)
def test_file_name_is_no_table(server, secret, query):
    status, _, body = ask(server, query.replace("{secret}", str(secret)))
    assert status in {400, 404}
    assert "swordfish" not in body


@pytest.mark.parametrize(
    "parameters",
    [
        {"readonly": "0"},
        {"allow_ddl": "1"},
        {"dialect": "prql"},
        {"allow_introspection_functions": "1"},
        {"output_format_schema": "/tmp/x"},
        {"format_schema": "/etc/passwd"},
        {"format_template_row": "/etc/passwd"},
        {"input_format_record_errors_file_path": "/tmp/x"},
        {"select": "file('/etc/passwd')"},
        {"filter": "1"},
        {"order": "1"},
        {"implicit_table_at_top_level": "x"},
        {"allow_experimental_eval_table_function": "1"},
        {"profile": "default"},
    ],
)
def test_setting_that_reaches_outside_cannot_come_with_the_url(server, parameters):
    status, code, _ = ask(server, "SELECT 1", **parameters)
    assert (status, code) in {(500, READONLY), (404, "115")}


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_memory_usage", "0"), ("max_result_rows", "100000000"), ("max_result_bytes", "0")],
)
def test_limit_above_the_servers_is_refused(server, name, value):
    status, code, body = ask(server, "SELECT 1", **{name: value})
    assert (status, code) == (500, "452")
    assert f"Setting {name} shouldn't be greater than" in body


@pytest.mark.parametrize("name", ["a b", "a;b", "a=1, readonly", "`x`", ""])
def test_setting_name_cannot_carry_sql(server, name):
    status, code, _ = ask(server, "SELECT 1", **{name: "1"})
    assert (status, code) == (404, "115")


def test_setting_value_cannot_carry_sql(server):
    status, _, body = ask(
        server, "SELECT getSetting('session_timezone')", session_timezone="UTC', readonly='0"
    )
    assert status == 400
    assert "Invalid time zone: UTC', readonly='0" in body


def test_settings_of_a_subquery_change_no_limit(server):
    query = "SELECT * FROM (SELECT getSetting('readonly'), getSetting('max_execution_time') SETTINGS "
    assert server.sql(query + "readonly = 0, max_execution_time = 0)") == [[1, 60]]


def test_database_name_cannot_carry_sql(server):
    status, code, _ = ask(server, "SELECT 1", database="moescope`; SET readonly = 0; USE `moescope")
    assert (status, code) == (404, "81")


HARMLESS = [
    "SELECT 1 AS file_name, 'file(x)' AS text, 'INTO OUTFILE' AS more",
    "SELECT 'KILL QUERY'",
    "SELECT format('{} {}', 'a', 'b')",
    "SELECT * FROM numbers(3)",
    "SELECT * FROM view(SELECT 1)",
    "SELECT * FROM merge('moescope', '^otel_metrics_sum$') LIMIT 1",
    "SELECT * FROM values('a UInt8', 1)",
    "SELECT name FROM system.tables WHERE database = 'moescope'",
    "SELECT 1 AS filter, 2 AS `select` ORDER BY filter",
    "SELECT * FROM generateRandom('a UInt8') LIMIT 1",
    "SELECT 1 SETTINGS limit = 1",
    "SHOW TABLES",
    "SHOW CREATE TABLE expert_load",
    "DESCRIBE TABLE expert_load",
    "EXISTS TABLE expert_load",
    "EXPLAIN SELECT * FROM expert_load",
    "USE system",
    "WITH 13 AS a SELECT a",
    "(SELECT 1) UNION ALL (SELECT 2)",
    "/* hello */ SELECT 1 -- bye",
    "SELECT 1;",
    "select\n\t23",
    "SELECT 1 FORMAT JSONEachRow",
    "FROM system.one SELECT 1",
]


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("query", HARMLESS)
def test_harmless_query_is_answered(server, query, method):
    status, _, body = ask(server, query, method)
    assert status == 200, body


def test_nothing_that_was_tried_left_a_trace(server):
    assert server.sql("SELECT count() FROM otel_metrics_sum") == [[0]]
    assert server.sql("SELECT count() FROM system.databases WHERE name = 'd'") == [[0]]


def test_rules_come_from_the_engine(server):
    names = {row[0].lower() for row in server.sql("SELECT name FROM system.table_functions")}
    assert {"python", "url", "s3", "file", "remote", "executable"} <= names


def test_tokens_of_the_canonical_form():
    tokens = tokenize("SELECT 'a\\'b', `x``y`, t.`c d`, 1.5e3 FROM f(x -> x)")
    assert [token.text for token in tokens] == [
        *("SELECT", "'a\\'b'", ",", "x`y", ",", "t", ".", "c d", ",", "1.5e3"),
        *("FROM", "f", "(", "x", "-", ">", "x", ")"),
    ]
    assert [token.kind for token in tokens[:4]] == [
        TokenKind.WORD,
        TokenKind.STRING,
        TokenKind.SIGN,
        TokenKind.QUOTED,
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "+".join(["1"] * 20_000),
        "SELECT CAST(1 AS " + "Array(" * 2000 + "UInt8" + ")" * 2000 + ")",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count() FROM t",
        "SELECT groupArray(number) FROM numbers(1000000000)",
        "SELECT repeat('x', 1000000) FROM numbers(100000)",
    ],
    ids=["deep", "long", "deep type", "endless recursion", "memory", "large result"],
)
def test_query_that_asks_for_too_much_is_refused_and_the_server_goes_on(server, query):
    status, code, _ = ask(server, query)
    assert status in {400, 500}
    assert int(code) > 0
    assert server.sql("SELECT 13") == [[13]]
