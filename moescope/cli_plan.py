"""``moescope plan``: where the copies of the experts should go, and whether that is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moescope.cli_arguments import (
    Dsn,
    Json,
    Service,
    missing_extra,
    parse_duration,
    parse_time,
    parse_window,
    text_width,
)
from moescope.cli_progress import WindowProgress
from moescope.schemas.settings import load_settings


def plan(
    dsn: Dsn = None,
    window: Annotated[
        float,
        typer.Option(parser=parse_window, metavar="TIME", help="How far to look back.", show_default="1h"),
    ] = 3600.0,
    until: Annotated[
        int | None,
        typer.Option(
            parser=parse_time,
            metavar="TIME",
            help="Look back from then, as in 2026-03-01T12:30:00Z.",
            show_default="what is newest",
        ),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(
            help="Parts of that time, to forecast and to back-test; of a file: parts for its steps.",
            min=1,
            show_default="6",
        ),
    ] = None,
    service: Service = None,
    ep_group: Annotated[str | None, typer.Option(help="Needed only where there are several.")] = None,
    phase: Annotated[
        str | None, typer.Option(help="prefill or decode; both together if not given, as they share experts.")
    ] = None,
    from_counts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Plan from {"logical_count": …}, an .npy or a dump of SGLang\'s recorder, not from a store.',
        ),
    ] = None,
    first_layer: Annotated[
        int, typer.Option(help="The model's layer index of the file's first row.", min=0)
    ] = 0,
    ranks: Annotated[
        int | None, typer.Option(help="Expert-parallel ranks.", min=1, show_default="as stored")
    ] = None,
    redundant_experts: Annotated[
        int | None,
        typer.Option(help="Slots of a layer beyond one per expert.", min=0, show_default="as now"),
    ] = None,
    slots_per_rank: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Slots of each rank in a layer, where they differ.")
    ] = None,
    max_moved: Annotated[
        str | None,
        typer.Option(metavar="2%|40GB", help="Change the current placement, and move no more than this."),
    ] = None,
    memory_budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What the experts on one rank may take, as in 80GB.")
    ] = None,
    expert_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of one expert of one layer.", show_default="as stored"),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="Nodes, each with consecutive ranks.", min=1, show_default="as stored"),
    ] = None,
    expert_groups: Annotated[
        int, typer.Option(help="Groups of experts that stay on one node each (n_group of the model).", min=1)
    ] = 1,
    cover_nodes: Annotated[
        str, typer.Option(help="Second copies on another node: none, hot or all, as far as slots go.")
    ] = "none",
    current: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The placement as it is now: of this command, vLLM, SGLang or TensorRT-LLM.",
            show_default="as stored",
        ),
    ] = None,
    time_budget: Annotated[
        float,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Time for the search; twice it with a back-test.",
            show_default="20s",
        ),
    ] = 20.0,
    uneven_split: Annotated[
        bool, typer.Option("--uneven-split", help="Say too what an uneven split over copies would reach.")
    ] = False,
    output_format: Annotated[
        str, typer.Option("--format", help="text, json, vllm, sglang or trtllm.")
    ] = "text",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the format there, and the report to stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan the copies of experts; say what it moves and what it brought on past windows."""
    try:
        from moescope.planning import command
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope plan", "server") from None
    with WindowProgress("") as progress:
        made = command.plan(
            load_settings(dsn=dsn),
            command.Options(
                window_seconds=window,
                until_ms=until,
                windows=windows,
                service=service,
                ep_group=ep_group,
                phase=phase,
                from_counts=from_counts,
                first_layer=first_layer,
                ranks=ranks,
                redundant_experts=redundant_experts,
                slots_per_rank=slots_per_rank,
                max_moved=max_moved,
                memory_budget=memory_budget,
                expert_bytes=expert_bytes,
                nodes=nodes,
                expert_groups=expert_groups,
                cover_nodes=cover_nodes,
                current=current,
                time_budget_seconds=time_budget,
                uneven_split=uneven_split,
                output_format=output_format,
            ),
            progress.show,
        )
    command.print_plan(made, as_json=as_json, output=output, width=text_width())
