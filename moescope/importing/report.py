"""What was imported, what was left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from moescope.importing.emit import Layout
from moescope.importing.plan import ImportPlan
from moescope.schemas.attributes import Phase

_NS: Final = 1_000_000_000


def report_of(plan: ImportPlan, layout: Layout, files: Sequence[Path], *, is_sent: bool) -> dict[str, Any]:
    """The answer of ``moescope import``, the shape of its ``--json``."""
    recording = plan.recording
    passes = len(plan.passes)
    return {
        "files": [str(path) for path in files],
        "kind": recording.kind,
        "service": plan.shape.name,
        "instance": f"import:{plan.digest}:0",
        "is_sent": is_sent,
        "start": _iso(layout.start_ns),
        "end": _iso(layout.end_ns(passes)),
        "windows": layout.windows(passes),
        "passes": passes,
        "tokens": {phase.value: plan.tokens(phase) for phase in Phase},
        "assignments": plan.assignments(),
        "layers": plan.shape.num_layers,
        "moe_layers": plan.shape.num_moe_layers,
        "dense_layers": list(plan.dense_layers),
        "experts": plan.shape.num_experts,
        "slots": int(plan.placement.physical_to_logical_map.shape[1]),
        "top_k": plan.shape.top_k,
        "is_top_k_inferred": plan.is_top_k_inferred,
        "ep_size": plan.ep_size,
        "ranks": list(recording.ranks),
        "left_out": {
            "warmup_tokens": plan.warmup_tokens,
            "warmup_passes": plan.warmup_passes,
            **{name.replace(" ", "_"): count for name, count in recording.left_out.items() if count},
        },
        "remarks": list(plan.remarks),
    }


def as_text(report: dict[str, Any]) -> str:
    """The report for a person."""
    left_out = {name.replace("_", " "): count for name, count in report["left_out"].items() if count}
    tokens = ", ".join(f"{count:,} {phase}" for phase, count in report["tokens"].items())
    top_k = f"top-{report['top_k']}{' (inferred from the sums)' if report['is_top_k_inferred'] else ''}"
    lines = [
        f"{report['kind']}, {len(report['files'])} file(s), service {report['service']}",
        f"  {report['passes']} passes in {report['windows']} window(s), {report['start']} to {report['end']}",
        f"  tokens: {tokens}; {report['assignments']:,} assignments",
        f"  {report['moe_layers']} MoE layers of {report['layers']}, {report['experts']} experts, {top_k}",
        f"  {report['slots']} slots on {report['ep_size']} rank(s)",
    ]
    if report["dense_layers"]:
        lines.append(f"  dense, without counts: layer {', '.join(map(str, report['dense_layers']))}")
    lines += [f"  left out: {count:,} {name}" for name, count in left_out.items()]
    lines += [f"  note: {remark}" for remark in report["remarks"]]
    lines.append("  sent" if report["is_sent"] else "  not sent: --dry-run")
    return "\n".join(lines)


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / _NS, UTC).isoformat(timespec="milliseconds")
