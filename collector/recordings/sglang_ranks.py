"""SGLang's ``per_pass`` and ``per_token`` dumps: one file a rank, added up by forward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from moescope.collector.recordings.recording import RecordedPass, Recording
from moescope.collector.recordings.warmup import find_identical_rows
from moescope.collector.recordings.whole_numbers import whole_numbers
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import RecordingError
from moescope.schemas.records import IntArray

MAP: Final = "last_physical_to_logical_map"
TOPK: Final = "topk_ids_of_layer"
_COUNTS: Final = "global_physical_count"

# `ForwardMode` of SGLang 0.5.23.
_PHASES: Final[Mapping[int, Phase]] = {
    1: Phase.PREFILL,
    2: Phase.DECODE,
    3: Phase.PREFILL,
    5: Phase.DECODE,
    8: Phase.PREFILL,
    9: Phase.PREFILL,
}
_MIXED: Final = 3
_LEFT_OUT: Final = {4: "idle passes", 6: "passes of a draft model", 7: "passes without a forward"}


@dataclass(frozen=True, slots=True)
class RankFile:
    """One file that was read."""

    path: Path
    kind: str
    content: Mapping[str, Any]


@dataclass(slots=True)
class _Sum:
    counts: IntArray
    warmup_tokens: int = 0


class RankSums:
    """The passes of one recording, ranks added up. A pass may be prefill on one rank and decode on another.

    Args:
        files: at least one, all of one kind.
        keeps_identical: take blocks of identical routes for tokens too.

    Raises:
        RecordingError: a file is damaged, or does not fit the first.
    """

    def __init__(self, files: Sequence[RankFile], *, keeps_identical: bool) -> None:
        first = files[0]
        self._first = first.path
        self._map = self._map_of(first)
        self._num_experts = int(self._map.max(initial=-1)) + 1
        if self._map.ndim != 2 or self._num_experts < 1:
            raise RecordingError(f"{first.path}: {MAP} is {self._map.shape}, expected [layers, slots]")
        self._keeps_identical = keeps_identical
        self._sums: dict[tuple[int, Phase | None], _Sum] = {}
        self._ranks_of_pass: dict[int, set[int]] = {}
        self._counts_of_pass: dict[int, set[int]] = {}
        self._mixed: set[int] = set()
        self._left_out: Counter[str] = Counter()
        self._top_k = 0
        for file in files:
            self._check_map(file)
            for record in file.content["records"]:
                self._add(file.path, record)

    def recording(self, kind: str) -> Recording:
        """Everything that was added."""
        in_order = sorted(self._sums.items(), key=lambda item: (item[0][0], str(item[0][1])))
        return Recording(
            kind=kind,
            passes=[RecordedPass(one.counts, phase, one.warmup_tokens) for (_, phase), one in in_order],
            num_layers=self._map.shape[0],
            num_experts=self._num_experts,
            physical_to_logical_map=self._map,
            ranks=tuple(sorted(self._ranks)),
            left_out=self._left_out,
            remarks=tuple(self._remarks()),
            top_k=self._top_k,
        )

    @property
    def _ranks(self) -> set[int]:
        return set().union(*self._ranks_of_pass.values())

    def _map_of(self, file: RankFile) -> IntArray:
        return whole_numbers(file.path, MAP, file.content[MAP], low=-1).astype(np.int64)

    def _check_map(self, file: RankFile) -> None:
        own = self._map_of(file)
        if own.shape != self._map.shape:
            raise RecordingError(
                f"{file.path} has layers and slots {own.shape}, {self._first} has {self._map.shape}: "
                "these are not of one run; import each run by itself"
            )
        if not np.array_equal(own, self._map):
            raise RecordingError(
                f"{file.path} and {self._first} end with different placements: these are not of one dump; "
                "import each dump by itself"
            )

    def _add(self, path: Path, record: Mapping[str, Any]) -> None:
        rank, number = _number(path, record, "rank"), _number(path, record, "forward_pass_id")
        ranks = self._ranks_of_pass.setdefault(number, set())
        if rank in ranks:
            raise RecordingError(
                f"{path}: pass {number} of rank {rank} is there twice; was a file given twice?"
            )
        ranks.add(rank)
        mode = record.get("forward_mode")
        if mode in _LEFT_OUT:
            self._left_out[_LEFT_OUT[mode]] += 1
            return
        if mode is not None and mode not in _PHASES:
            raise RecordingError(
                f"{path}: pass {number} has the forward mode {mode!r}, unknown to SGLang 0.5.23"
            )
        if mode == _MIXED:
            self._mixed.add(number)
        counts, warmup_tokens = self._counts_of(path, record)
        self._counts_of_pass.setdefault(number, set()).add(hash(counts.tobytes()))
        phase = None if mode is None else _PHASES[mode]
        size = (len(self._map), self._num_experts)
        one = self._sums.setdefault((number, phase), _Sum(np.zeros(size, dtype=np.int64)))
        layers = np.arange(len(self._map))[:, None]
        np.add.at(one.counts, (layers, np.maximum(self._map, 0)), np.where(self._map < 0, 0, counts))
        one.warmup_tokens += warmup_tokens

    def _counts_of(self, path: Path, record: Mapping[str, Any]) -> tuple[IntArray, int]:
        """Counts ``[layers, slots]`` without dummy tokens, and how many of those there were."""
        counts = whole_numbers(path, _COUNTS, record.get(_COUNTS)).astype(np.int64)
        if counts.shape != self._map.shape:
            raise RecordingError(
                f"{path}: a pass has counts {counts.shape}, the placement is {self._map.shape}"
            )
        if TOPK not in record:
            return counts, 0
        ids = whole_numbers(path, TOPK, record[TOPK], low=-1)
        if ids.ndim != 3 or len(ids) != len(counts) or ids.max(initial=0) >= counts.shape[1]:
            raise RecordingError(f"{path}: {TOPK} is {ids.shape} and does not fit counts {counts.shape}")
        self._top_k = max(self._top_k, int((ids >= 0).sum(axis=2).max(initial=0)))
        if self._keeps_identical:
            return counts, 0
        is_dummy = find_identical_rows(ids)
        dummies = ids[:, is_dummy]
        layer = np.broadcast_to(np.arange(len(ids))[:, None, None], dummies.shape)
        np.subtract.at(counts, (layer[dummies >= 0], dummies[dummies >= 0]), 1)
        return np.maximum(counts, 0), int(is_dummy.sum())

    def _remarks(self) -> Iterable[str]:
        ranks = self._ranks
        missing = sorted(set(range(max(ranks) + 1)) - ranks)
        lacking = sorted(number for number, own in self._ranks_of_pass.items() if own != ranks)
        if missing:
            yield f"no file of rank {', '.join(map(str, missing))}: what was counted there is missing"
        if lacking:
            yield f"{len(lacking)} passes, the first with the id {lacking[0]}, lack some of the ranks"
        shared = [number for number, own in self._ranks_of_pass.items() if len(own) > 1]
        if shared and all(len(self._counts_of_pass.get(number, ())) == 1 for number in shared):
            yield (
                "all ranks counted the same in every pass: do they see the same tokens (tensor parallelism)? "
                "Then import the file of one of them"
            )
        if self._mixed:
            yield f"{len(self._mixed)} passes mix prefill and decode; they count as prefill"


def _number(path: Path, record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int) or value < 0:
        raise RecordingError(f"{path} is damaged: a record has {value!r} for its {name}")
    return value
