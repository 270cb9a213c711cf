"""From a file to a protocol: its shape, what its keys say of each other, every error with its line."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from moescope.analysis.readiness_protocol import (
    MEASURE_LIMITS,
    ImbalanceMeasure,
    ReadinessProtocol,
)
from moescope.analysis.readiness_values import make_protocol
from moescope.checking.yaml_document import Document, KeyPath, Place, Problem, read_yaml, refuse
from moescope.schemas.report_schema import read_report_schema

SCHEMA_NAME: Final = "readiness_protocol"
_KINDS: Final = {
    "object": "a mapping, that is lines of the form key: value",
    "array": "a list, as in [1, 2]",
}


def read_protocol(path: Path) -> ReadinessProtocol:
    """Read and check a readiness protocol.

    Raises:
        ProtocolError: everything that is wrong with the file, line by line.
    """
    document = _with_empty_sections(read_yaml(path))
    problems = [*document.problems, *_shape_problems(document)]
    if not problems:
        problems += _contradictions(document)
    if problems:
        raise refuse(path, tuple(problems))
    protocol = make_protocol(document.value)
    return protocol if protocol.name else dataclasses.replace(protocol, name=path.name)


def _with_empty_sections(document: Document) -> Document:
    """A section without a line of its own is one with the defaults."""
    schema = read_report_schema(SCHEMA_NAME)
    return dataclasses.replace(document, value=_fill(document.value, schema))


def _fill(value: Any, schema: Mapping[str, Any]) -> Any:
    if value is None and schema.get("type") == "object":
        return {}
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    return {key: _fill(one, properties.get(key, {})) for key, one in value.items()}


def _shape_problems(document: Document) -> Iterator[Problem]:
    validator = Draft202012Validator(read_report_schema(SCHEMA_NAME))
    for error in validator.iter_errors(document.value):
        path: KeyPath = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            yield from _unknown_keys(document, path, error)
        elif error.validator == "minProperties" and document.problems:
            continue  # Its keys were no words: that is said already.
        elif error.validator == "required":
            yield _missing_key(document, path, error)
        else:
            yield Problem(document.place_of_value(path), _dotted(path), _explain(error))


def _unknown_keys(document: Document, path: KeyPath, error: ValidationError) -> Iterator[Problem]:
    known = list(_schema(error)["properties"])
    for key in _mapping(error.instance):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            message = f"there is no such key; {hint}"
            yield Problem(document.place_of_key((*path, key)), _dotted((*path, key)), message)


def _missing_key(document: Document, path: KeyPath, error: ValidationError) -> Problem:
    schema = _schema(error)
    (missing,) = [key for key in schema["required"] if error.message.startswith(f"'{key}'")]
    what = schema["properties"][missing]["description"]
    return Problem(document.place_of_key(path), _dotted((*path, missing)), f"is missing. {what}")


def _explain(error: ValidationError) -> str:
    """What a value has to be instead of what it is."""
    schema = _schema(error)
    if error.validator == "enum":
        return _explain_choice(error.instance, schema["enum"])
    if error.validator == "const":
        return f"{_shown(error.instance)} is not known; this is version {schema['const']} of the format"
    if error.validator == "minProperties":
        return "the file says nothing; examples/readiness/ has one to begin with"
    if error.validator == "uniqueItems":
        return "one of the entries stands twice"
    if error.validator == "minItems":
        return "the list is empty; leave the key out for the default"
    wanted = _KINDS.get(str(schema.get("type"))) or schema.get("title")
    return f"{_shown(error.instance)} is not {wanted}"


def _schema(error: ValidationError) -> Mapping[str, Any]:
    return _mapping(error.schema)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _explain_choice(value: Any, choices: list[str]) -> str:
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{_shown(value)} is none of {', '.join(choices)}{hint}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _contradictions(document: Document) -> Iterator[Problem]:
    """What no schema can say: keys that do not fit each other."""
    protocol = make_protocol(document.value)
    yield from _placement_contradiction(document, protocol)
    yield from _measure_contradiction(document, protocol)
    yield from _ranks_beyond_workers(document, protocol)


def _placement_contradiction(document: Document, protocol: ReadinessProtocol) -> Iterator[Problem]:
    placement = protocol.expert_placement
    if placement is None:
        return
    total, workers, held = placement.total_experts, placement.workers, placement.experts_per_worker
    wanted = -(-total // workers)
    if held == wanted:
        return
    path = ("expert_placement", "experts_per_worker")
    message = f"{workers} workers of {held} experts hold {workers * held}, and a layer has {total}"
    beyond = workers * held - total
    if beyond > 0 and not placement.redundant_experts:
        message += f"; write {wanted}, and if {beyond} of them are second copies: redundant_experts: {beyond}"
    else:
        message += f"; write {wanted} (redundant copies are not counted here)"
    yield Problem(document.place_of_value(path), _dotted(path), message)


def _measure_contradiction(document: Document, protocol: ReadinessProtocol) -> Iterator[Problem]:
    balance = protocol.load_balance_check
    if balance is None:
        return
    low, high = MEASURE_LIMITS[balance.measure]
    if low <= balance.acceptable_imbalance_ratio <= high:
        return
    path = ("load_balance_check", "acceptable_imbalance_ratio")
    meant = {
        ImbalanceMeasure.MAX_OVER_MEAN: "max / mean is 1 or more",
        ImbalanceMeasure.MEAN_OVER_MAX: "mean / max is between 0 and 1; a max / mean of 2.0 is 0.5",
        ImbalanceMeasure.MAX_OVER_MEAN_MINUS_1: "max / mean − 1 is above 0",
    }[balance.measure]
    message = f"{balance.acceptable_imbalance_ratio:g} cannot be: {meant}"
    yield Problem(document.place_of_value(path), _dotted(path), message)


def _ranks_beyond_workers(document: Document, protocol: ReadinessProtocol) -> Iterator[Problem]:
    placement, partial = protocol.expert_placement, protocol.partial_failure
    if placement is None or partial is None:
        return
    named: list[tuple[KeyPath, int]] = []
    if partial.worker_down is not None and partial.worker_down.ranks is not None:
        path: KeyPath = ("partial_failure", "worker_down", "ranks")
        named += [((*path, position), rank) for position, rank in enumerate(partial.worker_down.ranks)]
    if partial.worker_slow is not None and partial.worker_slow.rank is not None:
        named.append((("partial_failure", "worker_slow", "rank"), partial.worker_slow.rank))
    for path, rank in named:
        if rank >= placement.workers:
            last = placement.workers - 1
            message = f"there is no rank {rank}; {placement.workers} workers are the ranks 0 … {last}"
            yield Problem(document.place_of_value(path), _dotted(path), message)


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


__all__ = ["SCHEMA_NAME", "Place", "read_protocol"]
