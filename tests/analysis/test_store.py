"""The store reader: whom it reads, and what it says when it cannot."""

import threading

import clickhouse_connect
import numpy as np
import pytest

from moescope.analysis import store as store_module
from moescope.analysis.store import QUERIES_FOLDER, list_column_as_array, open_store
from moescope.schemas.errors import MigrationError, QueryError, StoreUnavailableError, UsageError
from tests.analysis.known_workloads import KnownFleet, make_store


def test_folder_that_does_not_exist_is_named_with_the_way_out(tmp_path):
    with pytest.raises(StoreUnavailableError, match=r"no store at .*absent.*moescope serve"):
        open_store(f"chdb://{tmp_path}/absent")
    assert not (tmp_path / "absent").exists()


def test_server_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(StoreUnavailableError) as caught:
        open_store("http://reader:secret@127.0.0.1:1/moescope")
    message = str(caught.value)
    assert "127.0.0.1:1" in message
    assert "moescope serve" in message
    assert "Connection refused" in message
    assert "secret" not in message


def test_dsn_of_another_kind_is_wrong_use():
    with pytest.raises(UsageError, match="http://host:port/database"):
        open_store("postgres://127.0.0.1/moescope")


def test_store_without_the_schema_asks_for_migrate(tmp_path):
    path = tmp_path / "bare"
    clickhouse_connect.get_client(dsn=f"chdb://{path}").close()
    with pytest.raises(MigrationError, match=r"lacks the database.*moescope migrate"):
        open_store(f"chdb://{path}")


def test_refused_query_carries_the_code_and_name_of_clickhouse(tmp_path, monkeypatch):
    store = open_store(make_store(tmp_path / "store"))
    monkeypatch.setattr(store_module, "_read_query", lambda _name: "SELECT throwIf(1, 'on purpose')")
    try:
        with pytest.raises(QueryError, match="on purpose") as caught:
            store.query("anything")
    finally:
        store.close()
    assert caught.value.code == 395
    assert caught.value.name == "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"


def test_two_threads_query_at_once(tmp_path):
    store = open_store(make_store(tmp_path / "store", KnownFleet()))
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.query("expert_load_scopes").num_rows))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert answers == [2, 2]


def test_lists_of_another_length_are_an_error(tmp_path, monkeypatch):
    store = open_store(make_store(tmp_path / "store"))
    monkeypatch.setattr(
        store_module, "_read_query", lambda _name: "SELECT [7, 13, 23]::Array(UInt64) AS counts"
    )
    table = store.query("anything")
    store.close()
    np.testing.assert_array_equal(list_column_as_array(table, "counts", 3), [[7, 13, 23]])
    with pytest.raises(ValueError, match="reshape"):
        list_column_as_array(table, "counts", 2)


@pytest.mark.parametrize("path", sorted(QUERIES_FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_every_query_documents_its_parameters(path):
    text = path.read_text(encoding="utf-8")
    header = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    parameters = {part.split(":")[0] for part in text.split("{")[1:]}
    assert "-- Parameters:" in header
    assert [name for name in parameters if name not in header] == []
