"""``moescope check``: is a deployment ready, by a protocol in a file?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moescope.cli_arguments import Dsn, Json, missing_extra, parse_window, text_width
from moescope.schemas.settings import load_settings


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The readiness protocol, YAML.")],
    dsn: Dsn = None,
    window: Annotated[
        float | None,
        typer.Option(
            parser=parse_window,
            metavar="TIME",
            help="How far to look back.",
            show_default="the file's window, or 15m",
        ),
    ] = None,
    service: Annotated[str | None, typer.Option(help="Deployment; the file's, or the only one.")] = None,
    from_counts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Judge recorded expert counts, as `moescope import` takes them, and no store.",
        ),
    ] = None,
    placement: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --from-counts: where the experts are, in an engine's format."
        ),
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="With --from-counts: prefill or decode, where the file does not say.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="With --from-counts: experts per token, likewise.", min=1)
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="What cannot be checked counts as failed.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML too, for a CI system.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a deployment against a readiness protocol; fail where it does not hold."""
    try:
        from moescope.checking.run import run_check
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope check", "dashboard") from None
    is_ready = run_check(
        file,
        load_settings(dsn=dsn),
        window_seconds=window,
        service=service,
        counts=from_counts or [],
        placement=placement,
        phase=phase,
        top_k=top_k,
        is_strict=strict,
        as_json=as_json,
        junit=junit,
        width=text_width(),
    )
    raise typer.Exit(int(not is_ready))
