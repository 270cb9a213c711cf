"""Apply the numbered migrations to a store: the embedded engine, one server, or a cluster.

A migration is one SQL statement in ``migrations/NNNN_<what>_<kind>.sql``. Placeholders (``${database}``,
``${merge_tree}``, …) let the same file serve every store. A file is never edited after its release: what was
applied is recorded with a checksum, and a difference is an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final, Protocol

from moescope.schemas.errors import MigrationError, SettingError
from moescope.schemas.settings import Settings

MIGRATIONS_FOLDER: Final = Path(__file__).parent / "migrations"
_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+_(?:table|mv|view|alter))\.sql")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEDUPLICATION_WINDOW: Final = 20_000
"""Inserted blocks whose repetition is recognised. At 64 ranks and 10 s about three quarters of an hour."""


class Client(Protocol):
    """What a migration needs of a client; ``clickhouse_connect``'s has it for every DSN."""

    def command(self, cmd: str, /) -> Any:
        """Run one statement."""

    def query(self, query: str, /) -> Any:
        """Run one query; the answer has ``result_rows``."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file as it lies on disk, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Status:
    """What was applied and what is pending, in order."""

    applied: tuple[Migration, ...]
    pending: tuple[Migration, ...]


def list_migrations(folder: Path = MIGRATIONS_FOLDER) -> tuple[Migration, ...]:
    """Read every migration, in order.

    Raises:
        MigrationError: a file whose name is not ``NNNN_<what>_<table|mv|view|alter>.sql``, or a gap or
            repetition in the numbers.
    """
    migrations = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            raise MigrationError(f"{path.name}: name it NNNN_<what>_<table|mv|view|alter>.sql")
        migrations.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    numbers = [migration.number for migration in migrations]
    if numbers != list(range(1, len(numbers) + 1)):
        raise MigrationError(f"migration numbers must run from 1 without gaps, got {numbers}")
    return tuple(migrations)


def render(migration: Migration, settings: Settings, *, cluster: str | None = None) -> str:
    """Fill the placeholders of a migration for one store.

    Raises:
        MigrationError: the file uses a placeholder that does not exist.
        SettingError: the database or cluster name is no plain identifier.
    """
    try:
        return Template(migration.text).substitute(_placeholders(settings, cluster))
    except KeyError as error:
        raise MigrationError(f"{migration.name}: unknown placeholder {error}") from None


def status(client: Client, settings: Settings) -> Status:
    """Say what was applied and what is pending. Changes nothing.

    Raises:
        MigrationError: the store holds a migration that this version does not know, or one whose file was
            edited after it was applied.
    """
    recorded = _read_recorded(client, settings)
    applied, pending = [], []
    for migration in list_migrations():
        checksum = recorded.pop(migration.number, None)
        if checksum is None:
            pending.append(migration)
        elif checksum == migration.checksum:
            applied.append(migration)
        else:
            raise MigrationError(
                f"migration {migration.number:04d}_{migration.name} was edited after it was applied; "
                "restore the file and put the change into a new migration"
            )
    if recorded:
        raise MigrationError(
            f"the store was migrated by a newer moescope (it has number {max(recorded)}); upgrade this one"
        )
    return Status(tuple(applied), tuple(pending))


def apply(
    client: Client,
    settings: Settings,
    *,
    cluster: str | None = None,
    progress: Callable[[Migration], None] | None = None,
) -> tuple[Migration, ...]:
    """Apply what is pending and return it; ``progress`` is called before each one.

    Each statement is idempotent, so a run that was cut off is simply run again.
    """
    names = _placeholders(settings, cluster)
    client.command(f"CREATE DATABASE IF NOT EXISTS {names['database']} {names['on_cluster']}")
    client.command(
        f"CREATE TABLE IF NOT EXISTS {names['database']}.moescope_migrations {names['on_cluster']} ("
        "number UInt32, name String, checksum String, "
        "applied_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')"
        f") ENGINE = {names['merge_tree']} ORDER BY number"
    )
    pending = status(client, settings).pending
    for migration in pending:
        if progress is not None:
            progress(migration)
        client.command(render(migration, settings, cluster=cluster))
        client.command(
            f"INSERT INTO {names['database']}.moescope_migrations (number, name, checksum) "
            f"VALUES ({migration.number}, '{migration.name}', '{migration.checksum}')"
        )
    return pending


def _read_recorded(client: Client, settings: Settings) -> dict[int, str]:
    database = _identifier("database", settings.database)
    exists = client.query(
        f"SELECT count() FROM system.tables WHERE database = '{database}' AND name = 'moescope_migrations'"
    ).result_rows
    if not exists[0][0]:
        return {}
    rows: Sequence[tuple[int, str]] = client.query(
        f"SELECT number, any(checksum) FROM {database}.moescope_migrations GROUP BY number"
    ).result_rows
    return dict(rows)


def _placeholders(settings: Settings, cluster: str | None) -> dict[str, str | int | float]:
    if cluster is None:
        prefix, arguments, window = "", "", "non_replicated_deduplication_window"
        on_cluster = ""
    else:
        prefix = "Replicated"
        arguments = "('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')"
        window = "replicated_deduplication_window"
        on_cluster = f"ON CLUSTER {_identifier('cluster', cluster)}"
    return {
        "database": _identifier("database", settings.database),
        "on_cluster": on_cluster,
        "merge_tree": f"{prefix}MergeTree{arguments}",
        "aggregating_merge_tree": f"{prefix}AggregatingMergeTree{arguments}",
        "replacing_merge_tree": f"{prefix}ReplacingMergeTree{arguments}",
        # An acknowledged insert is on disk, and the same insert again is recognised.
        "durable": f"{window} = {_DEDUPLICATION_WINDOW}, fsync_after_insert = 1, fsync_part_directory = 1",
        "landing_ttl_hours": settings.landing_ttl_hours,
        "raw_ttl_hours": settings.raw_ttl_hours,
        "minute_ttl_days": settings.minute_ttl_days,
        "ten_minute_ttl_days": settings.ten_minute_ttl_days,
        "hour_ttl_days": settings.hour_ttl_days,
        "silent_after_seconds": settings.silent_after_seconds,
    }


def _identifier(what: str, name: str) -> str:
    if not _IDENTIFIER.fullmatch(name):
        raise SettingError(f"{what} {name!r} is no plain name: letters, digits and _, no digit first")
    return name
