"""``moescope check``: from the words of a command line to an answer and an exit code."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from moescope.analysis.readiness import judge_readiness
from moescope.analysis.readiness_evidence import ReadinessEvidence
from moescope.analysis.readiness_protocol import ReadinessProtocol
from moescope.analysis.readiness_reader import read_evidence
from moescope.analysis.store import open_store
from moescope.checking.junit import as_junit
from moescope.checking.protocol_file import read_protocol
from moescope.checking.recorded import evidence_of_recording
from moescope.checking.report import as_dict, as_text
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings


def run_check(
    file: Path,
    settings: Settings,
    *,
    window_seconds: float | None,
    service: str | None,
    counts: Sequence[Path],
    placement: Path | None,
    phase: str | None,
    top_k: int | None,
    is_strict: bool,
    as_json: bool,
    junit: Path | None,
    width: int,
) -> bool:
    """Read the protocol, gather the evidence, print the answer; whether the deployment is ready.

    Raises:
        ProtocolError: the file is no protocol; the message lists every line that is wrong.
        UsageError: options that make no sense together, or a deployment that is not stored.
        StoreError: the store cannot answer.
    """
    protocol = _with_options(read_protocol(file), window_seconds, service)
    if junit is not None and not junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {junit}: there is no folder {junit.absolute().parent}")
    evidence = (
        _recorded(protocol, settings, counts, placement, phase, top_k)
        if counts
        else _stored(protocol, settings, {"--placement": placement, "--phase": phase, "--top-k": top_k})
    )
    readiness = judge_readiness(protocol, evidence, settings, is_strict=is_strict)
    if junit is not None:
        try:
            junit.write_bytes(as_junit(readiness))
        except OSError as error:
            raise UsageError(f"--junit {junit}: {error.strerror}") from None
    has_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    text = (
        json.dumps(as_dict(readiness), indent=2, ensure_ascii=False, allow_nan=False)
        if as_json
        else as_text(readiness, width, has_colour=has_colour)
    )
    sys.stdout.write(f"{text}\n")
    return readiness.is_ready


def _with_options(
    protocol: ReadinessProtocol, window_seconds: float | None, service: str | None
) -> ReadinessProtocol:
    return dataclasses.replace(
        protocol,
        window_seconds=window_seconds or protocol.window_seconds,
        service=service or protocol.service,
    )


def _stored(
    protocol: ReadinessProtocol, settings: Settings, only_with_counts: dict[str, object]
) -> ReadinessEvidence:
    for option, value in only_with_counts.items():
        if value is not None:
            raise UsageError(f"{option} belongs to a recording; give it with --from-counts")
    store = open_store(settings.dsn)
    try:
        return read_evidence(store, protocol, settings)
    finally:
        store.close()


def _recorded(  # noqa: PLR0917 - the options of one command
    protocol: ReadinessProtocol,
    settings: Settings,
    counts: Sequence[Path],
    placement: Path | None,
    phase: str | None,
    top_k: int | None,
) -> ReadinessEvidence:
    if phase is not None and phase not in set(Phase):
        raise UsageError(f"--phase {phase}: use one of {', '.join(Phase)}")
    return evidence_of_recording(
        counts,
        protocol,
        settings,
        placement_file=placement,
        phase=None if phase is None else Phase(phase),
        top_k=top_k,
    )
