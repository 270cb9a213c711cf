"""What ``moescope plan`` prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

from moescope.analysis.plan_report import PlanReport
from moescope.analysis.plan_result import PlanResult
from moescope.exporters.placement_files import EngineFormat, describe_start, render_placement
from moescope.planning.request import OutputFormat
from moescope.schemas.errors import PlacementError, UsageError
from moescope.schemas.topology import Placement


def render_plan(plan: PlanResult, output_format: OutputFormat, width: int) -> str:
    """The plan in one of the formats, with a line break at its end.

    Raises:
        UsageError: the engine could not be served from it.
    """
    report = PlanReport(plan)
    if output_format is OutputFormat.TEXT:
        return report.to_text(width) + "\n"
    if output_format is OutputFormat.JSON:
        return json.dumps(report.to_dict(), indent=None, allow_nan=False) + "\n"
    placement, layers = rows_for_engine(plan, output_format)
    try:
        return render_placement(placement, EngineFormat(output_format.value), layers)
    except PlacementError as error:
        raise UsageError(f"--format {output_format}: {error}") from None


def rows_for_engine(plan: PlanResult, output_format: OutputFormat) -> tuple[Placement, list[int]]:
    """The rows that an engine's file has, and their layers.

    vLLM and TensorRT-LLM name MoE layers only. A layer in which nothing was routed is a dense one of a
    recording of all layers; SGLang's file has a row for it.
    """
    rows = list(range(len(plan.layers)))
    if output_format in {OutputFormat.VLLM, OutputFormat.TRTLLM} and plan.tokens.any():
        rows = [row for row in rows if plan.tokens[row].any()]
    placement = plan.placement
    kept = Placement(placement.physical_to_logical_map[rows], placement.ep_size, placement.num_experts)
    return kept, [int(plan.layers[row]) for row in rows]


def write_file(path: Path, text: str) -> None:
    """Write it whole.

    Raises:
        UsageError: it cannot be written there.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror or error}") from None


def say_next_step(plan: PlanResult, output_format: OutputFormat, path: Path) -> str:
    """How the engine is started with the file; empty where it is no engine's."""
    if not output_format.is_engine:
        return ""
    placement, _ = rows_for_engine(plan, output_format)
    return describe_start(placement, EngineFormat(output_format.value), str(path))
