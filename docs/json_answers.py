"""The page ``docs/json.md``: every answer of ``--json``, field by field, from the schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moescope.schemas.report_schema import read_report_schema, report_names

INTRODUCTION = """\
# Answers as JSON

Generated from `schemas/reports/`, the JSON Schemas (draft 2020-12) that these answers are held against in the
tests; `moescope.schemas.report_schema.read_report_schema("latency")` reads one. A field that is not known is
null and not left out; no number is ever NaN. `[]` is each entry of a list, `{}` each value of a mapping whose
keys are names.
"""


def json_page() -> str:
    """Every answer with its fields; what a file of a person may hold is on its own page."""
    lines = [INTRODUCTION.rstrip("\n")]
    for name in report_names():
        if name == "readiness_protocol":
            continue
        schema = read_report_schema(name)
        lines += ["", f"## `{schema['title']}`", "", schema["description"], ""]
        lines += ["| field | type | what it is |", "|---|---|---|"]
        lines += [f"| `{path}` | {kind} | {text} |" for path, kind, text in _fields(schema, schema, "")]
    return "\n".join(lines) + "\n"


def _fields(root: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Every field below a schema, in its order."""
    schema = _resolve(root, schema)
    for name, child in schema.get("properties", {}).items():
        yield from _field(root, child, f"{path}.{name}" if path else name)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        yield from _field(root, others, f"{path}{{}}")
    if isinstance(schema.get("items"), dict):
        yield from _field(root, schema["items"], f"{path}[]")


def _field(root: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    resolved = _resolve(root, schema)
    text = schema.get("description") or resolved.get("description", "")
    is_told_by_its_parts = "properties" in resolved or path.endswith(("[]", "{}"))
    if text or not is_told_by_its_parts:
        yield path, _kind(resolved), str(text).replace("|", "\\|")
    yield from _fields(root, resolved, path)


def _resolve(root: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference within the file; what stands beside it wins."""
    reference = schema.get("$ref", "")
    if not reference.startswith("#/"):
        return schema
    target: Any = root
    for part in reference.removeprefix("#/").split("/"):
        target = target[part]
    return {**_resolve(root, target), **{key: value for key, value in schema.items() if key != "$ref"}}


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{'null' if value is None else value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_kind(one) for one in schema[word])
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
