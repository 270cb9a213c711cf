"""``moescope import sglang``: from the words of a command line to a store and a report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moescope import __version__
from moescope.collector.recordings.sglang import list_files, read_sglang
from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import Protocol, load_otlp_config
from moescope.importing.emit import Layout, emit
from moescope.importing.plan import ImportPlan, make_import_plan
from moescope.importing.report import as_text, report_of
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings, load_settings

_NS: Final = 1_000_000_000
_LAST_TRY_TIMES: Final = 6
"""The endpoint may restart meanwhile: it gets several times the usual time-out."""


def import_sglang(
    paths: Sequence[Path],
    *,
    service: str,
    ep_size: int | None,
    top_k: int | None,
    phase: str | None,
    at: str | None,
    interval_seconds: float | None,
    keep_identical: bool,
    endpoint: str | None,
    dry_run: bool,
    as_json: bool,
    progress: Callable[[str, int, int | None], None],
) -> bool:
    """Read a recording, send it and print the report; False where the store rejected some of it.

    Raises:
        RecordingError: see :func:`moescope.collector.recordings.sglang.read_sglang`.
        UsageError: an argument that makes no sense, or a time that the store would refuse.
        StoreUnavailableError: the endpoint did not acknowledge a window.
    """
    if phase is not None and phase not in set(Phase):
        raise UsageError(f"--phase {phase}: use one of {', '.join(Phase)}")
    if interval_seconds is not None and interval_seconds <= 0:
        raise UsageError("--interval: a pass takes its time; write 100ms or 1s")
    settings = load_settings()
    files = list_files(paths)
    plan = make_import_plan(
        read_sglang(
            files,
            keeps_identical=keep_identical,
            progress=lambda done: progress("reading files", done, len(files)),
        ),
        files,
        service=service,
        ep_size=ep_size,
        top_k=top_k,
        phase=None if phase is None else Phase(phase),
        keeps_identical=keep_identical,
    )
    layout = _layout(plan, files, at, interval_seconds, settings)
    _refuse_times_that_no_store_takes(layout, len(plan.passes), settings)
    is_whole = True
    if not dry_run:
        config = load_otlp_config(endpoint=endpoint, protocol=Protocol.GRPC if endpoint else None)
        is_whole = emit(
            plan,
            layout,
            ep_group=settings.ep_group,
            make_exporter=lambda who: OtlpExporter(who, config, version=__version__),
            timeout_seconds=_LAST_TRY_TIMES * settings.flush_timeout_seconds,
            progress=progress,
        )
    report = report_of(plan, layout, files, is_sent=not dry_run)
    sys.stdout.write((json.dumps(report, indent=2) if as_json else as_text(report)) + "\n")
    return is_whole


def _layout(
    plan: ImportPlan,
    files: Sequence[Path],
    at: str | None,
    interval_seconds: float | None,
    settings: Settings,
) -> Layout:
    """From ``--at`` on; without it up to the time of the dump, which is the same each time."""
    interval_ns = round((interval_seconds or settings.interval_seconds) * _NS)
    layout = Layout(start_ns=0, interval_ns=interval_ns, has_window_per_pass=interval_seconds is not None)
    if at is not None:
        start_ns = _parse_time(at)
    else:
        made = plan.recording.made_seconds or max(path.stat().st_mtime for path in files)
        start_ns = round(made * _NS) - layout.end_ns(len(plan.passes))
    return Layout(start_ns=start_ns, interval_ns=interval_ns, has_window_per_pass=layout.has_window_per_pass)


def _parse_time(text: str) -> int:
    if text == "now":
        return time.time_ns()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--at {text}: write 2026-11-29T12:00:00 (UTC unless it says otherwise), or now"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * _NS)


def _refuse_times_that_no_store_takes(layout: Layout, passes: int, settings: Settings) -> None:
    now_ns = time.time_ns()
    is_old = layout.start_ns < now_ns - settings.max_age_seconds * _NS
    is_ahead = layout.end_ns(passes) > now_ns + settings.max_future_seconds * _NS
    if is_old or is_ahead:
        first, last = (datetime.fromtimestamp(t / _NS, UTC) for t in (layout.start_ns, layout.end_ns(passes)))
        raise UsageError(
            f"the passes would lie between {first:%Y-%m-%d %H:%M:%S} and {last:%Y-%m-%d %H:%M:%S} UTC, which "
            "is too far in the past or in the future for the store; say when they shall begin with --at, or "
            "give a shorter --interval"
        )
