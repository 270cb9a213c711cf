import re
from pathlib import Path

import pytest

from moescope.schemas import migrate
from moescope.schemas.errors import MigrationError, SettingError
from moescope.schemas.metrics import is_registered
from moescope.schemas.migrate import Migration
from moescope.schemas.settings import load_settings

SETTINGS = load_settings({})


class RecordingClient:
    """Stands in for a store where only the statements matter; the real engines run them in tests/server."""

    def __init__(self, recorded: dict[int, str] | None = None) -> None:
        self.recorded = recorded
        self.statements: list[str] = []

    def command(self, cmd: str, /) -> None:
        self.statements.append(cmd)
        if "moescope_migrations (number, name" in cmd:
            number, checksum = re.search(r"VALUES \((\d+), '\w+', '(\w+)'\)", cmd).groups()
            self.recorded = {**(self.recorded or {}), int(number): checksum}

    def query(self, query: str, /):
        rows = [(int(self.recorded is not None),)]
        if "checksum" in query:
            rows = list(self.recorded.items())
        return type("Answer", (), {"result_rows": rows})()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_a_table.sql").write_text("CREATE TABLE ${database}.a (x UInt8)")
    return tmp_path


def test_numbers_run_from_one_without_gaps():
    numbers = [migration.number for migration in migrate.list_migrations()]

    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("migration", migrate.list_migrations(), ids=lambda migration: migration.name)
def test_file_is_one_statement_that_says_what_it_makes(migration: Migration):
    statement = re.sub(r"--[^\n]*\n", "", migration.text).strip()
    kind = migration.name.rsplit("_", 1)[1]
    keyword = {"table": "CREATE TABLE", "mv": "CREATE MATERIALIZED VIEW", "view": "CREATE VIEW"}[kind]

    assert statement.startswith(f"{keyword} IF NOT EXISTS ${{database}}.")
    assert ";" not in statement
    name = statement.split("${database}.")[1].split()[0]
    assert migration.name in {name, f"{name}_{kind}"}


@pytest.mark.parametrize("migration", migrate.list_migrations(), ids=lambda migration: migration.name)
def test_every_metric_that_a_migration_names_is_registered(migration: Migration):
    for name in re.findall(r"MetricName = '([^']+)'", migration.text):
        assert is_registered(name)


@pytest.mark.parametrize("migration", migrate.list_migrations(), ids=lambda migration: migration.name)
def test_renders_for_one_server_and_for_a_cluster(migration: Migration):
    alone = migrate.render(migration, SETTINGS)
    together = migrate.render(migration, SETTINGS, cluster="blue")

    assert "${" not in alone
    assert "ON CLUSTER" not in alone
    assert "Replicated" not in alone
    assert "ON CLUSTER blue" in together
    if migration.name.endswith("_table"):
        assert "ENGINE = Replicated" in together
        assert " non_replicated_deduplication_window" not in together


def test_gap_in_the_numbers_is_refused(folder: Path):
    (folder / "0003_c_view.sql").write_text("")

    with pytest.raises(MigrationError, match=r"without gaps, got \[1, 3\]"):
        migrate.list_migrations(folder)


def test_file_without_a_kind_is_refused(folder: Path):
    (folder / "0002_b.sql").write_text("")

    with pytest.raises(MigrationError, match=r"0002_b\.sql: name it"):
        migrate.list_migrations(folder)


def test_unknown_placeholder_is_named():
    with pytest.raises(MigrationError, match="a_table: unknown placeholder 'ttl'"):
        migrate.render(Migration(1, "a_table", "SELECT ${ttl}"), SETTINGS)


def test_second_run_applies_nothing():
    client = RecordingClient()
    first = migrate.apply(client, SETTINGS)
    count = len(client.statements)

    assert len(first) == len(migrate.list_migrations())
    assert migrate.apply(client, SETTINGS) == ()
    assert len(client.statements) == count + 2, "the database and the table of migrations, if not there"


def test_run_that_was_cut_off_goes_on_where_it_stopped():
    [first, *rest] = migrate.list_migrations()
    client = RecordingClient({first.number: first.checksum})

    assert migrate.apply(client, SETTINGS) == tuple(rest)


def test_migration_that_was_edited_after_its_release_is_refused():
    [first, *_] = migrate.list_migrations()

    with pytest.raises(MigrationError, match=f"{first.name} was edited after it was applied"):
        migrate.status(RecordingClient({first.number: "0" * 64}), SETTINGS)


def test_store_of_a_newer_version_is_refused():
    client = RecordingClient({m.number: m.checksum for m in migrate.list_migrations()} | {999: "x"})

    with pytest.raises(MigrationError, match=r"newer moescope .*999"):
        migrate.status(client, SETTINGS)


def test_status_of_an_empty_store_changes_nothing():
    client = RecordingClient()

    status = migrate.status(client, SETTINGS)

    assert status.applied == ()
    assert len(status.pending) == len(migrate.list_migrations())
    assert client.statements == []


@pytest.mark.parametrize("name", ["a b", "x;DROP", "1a", ""])
def test_database_name_that_is_no_identifier_is_refused(name: str):
    with pytest.raises(SettingError, match="no plain name"):
        migrate.status(RecordingClient(), load_settings({}, database=name))
