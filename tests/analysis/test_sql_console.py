"""A person's query: read-only, limited, cancelled when asked, exact, on either kind of store."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from moescope.analysis import sql_console
from moescope.analysis.sql_answer import SqlAnswer
from moescope.analysis.sql_console import RunningQuery
from moescope.analysis.sql_problem import ProblemKind
from moescope.analysis.store import open_store
from moescope.schemas.settings import Settings
from moescope.server.app import Server
from tests.analysis.known_workloads import make_store

PATIENCE_SECONDS = 60
FREE_PORTS = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}
ENDLESS = "SELECT count() FROM numbers(790000000000) WHERE cityHash64(number) % 13 = 0"


@pytest.fixture(scope="module", params=["embedded", "http"])
def dsn(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    if request.param == "embedded":
        # Held open as a page holds it: an engine that opens for each query takes seconds.
        store = open_store(make_store(folder / "engine"))
        yield store.label
        store.close()
        return
    with Server(Settings(**FREE_PORTS, data_dir=str(folder), engine_memory_bytes=2**30)) as server:
        yield f"http://127.0.0.1:{server.ports.sql}/moescope"


@pytest.fixture
def ask(dsn):
    """Run a query to its end, within settings that a test may change."""

    def run(sql, **settings):
        outcome = RunningQuery(sql, Settings(dsn=dsn, **settings)).wait(PATIENCE_SECONDS)
        assert outcome is not None
        return outcome

    return run


def values(answer):
    assert isinstance(answer, SqlAnswer), answer
    return {column.name: column.cells for column in answer.columns}


def test_numbers_keep_every_digit(ask):
    answer = ask(
        "SELECT 18446744073709551615::UInt64 AS u, -170141183460469231731687303715884105728::Int128 AS i, "
        "toDecimal64('79.0013', 4) AS d, 0.1 AS f, 1 / 0 AS inf, NULL AS nothing"
    )
    assert values(answer) == {
        "u": (18446744073709551615,),
        "i": (-170141183460469231731687303715884105728,),
        "d": ("79.0013",),
        "f": (0.1,),
        "inf": (float("inf"),),
        "nothing": (None,),
    }


def test_types_say_what_a_column_is_good_for(ask):
    answer = ask(
        "SELECT toUInt16(7) AS n, toNullable(1.5) AS f, "
        "toDateTime64('2026-01-02 03:04:05.678', 3, 'UTC') AS t, "
        "toLowCardinality('decode') AS s, [13, 23] AS a, map('k', 79) AS m, toDate('2026-01-02') AS day"
    )
    assert [column.kind.value for column in answer.columns] == [
        *("integer", "float", "time", "text", "nested", "nested", "time"),
    ]
    assert values(answer)["t"] == ("2026-01-02 03:04:05.678",)
    assert values(answer)["a"] == ("[13, 23]",)
    assert values(answer)["m"] == ('{"k": 79}',)


def test_text_with_rare_separators_is_one_row(ask):
    assert values(ask("SELECT 'a\u2028b\\x0bc' AS text"))["text"] == ("a\u2028b\x0bc",)


def test_csv_has_names_and_every_digit(ask):
    text = ask("SELECT 18446744073709551615 AS n, 'a,b' AS s, NULL AS x").csv()
    assert text == 'n,s,x\n18446744073709551615,"a,b",\n'


def test_cost_is_counted(ask):
    cost = ask("SELECT sum(number) FROM numbers(7919)").cost
    assert cost.read_rows == 7919
    assert cost.read_bytes == 8 * 7919
    assert cost.seconds >= 0


def test_long_answer_is_cut_and_says_so(ask):
    answer = ask("SELECT number FROM numbers(300000)", sql_max_result_rows=1300)
    assert (answer.row_count, answer.is_cut) == (1300, True)


def test_whole_answer_is_not_called_cut(ask):
    answer = ask("SELECT number FROM numbers(1300)", sql_max_result_rows=1300)
    assert (answer.row_count, answer.is_cut) == (1300, False)


def test_no_rows_have_columns_all_the_same(ask):
    answer = ask("SELECT time, layer FROM expert_activations_per_minute WHERE service = 'nobody'")
    assert [column.name for column in answer.columns] == ["time", "layer"]
    assert answer.row_count == 0


def test_own_format_comes_as_it_is(ask):
    answer = ask("SELECT 13 AS n, 'x' AS s FORMAT JSONEachRow")
    assert answer.own_format == "JSONEachRow"
    assert answer.text == '{"n":13,"s":"x"}\n'


@pytest.mark.parametrize("sql", ["SHOW TABLES", "DESCRIBE rank_load", "EXPLAIN SELECT 1", "SELECT 1; -- end"])
def test_what_only_looks_is_answered(ask, sql):
    assert ask(sql).row_count > 0


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO otel_metrics_sum (Value) VALUES (1)",
        "DROP TABLE otel_metrics_sum",
        "ALTER TABLE expert_load DELETE WHERE 1",
        "CREATE TABLE t (a UInt8) ENGINE = Memory",
        "SELECT 1 INTO OUTFILE '/tmp/moescope-out'",
        "SELECT file('/etc/passwd')",
        "SELECT * FROM url('http://127.0.0.1:1/', CSV, 'a String')",
        "SELECT * FROM Python(x)",
        "SELECT 1 SETTINGS max_execution_time = 0",
        "KILL QUERY WHERE 1",
    ],
)
def test_what_would_write_or_reach_outside_is_refused(ask, sql):
    problem = ask(sql)
    assert problem.kind is ProblemKind.WRITE, problem
    assert problem.title == "This page only reads"
    assert "Nothing was changed" in problem.advice
    assert problem.code == 164


def test_syntax_error_has_its_place(ask):
    problem = ask("SELECT 'é', layer\nFROM rank_load\nWHERE layer = 13 GRUOP BY layer")
    assert problem.kind is ProblemKind.SYNTAX
    assert (problem.code, problem.name) == (62, "SYNTAX_ERROR")
    assert (problem.place.line, problem.place.text) == (3, "WHERE layer = 13 GRUOP BY layer")
    assert problem.place.column == 18
    assert problem.message.startswith("Syntax error: failed at position 52 (GRUOP)")
    assert "Expected one of" not in problem.message
    assert "Expected one of" in problem.detail


def test_unknown_column_has_its_place(ask):
    problem = ask("SELECT layer,\n    exprt\nFROM expert_latency")
    assert problem.kind is ProblemKind.UNKNOWN_NAME
    assert (problem.place.line, problem.place.column) == (2, 5)


def test_limit_of_time_is_named_with_its_setting(ask):
    problem = ask(ENDLESS, sql_max_seconds=0.3)
    assert problem.kind is ProblemKind.TOO_LONG
    assert "MOESCOPE_SQL_MAX_SECONDS" in problem.advice


def test_limit_of_memory_is_named_with_its_setting(ask):
    problem = ask("SELECT length(groupArray(number)) FROM numbers(30000000)", sql_max_memory_bytes=50_000_000)
    assert problem.kind is ProblemKind.TOO_MUCH_MEMORY
    assert "MOESCOPE_SQL_MAX_MEMORY_BYTES" in problem.advice


def test_cancelled_query_ends_in_the_store_too(ask, dsn):
    query = RunningQuery(ENDLESS, Settings(dsn=dsn))
    running = (
        "SELECT count() AS n FROM system.processes WHERE startsWith(query, 'SELECT count() FROM numbers(79')"
    )
    while values(ask(running))["n"] == (0,):
        assert query.outcome is None
    query.cancel()
    assert query.wait(PATIENCE_SECONDS).kind is ProblemKind.CANCELLED
    while values(ask(running))["n"] != (0,):
        assert query.seconds < PATIENCE_SECONDS


def test_query_that_nobody_waits_for_any_more_is_cancelled(dsn, monkeypatch):
    monkeypatch.setattr(sql_console, "ABANDONED_SECONDS", 0.3)
    query = RunningQuery(ENDLESS, Settings(dsn=dsn))
    query._is_done.wait(PATIENCE_SECONDS)
    assert query.outcome.kind is ProblemKind.CANCELLED


def test_nobody_who_answers_is_told_as_such():
    dsn = "http://reader:secret@127.0.0.1:1/moescope"
    problem = RunningQuery("SELECT 1", Settings(dsn=dsn)).wait(PATIENCE_SECONDS)
    assert problem.kind is ProblemKind.UNAVAILABLE
    assert "secret" not in problem.message
    assert "Connection refused" in problem.message


@pytest.fixture
def ask_refusing():
    """Ask a server that refuses requests that have one of these words, with code and text."""

    def run(refusals, sql="SELECT 13 AS n"):
        paths = []

        class Server(BaseHTTPRequestHandler):
            def do_POST(self):
                paths.append(self.path)
                sql = self.rfile.read(int(self.headers["Content-Length"])).decode()
                asked = f"{self.path} {sql}"
                refused = next((said for word, said in refusals.items() if word in asked), None)
                body = refused[1].encode() if refused else b'["n"]\n["UInt8"]\n["13"]\n'
                self.send_response(500 if refused else 200)
                if refused:
                    self.send_header("X-ClickHouse-Exception-Code", str(refused[0]))
                self.send_header("X-ClickHouse-Summary", '{"read_rows":"7","memory_usage":"79"}')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        with HTTPServer(("127.0.0.1", 0), Server) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            settings = Settings(dsn=f"http://127.0.0.1:{server.server_port}/moescope")
            outcome = RunningQuery(sql, settings).wait(PATIENCE_SECONDS)
            server.shutdown()
        return outcome, paths

    return run


FIXED = "Code: 164. DB::Exception: Cannot modify '{}' setting in readonly mode. (READONLY)"
TOO_HIGH = "Code: 452. DB::Exception: Setting {} shouldn't be greater than 7. (SETTING_CONSTRAINT_VIOLATION)"


def test_user_who_may_only_read_is_asked_with_nothing_set(ask_refusing):
    """A ClickHouse user with readonly = 1 may not send a setting, not even that one."""
    outcome, paths = ask_refusing({"readonly": (164, FIXED.format("readonly"))})
    assert values(outcome) == {"n": (13,)}
    assert (outcome.cost.read_rows, outcome.cost.memory_bytes) == (7, 79)
    assert "readonly" not in paths[-1]


def test_limit_above_the_servers_gives_way_and_reading_only_does_not(ask_refusing):
    outcome, paths = ask_refusing({"max_memory_usage": (452, TOO_HIGH.format("max_memory_usage"))})
    assert values(outcome) == {"n": (13,)}
    assert all("readonly=1" in path for path in paths)


def test_nothing_is_sent_without_reading_only_to_somebody_who_may_write(ask_refusing):
    outcome, paths = ask_refusing({"readonly": (452, TOO_HIGH.format("readonly"))})
    assert outcome.code == 452
    assert all("readonly=1" in path for path in paths)


@pytest.mark.parametrize("name", ["readonly", "max_threads"])
def test_settings_that_a_person_typed_do_not_switch_reading_only_off(ask_refusing, name):
    """ClickHouse refuses them in the words in which it refuses ours."""
    sql = f"INSERT INTO t SELECT 1 SETTINGS {name} = 0"
    outcome, paths = ask_refusing({"SETTINGS": (164, FIXED.format(name))}, sql)
    assert outcome.kind is ProblemKind.WRITE
    assert all("readonly=1" in path for path in paths)
