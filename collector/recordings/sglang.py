"""SGLang's recordings of experts: the dumps of its recorder's four modes, and counts in JSON.

``stat`` and ``stat_approx`` write one file, the ranks added up: counts ``[passes, layers, logical
experts]`` out of a ring, so that unused rows are zeros, their order rotates, and no row has an id, a time
or a phase. ``per_pass`` and ``per_token`` write one file a rank: counts ``[layers, physical experts]`` for
each forward pass, to be added over the ranks and mapped to logical experts by the last map. ``per_token``
has the tokens and their phase besides; the ids of the prompts' tokens are let go of while the file is read.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from moescope.collector.recordings.recording import RecordedPass, Recording
from moescope.collector.recordings.sglang_ranks import MAP, TOPK, RankFile, RankSums
from moescope.collector.recordings.torch_file import read_torch_file
from moescope.collector.recordings.whole_numbers import whole_numbers
from moescope.schemas.errors import RecordingError

_PRIVATE: Final = frozenset({"input_ids", "positions", "extend_seq_lens", "misc_objects"})
_TIME_IN_NAME: Final = re.compile(r"expert_distribution_recorder_(\d{9,11}(?:\.\d+)?)(?:_\d+)?$")
_STAT: Final = "stat or stat_approx"
_COUNTS: Final = "logical_count"


def read_sglang(
    paths: Sequence[Path], *, keeps_identical: bool = False, progress: Callable[[int], None] = lambda _: None
) -> Recording:
    """Read the files of one recording.

    Args:
        paths: files, or folders with them.
        keeps_identical: take blocks of identical routes for tokens too.
        progress: told how many files were read.

    Raises:
        RecordingError: a file is no recording, is damaged, or does not fit the others; the message names it.
    """
    files: list[RankFile] = []
    for path in list_files(paths):
        files.append(_load(path))
        progress(len(files))
    kinds = {file.kind: file.path for file in files}
    if len(kinds) > 1:
        named = ", ".join(f"{path} is {kind}" for kind, path in kinds.items())
        raise RecordingError(f"these are recordings of several kinds ({named}); import each kind by itself")
    [kind] = kinds
    made = max((made for file in files if (made := _made_seconds(file.path)) is not None), default=None)
    if kind in {"per_pass", "per_token"}:
        recording = RankSums(files, keeps_identical=keeps_identical).recording(kind)
        return replace(recording, made_seconds=made)
    return _read_counts(files, kind, made)


def list_files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are, and the recordings in folders; each once.

    Raises:
        RecordingError: a folder has none, or there is no such file.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.suffix in {".pt", ".json"})
            if not inside:
                raise RecordingError(f"{path} has no .pt or .json in it")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise RecordingError(f"there is no file {path}")
    return list(dict.fromkeys(files))


def _load(path: Path) -> RankFile:
    content = (
        _parse_json(path)
        if not zipfile.is_zipfile(path) and path.suffix == ".json"
        else read_torch_file(path, _PRIVATE)
    )
    if not isinstance(content, dict):
        raise RecordingError(f"{path} is no recording of SGLang: it holds no dictionary")
    return RankFile(path, _kind_of(path, content), content)


def _parse_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} is no JSON that can be read ({error})") from None


def _kind_of(path: Path, content: Mapping[str, Any]) -> str:
    if "records" in content and MAP in content:
        records = content["records"]
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise RecordingError(f"{path} is damaged: its records are no list of dictionaries")
        if not records:
            raise RecordingError(
                f"{path} has no forward pass in it: was the recording started before the dump?"
            )
        return "per_token" if TOPK in records[0] else "per_pass"
    if _COUNTS in content:
        return _STAT if "rank" in content else _COUNTS
    if "physical_to_logical_map" in content:
        raise RecordingError(f"{path} is a placement, not a recording; it has no counts")
    known = ", ".join(sorted(str(key) for key in content)[:6]) or "nothing"
    raise RecordingError(
        f"{path} is no recording of SGLang: it has {known}, and neither {_COUNTS} nor records with {MAP}"
    )


def _made_seconds(path: Path) -> float | None:
    """When the recorder wrote the file, which its name says."""
    match = _TIME_IN_NAME.fullmatch(path.stem)
    return float(match[1]) if match else None


def _read_counts(files: Sequence[RankFile], kind: str, made: float | None) -> Recording:
    if len(files) > 1:
        names = ", ".join(str(file.path) for file in files)
        raise RecordingError(f"{names}: each of these is a whole recording; import one at a time")
    [file] = files
    counts = whole_numbers(file.path, _COUNTS, file.content[_COUNTS])
    if counts.ndim == 2:
        counts = counts[None]
    if counts.ndim != 3 or not counts.size:
        raise RecordingError(
            f"{file.path}: {_COUNTS} is {counts.shape}, expected [passes, layers, experts] or without passes"
        )
    is_used = counts.any(axis=(1, 2))
    return Recording(
        kind=kind,
        passes=[RecordedPass(counts[row]) for row in np.flatnonzero(is_used)],
        num_layers=counts.shape[1],
        num_experts=counts.shape[2],
        left_out={"empty rows of the ring": int((~is_used).sum())},
        remarks=("the passes are in the order of the ring, which is not that of time",)
        if kind == _STAT
        else (),
        made_seconds=made,
    )
