"""What a recording becomes: a model's shape, ranks, and passes that are load."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moescope.collector.recordings.recording import RecordedPass, Recording
from moescope.collector.recordings.warmup import is_identical_pass
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import PlacementError, RecordingError, ShapeError
from moescope.schemas.records import IntArray
from moescope.schemas.topology import ModelShape, Placement, place_contiguously

_LARGEST_INFERRED_TOP_K: Final = 64
_FEWEST_SUMS: Final = 12
"""Of so many random token counts hardly ever all are multiples of one number; of three, one time in six."""

_DIGEST_CHARACTERS: Final = 16


@dataclass(frozen=True, slots=True)
class LoadPass:
    """One pass of the load: whole numbers ``[num_layers, num_experts]`` of ``tokens`` rows."""

    phase: Phase
    tokens: int
    tokens_per_layer_expert: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """A recording with everything that the store needs to know.

    Attributes:
        digest: of the files' content, whatever their names.
        is_top_k_inferred: nobody said the top-k; the sums did.
        warmup_tokens: rows left out as no real tokens.
        warmup_passes: passes that were nothing else.
    """

    digest: str
    recording: Recording
    shape: ModelShape
    placement: Placement
    passes: Sequence[LoadPass]
    is_top_k_inferred: bool
    warmup_tokens: int
    warmup_passes: int
    remarks: tuple[str, ...]

    @property
    def ep_size(self) -> int:
        """Ranks of the group."""
        return self.placement.ep_size

    @property
    def dense_layers(self) -> tuple[int, ...]:
        """Layers without a single count."""
        return tuple(sorted(set(range(self.shape.num_layers)) - set(self.shape.moe_layers)))

    def tokens(self, phase: Phase) -> int:
        """Token rows of a phase."""
        return sum(one.tokens for one in self.passes if one.phase is phase)

    def counts(self, one: LoadPass) -> IntArray:
        """The counts of a pass: int64 ``[num_moe_layers, num_experts]``, owned by the caller.

        Made when they are asked for: a recording may be most of the memory.
        """
        return one.tokens_per_layer_expert[self.shape.layer_index].astype(np.int64)

    def assignments(self) -> int:
        """(token, expert) pairs of all layers."""
        return sum(int(one.tokens_per_layer_expert.sum()) for one in self.passes)


def make_import_plan(
    recording: Recording,
    files: Iterable[Path],
    *,
    service: str,
    ep_size: int | None,
    top_k: int | None,
    phase: Phase | None,
    keeps_identical: bool = False,
) -> ImportPlan:
    """Decide what is load, and fill in what the recording does not say.

    Raises:
        RecordingError: there is nothing in it, or it does not fit what was asked for; the message says what
            to give.
    """
    if not recording.passes:
        raise RecordingError(
            "the recording is empty: every row of it is zero. Was it started before the dump?"
        )
    used = np.zeros(recording.num_layers, dtype=np.bool_)
    for one in recording.passes:
        used |= one.tokens_per_layer_expert.any(axis=1)
    moe_layers = tuple(int(layer) for layer in np.flatnonzero(used))
    warmup_tokens = sum(one.warmup_tokens for one in recording.passes)
    if not moe_layers:
        raise _nothing_but_warmup(warmup_tokens)
    known_top_k = _top_k_of(recording, moe_layers, top_k)
    try:
        shape = ModelShape(service, recording.num_layers, moe_layers, recording.num_experts, known_top_k)
    except ShapeError as error:
        raise RecordingError(f"{error}; give the right one with --top-k") from None
    kept, warmup = _split(recording.passes, known_top_k, keeps_identical=keeps_identical)
    warmup_tokens += sum(_tokens(one, shape) for one in warmup)
    if not kept:
        raise _nothing_but_warmup(warmup_tokens)
    load = [_load_pass(one, shape, phase) for one in kept]
    return ImportPlan(
        digest=_digest(files),
        recording=recording,
        shape=shape,
        placement=_placement(recording, shape, ep_size),
        passes=load,
        is_top_k_inferred=not (top_k or recording.top_k),
        warmup_tokens=warmup_tokens,
        warmup_passes=len(warmup),
        remarks=(*recording.remarks, *_disagreements(kept, shape)),
    )


def _nothing_but_warmup(tokens: int) -> RecordingError:
    return RecordingError(
        f"there is no load in it: {tokens} tokens of identical routes and nothing else. To count them all "
        "the same: --keep-identical"
    )


def _top_k_of(recording: Recording, moe_layers: Sequence[int], asked: int | None) -> int:
    if recording.top_k and asked and recording.top_k != asked:
        raise RecordingError(f"--top-k {asked}: tokens of the recording take {recording.top_k} experts")
    if recording.top_k or asked:
        return recording.top_k or asked or 0
    sums = {
        int(n) for one in recording.passes for n in one.tokens_per_layer_expert[[*moe_layers]].sum(axis=1)
    }
    sums -= {0}
    inferred = math.gcd(*sums)
    if len(sums) < _FEWEST_SUMS or not 1 < inferred <= min(_LARGEST_INFERRED_TOP_K, recording.num_experts):
        raise RecordingError(
            "the recording does not say how many experts a token takes, and its sums do not tell; give it "
            "with --top-k (Kimi K3: 16, DeepSeek-V3: 8)"
        )
    return inferred


def _split(
    passes: Sequence[RecordedPass], top_k: int, *, keeps_identical: bool
) -> tuple[list[RecordedPass], list[RecordedPass]]:
    """Passes that are load, and those that are warm-up and nothing else."""
    kept: list[RecordedPass] = []
    warmup: list[RecordedPass] = []
    for one in passes:
        is_warmup = not keeps_identical and is_identical_pass(one.tokens_per_layer_expert, top_k)
        (warmup if is_warmup else kept).append(one)
    return kept, warmup


def _load_pass(one: RecordedPass, shape: ModelShape, asked: Phase | None) -> LoadPass:
    phase = one.phase or asked
    if phase is None:
        raise RecordingError(
            "the recording does not say whether its passes are prefill or decode; give --phase prefill or "
            "--phase decode"
        )
    return LoadPass(phase, _tokens(one, shape), one.tokens_per_layer_expert)


def _tokens(one: RecordedPass, shape: ModelShape) -> int:
    return round(int(one.tokens_per_layer_expert.sum(axis=1).max(initial=0)) / shape.top_k)


def _disagreements(passes: Sequence[RecordedPass], shape: ModelShape) -> Iterable[str]:
    odd = 0
    for one in passes:
        sums = one.tokens_per_layer_expert[[*shape.moe_layers]].sum(axis=1)
        odd += bool((sums != sums.max(initial=0)).any() or sums.max(initial=0) % shape.top_k)
    if odd:
        yield (
            f"in {odd} passes the layers counted different numbers of tokens; the largest is taken for the "
            "tokens, and telemetry_health will call them not conserved"
        )


def _placement(recording: Recording, shape: ModelShape, ep_size: int | None) -> Placement:
    size = ep_size or max(recording.ranks, default=0) + 1
    if recording.physical_to_logical_map is None:
        return place_contiguously(shape, size)
    try:
        return Placement(recording.physical_to_logical_map[[*shape.moe_layers]], size, shape.num_experts)
    except PlacementError as error:
        raise RecordingError(f"{error}; give the number of ranks with --ep-size") from None


def _digest(files: Iterable[Path]) -> str:
    """The same for the same files, whatever their names and order."""
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()[:_DIGEST_CHARACTERS]
