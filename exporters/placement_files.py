"""Placements as engines read them, both ways. Nothing leaves unchecked: engines check little or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from moescope.exporters import placement_sglang, placement_trtllm, placement_vllm
from moescope.schemas.errors import MissingExtraError, PlacementError
from moescope.schemas.placement_document import PlacementDocument, parse_document
from moescope.schemas.topology import Placement

_YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})


class EngineFormat(StrEnum):
    """The engines that placements are written for."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"


_RENDERERS: Final[Mapping[EngineFormat, Callable[[Placement, Sequence[int]], str]]] = {
    EngineFormat.VLLM: placement_vllm.render,
    EngineFormat.SGLANG: placement_sglang.render,
    EngineFormat.TRTLLM: placement_trtllm.render,
}
_START_COMMANDS: Final[Mapping[EngineFormat, Callable[[Placement, str], str]]] = {
    EngineFormat.VLLM: placement_vllm.start_command,
    EngineFormat.SGLANG: placement_sglang.start_command,
    EngineFormat.TRTLLM: placement_trtllm.start_command,
}


def render_placement(placement: Placement, engine_format: EngineFormat | str, layers: Sequence[int]) -> str:
    """The text of an engine's placement file.

    Args:
        placement: every slot filled, each expert at most once on a rank.
        engine_format: whose file.
        layers: the model's layer index of each row, rising.

    Raises:
        PlacementError: the engine would refuse it, or load it and serve badly; the message says why and the
            way out.
    """
    return _RENDERERS[EngineFormat(engine_format)](placement, layers)


def describe_start(placement: Placement, engine_format: EngineFormat | str, file: str) -> str:
    """The command that starts the engine with the file, with the options that must fit it."""
    return _START_COMMANDS[EngineFormat(engine_format)](placement, file)


def read_placement_file(
    path: Path,
    *,
    ep_size: int | None = None,
    num_experts: int | None = None,
    layers: Sequence[int] | None = None,
    read_torch: Callable[[Path], Any] | None = None,
) -> Placement:
    """Read a placement that any of the engines, or ``moescope plan``, wrote.

    Args:
        path: JSON, YAML, or a ``.pt`` of SGLang.
        ep_size: ranks; needed where the file does not say, as SGLang's and TensorRT-LLM's do not.
        num_experts: logical experts; otherwise the largest id decides.
        layers: the model's layers to take; every row if None.
        read_torch: reads a ``.pt``.

    Raises:
        PlacementError: the file is no placement, or one that nobody could serve from; the message names it.
    """
    document = read_placement_document(path, ep_size=ep_size, num_experts=num_experts, read_torch=read_torch)
    if layers is None:
        return document.placement
    try:
        return document.rows_of(layers)
    except PlacementError as error:
        raise PlacementError(f"{path}: {error}") from None


def read_placement_document(
    path: Path,
    *,
    ep_size: int | None = None,
    num_experts: int | None = None,
    read_torch: Callable[[Path], Any] | None = None,
) -> PlacementDocument:
    """Read such a file with what it says of its layers. See :func:`read_placement_file`.

    Raises:
        PlacementError: the file is no placement, or one that nobody could serve from; the message names it.
    """
    try:
        content = _load(path, read_torch)
        if isinstance(content, Mapping) and placement_trtllm.ASSIGNMENTS in content:
            return placement_trtllm.parse(content, ep_size=ep_size, num_experts=num_experts)
        return parse_document(content, ep_size=ep_size, num_experts=num_experts)
    except PlacementError as error:
        raise PlacementError(f"{path}: {error}") from None


def _load(path: Path, read_torch: Callable[[Path], Any] | None) -> Any:
    if path.suffix == ".pt":
        if read_torch is None:
            raise PlacementError("it is a file of torch, which is not read here; write it as JSON")
        return read_torch(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlacementError(getattr(error, "strerror", None) or "it is no text") from None
    return _load_yaml(text) if path.suffix in _YAML_SUFFIXES else _load_json(text)


def _load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError) as error:
        raise PlacementError(f"it is no JSON ({error})") from None


def _load_yaml(text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 - an engine's environment has no need of it
    except ModuleNotFoundError:
        raise MissingExtraError("Reading YAML", "server") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PlacementError(f"it is no YAML ({str(error).splitlines()[0]})") from None
