"""From the words of a command line to a plan, and from a plan to what is printed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import numpy as np

from moescope.analysis.plan_result import PlanResult
from moescope.analysis.replication import CoverNodes
from moescope.analysis.store import open_store
from moescope.planning.amounts import parse_bytes, parse_move_limit, parse_slots
from moescope.planning.counts_file import read_counts_file
from moescope.planning.load import PlanLoad
from moescope.planning.make import Progress, make_plan
from moescope.planning.output import render_plan, say_next_step, write_file
from moescope.planning.request import OutputFormat, PlanRequest
from moescope.planning.stored_load import STORED_WINDOWS, Whose, read_stored_load, seconds_of_each
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import UsageError
from moescope.schemas.settings import Settings

_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of ``moescope plan`` as they were written."""

    window_seconds: float
    until_ms: int | None
    windows: int | None
    service: str | None
    ep_group: str | None
    phase: str | None
    from_counts: Path | None
    first_layer: int
    ranks: int | None
    redundant_experts: int | None
    slots_per_rank: str | None
    max_moved: str | None
    memory_budget: str | None
    expert_bytes: str | None
    nodes: int | None
    expert_groups: int
    cover_nodes: str
    current: Path | None
    time_budget_seconds: float
    uneven_split: bool
    output_format: str


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan, and in which format it is asked for."""

    result: PlanResult
    output_format: OutputFormat


def plan(settings: Settings, options: Options, progress: Progress) -> MadePlan:
    """Read the load and plan.

    Raises:
        UsageError: options that exclude each other, or a file that is none; the message names them.
        StoreError: the store cannot answer.
    """
    request = _request(options)
    load = _read_load(settings, options)
    return MadePlan(make_plan(load, request, _once(progress)), request.output_format)


def print_plan(made: MadePlan, *, as_json: bool, output: Path | None, width: int) -> None:
    """Write the format to ``output`` and the report to stdout; or the format to stdout.

    Raises:
        UsageError: ``--json`` beside an engine's format, or a file that cannot be written.
    """
    wanted = made.output_format
    if output is not None:
        write_file(output, render_plan(made.result, wanted, width))
        shown = OutputFormat.JSON if as_json else OutputFormat.TEXT
        sys.stdout.write(render_plan(made.result, shown, width))
        _say_next_step(made, output)
        return
    if as_json and wanted.is_engine:
        raise UsageError(f"--json prints the report; write what --format {wanted} makes with --output FILE")
    sys.stdout.write(render_plan(made.result, OutputFormat.JSON if as_json else wanted, width))
    if wanted.is_engine:
        sys.stderr.write(f"{made.result.advice.sentence}\n")
        _say_next_step(made, Path("FILE"))


def _once(progress: Progress) -> Progress:
    """The same, told nothing twice."""
    told: set[tuple[str, int, int | None]] = set()

    def tell(what: str, done: int, total: int | None) -> None:
        if (what, done, total) not in told:
            told.add((what, done, total))
            progress(what, done, total)

    return tell


def _say_next_step(made: MadePlan, path: Path) -> None:
    """Progress, so to say: what to do with the file is neither the report nor the file."""
    text = say_next_step(made.result, made.output_format, path)
    if text:
        sys.stderr.write(f"Start the engine with: {text}\n")


def _request(options: Options) -> PlanRequest:
    slots = options.slots_per_rank
    return PlanRequest(
        ranks=options.ranks,
        redundant_experts=options.redundant_experts,
        slots_per_rank=None if slots is None else parse_slots(slots, options.ranks),
        max_moved=None if options.max_moved is None else parse_move_limit(options.max_moved),
        memory_budget_bytes=_bytes("--memory-budget", options.memory_budget),
        expert_bytes=_bytes("--expert-bytes", options.expert_bytes),
        nodes=options.nodes,
        expert_groups=options.expert_groups,
        cover_nodes=_word(CoverNodes, "--cover-nodes", options.cover_nodes),
        current_file=options.current,
        windows=options.windows,
        time_budget_seconds=options.time_budget_seconds,
        is_split_uneven=options.uneven_split,
        output_format=_word(OutputFormat, "--format", options.output_format),
    )


def _read_load(settings: Settings, options: Options) -> PlanLoad:
    if options.from_counts is not None:
        _refuse_store_options(options)
        load = read_counts_file(options.from_counts)
        return replace(load, layers=load.layers + np.int64(options.first_layer))
    if options.first_layer:
        raise UsageError("--first-layer is for --from-counts; a store knows its layers")
    whose = Whose(
        service=options.service,
        ep_group=options.ep_group,
        phase=None if options.phase is None else _word(Phase, "--phase", options.phase).value,
    )
    count = options.windows or STORED_WINDOWS
    seconds = seconds_of_each(options.window_seconds, count)
    store = open_store(settings.dsn)
    try:
        return read_stored_load(
            store, settings, whose, window_seconds=seconds, count=count, end_ms=options.until_ms
        )
    finally:
        store.close()


def _refuse_store_options(options: Options) -> None:
    for name in ("service", "ep_group", "phase", "until"):
        if getattr(options, "until_ms" if name == "until" else name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for a store; leave it out with --from-counts")


def _bytes(option: str, text: str | None) -> float | None:
    return None if text is None else parse_bytes(option, text)


def _word(words: type[_Word], option: str, text: str) -> _Word:
    try:
        return words(text)
    except ValueError:
        raise UsageError(f"{option} {text}: use one of {', '.join(words)}") from None
