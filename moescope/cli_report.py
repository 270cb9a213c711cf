"""``moescope report``: the answers of the analysis, in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from moescope.cli_arguments import (
    Contexts,
    Dsn,
    Json,
    Limit,
    Service,
    Window,
    missing_extra,
    parse_contexts,
    text_width,
)
from moescope.schemas.settings import Settings, load_settings

report = typer.Typer(name="report", help="The answers of the analysis, in a terminal.", no_args_is_help=True)


@report.command()
def hotspots(
    dsn: Dsn = None,
    window: Window = 900.0,
    service: Service = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Name the experts that are hot, ranked by the harm they do."""
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, settings: reports.hotspots(
            store, window_seconds=window, settings=settings, service=service, limit=limit
        ),
    )


@report.command()
def imbalance(
    dsn: Dsn = None,
    window: Window = 900.0,
    service: Service = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show max/mean rank load per layer, net of noise and over time; idle and activated experts; drift."""
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, settings: reports.imbalance(
            store, window_seconds=window, settings=settings, service=service, limit=limit
        ),
    )


@report.command()
def latency(dsn: Dsn = None, window: Window = 900.0, service: Service = None, as_json: Json = False) -> None:
    """Show TTFT, TPOT, ITL, queue, end to end, dispatch and steps; fail where the contract is missed."""
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, settings: reports.latency(
            store, window_seconds=window, settings=settings, service=service
        ),
    )


@report.command()
def memory(
    dsn: Dsn = None,
    window: Window = 900.0,
    service: Service = None,
    context: Contexts = None,
    as_json: Json = False,
) -> None:
    """Show pools, KDA slots and MLA blocks, which ends first, and who still fits; fail where one is full."""
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, settings: reports.memory(
            store,
            window_seconds=window,
            settings=settings,
            service=service,
            contexts=parse_contexts(context or []),
        ),
    )


@report.command()
def traffic(
    dsn: Dsn = None,
    window: Window = 900.0,
    service: Service = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show what each rank sends to each other one, and whom it waits for."""
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, _: reports.traffic(store, window_seconds=window, service=service, limit=limit),
    )


@report.command()
def failover(
    dsn: Dsn = None,
    window: Window = 900.0,
    service: Service = None,
    rank: Annotated[int | None, typer.Option(help="The EP rank that fails.", min=0)] = None,
    node: Annotated[str | None, typer.Option(help="The machine that fails, with all ranks on it.")] = None,
    expert: Annotated[
        int | None, typer.Option(help="The worker that holds this expert fails.", min=0)
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Layer whose copy of --expert is meant; all of them if not given.", min=0),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="reassign_to_redundant_worker, block or fallback_expert; all three if not given."),
    ] = None,
    slow: Annotated[
        float | None, typer.Option(help="The rank does not fail, it takes so many times as long.")
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Say what is lost with a rank, a node or the worker that holds an expert, and who takes over.

    Fails where one rank takes more of the traffic with it than MOESCOPE_FAILOVER_LOST_SHARE.
    """
    question = {
        "rank": rank,
        "node": node,
        "expert": expert,
        "layer": layer,
        "strategy": strategy,
        "times_slower": slow,
    }
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, settings: reports.failover(
            store, question, window_seconds=window, settings=settings, service=service, limit=limit
        ),
    )


@report.command()
def stragglers(
    dsn: Dsn = None,
    window: Window = 900.0,
    service: Service = None,
    limit: Limit = 8,
    as_json: Json = False,
) -> None:
    """Name the ranks, links and nodes that the others wait for, and why; fail where there is one."""
    _print_report(
        dsn,
        service,
        as_json,
        lambda reports, store, settings: reports.stragglers(
            store, window_seconds=window, settings=settings, service=service, limit=limit
        ),
    )


@report.command()
def quality(dsn: Dsn = None, service: Service = None, as_json: Json = False) -> None:
    """Show whether the numbers can be believed: silent ranks, missing counts, reconciliation."""
    _print_report(dsn, service, as_json, lambda reports, store, _: reports.quality(store, service=service))


def _print_report(
    dsn: str | None, service: str | None, as_json: bool, make: Callable[[Any, Any, Settings], Any]
) -> None:
    try:
        from moescope.analysis import report as reports
        from moescope.analysis.span import check_service
        from moescope.analysis.store import open_store
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope report", "dashboard") from None
    settings = load_settings(dsn=dsn)
    store = open_store(settings.dsn)
    check_service(store, service)
    answer = make(reports, store, settings)
    print(json.dumps(answer.to_dict(), indent=2) if as_json else answer.to_text(text_width()))
    raise typer.Exit(int(answer.has_problem))
