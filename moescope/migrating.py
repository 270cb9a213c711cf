"""``moescope migrate``: show and apply."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from moescope.schemas import migrate
from moescope.schemas.errors import MissingExtraError, StoreUnavailableError
from moescope.schemas.settings import Settings


def run_migrate(settings: Settings, *, cluster: str | None, dry_run: bool, as_json: bool) -> None:
    """Print what is applied and pending in the store of ``settings.dsn``, and apply what is pending.

    The database is the one that the DSN names, or else ``MOESCOPE_DATABASE``.
    """
    dsn, database = split_database(settings.dsn)
    settings = dataclasses.replace(settings, database=database or settings.database)
    client = _connect(dsn)
    before = migrate.status(client, settings)
    applied: tuple[migrate.Migration, ...] = ()
    if not dry_run:
        applied = migrate.apply(client, settings, cluster=cluster, progress=_say)
    if as_json:
        answer = {
            "database": settings.database,
            "applied_before": [_label(migration) for migration in before.applied],
            "pending": [_label(migration) for migration in before.pending] if dry_run else [],
            "applied": [_label(migration) for migration in applied],
        }
        print(json.dumps(answer, indent=2))
        return
    for migration in before.applied:
        print(f"applied  {_label(migration)}")
    for migration in before.pending:
        print(f"{'pending' if dry_run else 'new    '}  {_label(migration)}")
    if not before.pending:
        print(f"{settings.database} is up to date")


def split_database(dsn: str) -> tuple[str, str]:
    """Take the database off a DSN: on a fresh server it does not exist yet, and cannot be connected to."""
    url = urlsplit(dsn)
    if url.scheme == "chdb":
        return dsn, ""
    return urlunsplit((url.scheme, url.netloc, "", url.query, "")), url.path.strip("/")


def _connect(dsn: str) -> Any:
    try:
        import clickhouse_connect  # noqa: PLC0415 - not in the core install
    except ModuleNotFoundError:
        raise MissingExtraError("moescope migrate", "server") from None
    try:
        return clickhouse_connect.get_client(dsn=dsn)
    except Exception as error:
        raise StoreUnavailableError(
            f"no store answers at {dsn}: {error}. Start one with: moescope serve"
        ) from error


def _say(migration: migrate.Migration) -> None:
    print(f"applying {_label(migration)}", file=sys.stderr)


def _label(migration: migrate.Migration) -> str:
    return f"{migration.number:04d}_{migration.name}"
