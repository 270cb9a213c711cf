"""Counts of experts in a file: JSON, numpy, or a dump of SGLang's recorder."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from moescope.analysis.replication_rules import LARGEST_LOAD, SMALLEST_LOAD
from moescope.collector.recordings.sglang import read_sglang
from moescope.collector.recordings.torch_file import read_torch_file
from moescope.planning.load import PlanLoad
from moescope.schemas.errors import PlacementError, RecordingError
from moescope.schemas.placement_document import COUNTS_KEY, MAP_KEY
from moescope.schemas.records import FloatArray
from moescope.schemas.topology import Placement

_EXPECTED: Final = "[layers, experts], or [windows, layers, experts] with the oldest window first"


def read_counts_file(path: Path) -> PlanLoad:
    """Read the load of each expert.

    Any number from 0 to 1e250 is a load: counts, or weights.

    Args:
        path: ``{"logical_count": …}`` in JSON or a ``.pt``, an ``.npy``, or a dump of SGLang's recorder (a
            file, or a folder with one of each rank); ``[layers, experts]`` or ``[windows, layers, experts]``.

    Raises:
        RecordingError: it holds something else; the message names the file, the reason and the way out.
    """
    if path.is_dir():
        return _read_recording(path)
    if not path.exists():
        raise RecordingError(f"there is no file {path}; --from-counts takes .json, .npy or a .pt of SGLang")
    if path.suffix == ".npy":
        return _load_of(path, _read_npy(path))
    if path.suffix == ".pt":
        return _read_torch(path)
    content = _read_json(path)
    return _load_of(path, content[COUNTS_KEY])


def check_loads(path: Path, value: Any) -> FloatArray:
    """The load as float64 ``[windows, layers, experts]``.

    Raises:
        RecordingError: other axes, or a number that is no load.
    """
    try:
        tokens = np.asarray(value)
    except ValueError:
        raise RecordingError(f"{path}: its rows have several lengths; expected {_EXPECTED}") from None
    if tokens.dtype.kind not in "iuf":
        kind = "something else, or numbers beyond 64 bits" if tokens.dtype.kind == "O" else tokens.dtype.name
        raise RecordingError(f"{path}: it holds {kind}; expected numbers, {_EXPECTED}")
    if tokens.ndim == 2:
        tokens = tokens[None]
    if tokens.ndim != 3 or not tokens.size:
        raise RecordingError(f"{path}: its axes are {list(tokens.shape)}; expected {_EXPECTED}")
    loads = tokens.astype(np.float64)
    is_wrong = ~np.isfinite(loads) | (loads < 0) | (loads > LARGEST_LOAD)
    is_wrong |= (loads > 0) & (loads < SMALLEST_LOAD)
    if is_wrong.any():
        window, layer, expert = np.argwhere(is_wrong)[0]
        raise RecordingError(
            f"{path}: expert {expert} of layer row {layer} in window {window} has the load "
            f"{loads[window, layer, expert]} ({int(is_wrong.sum())} such); loads are 0, or from "
            f"{SMALLEST_LOAD} to {LARGEST_LOAD}"
        )
    return loads


def _load_of(
    path: Path,
    value: Any,
    *,
    notes: tuple[str, ...] = (),
    is_in_order: bool = True,
    current: Placement | None = None,
) -> PlanLoad:
    tokens = check_loads(path, value)
    is_used = tokens.any(axis=(1, 2))
    if is_used.any() and not is_used.all():
        notes += (f"{int((~is_used).sum())} of {len(tokens)} windows of the file are empty and left out.",)
        tokens = tokens[is_used]
    return PlanLoad(
        tokens=tokens,
        layers=np.arange(tokens.shape[1], dtype=np.int64),
        source=str(path),
        is_in_order=is_in_order,
        current=current,
        notes=notes,
    )


def _read_npy(path: Path) -> Any:
    try:
        content = np.load(path, allow_pickle=False)
    except (EOFError, MemoryError, OSError, ValueError) as error:
        raise RecordingError(f"{path} is no array of numpy that can be read ({error})") from None
    if not isinstance(content, np.ndarray):
        content.close()
        raise RecordingError(f"{path} is an archive of arrays; write the counts alone, with numpy.save")
    return content


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise RecordingError(f"{path} is no JSON that can be read ({error})") from None
    _refuse_others(path, content)
    checked: dict[str, Any] = content
    return checked


def _refuse_others(path: Path, content: Any) -> None:
    if isinstance(content, dict) and COUNTS_KEY in content:
        return
    if isinstance(content, dict) and MAP_KEY in content:
        raise RecordingError(f"{path} is a placement and has no counts; give it with --current")
    found = ", ".join(sorted(map(str, content))[:6]) if isinstance(content, dict) else type(content).__name__
    raise RecordingError(
        f'{path} has no {COUNTS_KEY} (found: {found or "nothing"}); write {{"{COUNTS_KEY}": [[…] per layer]}}'
    )


def _read_torch(path: Path) -> PlanLoad:
    content = read_torch_file(path)
    if isinstance(content, dict) and COUNTS_KEY in content and "rank" not in content:
        return _load_of(path, content[COUNTS_KEY])
    if isinstance(content, dict) and MAP_KEY in content:
        _refuse_others(path, content)
    return _read_recording(path)


def _read_recording(path: Path) -> PlanLoad:
    recording = read_sglang([path])
    if not recording.passes:
        raise RecordingError(f"{path}: the recording is empty; was it started before the dump?")
    notes = [f"The recording: {remark}." for remark in recording.remarks]
    notes += [f"Left out of the recording: {n} {what}." for what, n in recording.left_out.items() if n]
    passes = np.stack([one.tokens_per_layer_expert for one in recording.passes])
    current = None
    if recording.physical_to_logical_map is not None:
        with contextlib.suppress(PlacementError):  # it is one that nobody serves from: then it is not known
            ranks = max(recording.ranks, default=0) + 1
            current = Placement(recording.physical_to_logical_map, ranks, recording.num_experts)
    is_ring = recording.kind.startswith("stat")
    return _load_of(path, passes, notes=tuple(notes), is_in_order=not is_ring, current=current)
