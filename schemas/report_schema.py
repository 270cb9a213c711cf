"""The JSON Schema of everything that ``--json`` prints: ``reports/<name>.schema.json`` (draft 2020-12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent / "reports"
_SUFFIX: Final = ".schema.json"


def report_names() -> tuple[str, ...]:
    """Names of the answers that have a schema, in the order of the alphabet."""
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in _FOLDER.glob(f"*{_SUFFIX}")))


def read_report_schema(name: str) -> dict[str, Any]:
    """Read the schema of one answer; ``name`` is one of :func:`report_names`."""
    schema: dict[str, Any] = json.loads((_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
    return schema
