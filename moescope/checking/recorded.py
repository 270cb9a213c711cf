"""What a recording of expert counts says of a protocol, and what it cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.assessment import LoadAssessment, assess_load
from moescope.analysis.clustering import sum_intervals
from moescope.analysis.expert_load import RAW, ExpertLoadWindow, LoadScope
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.placement import PlacementSnapshot
from moescope.analysis.readiness_evidence import GroupEvidence, ReadinessEvidence, Unknown
from moescope.analysis.readiness_protocol import ReadinessProtocol
from moescope.analysis.readiness_reader import limits_of
from moescope.collector.recordings.recording import RecordedPass, Recording
from moescope.collector.recordings.sglang import list_files, read_sglang
from moescope.collector.recordings.warmup import is_identical_pass
from moescope.exporters.placement_files import read_placement_file
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import RecordingError
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings
from moescope.schemas.topology import ModelShape, Placement, place_contiguously

_ONLY_COUNTS: Final = Unknown("A recording of expert counts does not say.")
_MS_A_PASS: Final = 1000


@dataclass(frozen=True, slots=True)
class _Counts:
    """The load of a recording.

    Attributes:
        shape: of the model; its top-k is 1 where nobody says it.
        tokens: by phase, int64 ``[passes, MoE layers, experts]``.
        top_k: experts per token.
    """

    service: str
    shape: ModelShape
    tokens: Mapping[Phase, IntArray]
    top_k: int | Unknown


def evidence_of_recording(
    files: Sequence[Path],
    protocol: ReadinessProtocol,
    settings: Settings,
    *,
    placement_file: Path | None,
    phase: Phase | None,
    top_k: int | None,
) -> ReadinessEvidence:
    """Read a recording, and a placement if there is one, as evidence.

    Without a placement in the recording or beside it, experts are taken to stand in order, as engines place
    them: loads of workers are computed for that, and where the experts are is not judged.

    Raises:
        RecordingError: a file that is no recording, or that does not fit; the message says what to give.
        PlacementError: a placement that does not fit the recording.
    """
    recording = read_sglang(list_files(files))
    counts = _counts(recording, protocol.service or "recording", phase, top_k)
    placement = _placement(counts, recording, placement_file, protocol)
    is_assumed = placement_file is None and recording.physical_to_logical_map is None
    limits = limits_of(protocol, settings)
    source = (
        f"{', '.join(str(path) for path in files)}: "
        f"{words.count(sum(map(len, counts.tokens.values())), 'recorded interval')}"
    )
    if is_assumed:
        source += f"; no placement is given, so experts are taken in order on {placement.ep_size} workers"
    group = GroupEvidence(
        ep_group="0",
        plan_options=f"--from-counts {files[0]} --ranks {placement.ep_size}",
        loads={one: _assess(counts, one, placement, limits) for one in counts.tokens},
        is_placement_assumed=is_assumed,
        top_k=counts.top_k,
        tokens_per_request=_ONLY_COUNTS,
        slow_workers=_ONLY_COUNTS,
        when_slow=_ONLY_COUNTS,
        when_down=_ONLY_COUNTS,
        ages=_ONLY_COUNTS,
        pools=_ONLY_COUNTS,
        room=_ONLY_COUNTS,
    )
    return ReadinessEvidence(
        source=f"{source}.",
        groups=(group,),
        goodput=_ONLY_COUNTS,
        contract_ttft_seconds=settings.contract_ttft_seconds,
        contract_tpot_seconds=settings.contract_tpot_seconds,
        latency={},
        requests_by_front_end=_ONLY_COUNTS,
    )


def _counts(recording: Recording, service: str, asked: Phase | None, top_k: int | None) -> _Counts:
    """The passes that are load; those that do not say their phase are taken for ``asked``, else decode."""
    known = recording.top_k or top_k
    passes = [one for one in recording.passes if not _is_warmup(one, known)]
    used = np.zeros(recording.num_layers, dtype=np.bool_)
    for one in passes:
        used |= one.tokens_per_layer_expert.any(axis=1)
    if not used.any():
        raise RecordingError("there is no load in the recording: every row of it is zero, or warm-up")
    moe_layers = tuple(int(layer) for layer in np.flatnonzero(used))
    shape = ModelShape(service, recording.num_layers, moe_layers, recording.num_experts, known or 1)
    tokens = {}
    for phase in Phase:
        of_phase = [one for one in passes if (one.phase or asked or Phase.DECODE) is phase]
        if of_phase:
            rows = [one.tokens_per_layer_expert[shape.layer_index] for one in of_phase]
            tokens[phase] = locked_int64(np.stack(rows))
    unknown = Unknown("The recording does not say how many experts a token takes; give it with --top-k.")
    return _Counts(service, shape, tokens, known or unknown)


def _is_warmup(one: RecordedPass, top_k: int | None) -> bool:
    return bool(top_k) and is_identical_pass(one.tokens_per_layer_expert, top_k or 1)


def _placement(
    counts: _Counts, recording: Recording, file: Path | None, protocol: ReadinessProtocol
) -> Placement:
    rules, shape = protocol.expert_placement, counts.shape
    workers = None if rules is None else rules.workers
    if file is not None:
        return read_placement_file(
            file, ep_size=workers, num_experts=shape.num_experts, layers=shape.moe_layers
        )
    size = workers or max(recording.ranks, default=0) + 1
    if recording.physical_to_logical_map is None:
        return place_contiguously(shape, size)
    return Placement(recording.physical_to_logical_map[[*shape.moe_layers]], size, shape.num_experts)


def _assess(counts: _Counts, phase: Phase, placement: Placement, limits: Settings) -> LoadAssessment:
    window = _window(counts, phase)
    replicas = placement.replicas_per_rank_layer_expert()
    if replicas.shape[1:] != window.tokens.shape:
        raise RecordingError(
            f"the placement is of {replicas.shape[1]} layers and {replicas.shape[2]} experts, the recording "
            f"of {window.tokens.shape[0]} and {window.tokens.shape[1]}; give the placement that was in use"
        )
    snapshot = PlacementSnapshot(
        *(window.end_ms, placement.ep_size, locked_int64(np.arange(placement.ep_size))),
        lock(replicas.astype(np.uint16)),
    )
    return assess_load(window, snapshot, limits)


def _window(counts: _Counts, phase: Phase) -> ExpertLoadWindow:
    """Passes as the sub-intervals of one window."""
    tokens, shape = counts.tokens[phase], counts.shape
    end_ms = len(tokens) * _MS_A_PASS
    scope = LoadScope(counts.service, "0", phase, shape.num_experts, shape.num_moe_layers, 0, end_ms)
    return ExpertLoadWindow(
        *(scope, RAW, 0, end_ms, locked_int64(shape.layer_index)),
        locked_int64(tokens.sum(axis=0)),
        sum_intervals(tokens),
        locked_int64((tokens.sum(axis=2) > 0).sum(axis=0)),
    )
