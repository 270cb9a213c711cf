"""The command line. Data goes to stdout, progress and logs to stderr.

Exit codes: 0 fine, 1 a finding that fails the check or a fault outside, 2 wrong use.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from moescope import __version__
from moescope.cli_alerts import alerts
from moescope.cli_arguments import Dsn, Json, missing_extra, parse_duration
from moescope.cli_check import check
from moescope.cli_plan import plan
from moescope.cli_progress import WindowProgress
from moescope.cli_report import report
from moescope.schemas.errors import MoescopeError, UsageError
from moescope.schemas.settings import load_settings
from moescope.schemas.topology import MODEL_SHAPES

app = typer.Typer(
    name="moescope",
    help="Expert-level telemetry for serving large Mixture-of-Experts models.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(report)
app.add_typer(alerts)
app.command()(check)
app.command()(plan)
imports = typer.Typer(name="import", help="Recordings made elsewhere, into the store.", no_args_is_help=True)
app.add_typer(imports)


def run() -> None:
    """Run the command line; every error of ours becomes one line and an exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("urllib3.connectionpool", "clickhouse_connect"):
        # Their warnings are about attempts; how it ended is our one line. clickhouse_connect sets the level
        # of urllib3 itself when it is imported, later than this.
        logging.getLogger(library).setLevel(logging.ERROR + 1)
    try:
        app()
    except MoescopeError as error:
        _fail(error)


def _fail(error: MoescopeError) -> NoReturn:
    print(f"moescope: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"moescope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    data_dir: Annotated[str | None, typer.Option(help="Where the embedded engine keeps its data.")] = None,
    dsn: Annotated[
        str | None, typer.Option(help="Write to this ClickHouse instead of an embedded engine: http://…")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; a token is needed off loopback.")
    ] = None,
    otlp_grpc_port: Annotated[int | None, typer.Option(help="OTLP/gRPC.")] = None,
    otlp_http_port: Annotated[int | None, typer.Option(help="OTLP/HTTP.")] = None,
    sql_port: Annotated[int | None, typer.Option(help="ClickHouse HTTP interface.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="/metrics, /healthz, /readyz.")] = None,
    token_file: Annotated[
        str | None, typer.Option(help="File with the token that clients must send.")
    ] = None,
) -> None:
    """Run the one-machine server: OTLP in, ClickHouse SQL out."""
    try:
        from moescope.server import app as server_app
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope serve", "server") from None
    settings = load_settings(
        data_dir=data_dir,
        host=host,
        otlp_grpc_port=otlp_grpc_port,
        otlp_http_port=otlp_http_port,
        sql_port=sql_port,
        metrics_port=metrics_port,
        token_file=token_file,
    )

    def open_judge(store_dsn: str) -> Any:
        # In the background: the ports answer before the analysis is loaded.
        try:
            from moescope.analysis.fleet_judge import FleetJudge
        except ModuleNotFoundError as error:
            raise missing_extra(error, "the analysis", "server") from None
        return FleetJudge(store_dsn, settings)

    limits: tuple[Any, ...] = ()
    if settings.endpoints_file:
        from moescope.checking.endpoints_file import read_endpoints

        limits = read_endpoints(Path(settings.endpoints_file).expanduser())

    def open_signals(store_dsn: str) -> Any:
        try:
            from moescope.analysis.signals import SignalReader
        except ModuleNotFoundError as error:
            raise missing_extra(error, "the analysis", "server") from None
        return SignalReader(store_dsn, settings, limits)

    server_app.run(settings, dsn=dsn, open_judge=open_judge, open_signals=open_signals)


@app.command()
def demo(
    data_dir: Annotated[
        str | None, typer.Option(help="Where the demo keeps its data; a fresh folder if not given.")
    ] = None,
    ranks: Annotated[int, typer.Option(help="Simulated expert-parallel ranks.", min=1)] = 32,
    open_browser: Annotated[
        bool, typer.Option("--open-browser", help="Open the page when it is there.")
    ] = False,
) -> None:
    """Start the server, a simulated Kimi-K3 fleet that misbehaves, and the dashboard."""
    from moescope.demo import run_demo

    run_demo(load_settings(data_dir=data_dir), ranks=ranks, open_browser=open_browser)


@app.command()
def simulate(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODEL_SHAPES)}.")] = "kimi-k3",
    ranks: Annotated[int, typer.Option(help="Expert-parallel ranks.", min=1)] = 8,
    tensor_parallel: Annotated[
        int,
        typer.Option(
            help="Neighbouring ranks that compute the same tokens; the first of them counts.", min=1
        ),
    ] = 1,
    ep_groups: Annotated[int, typer.Option(help="EP groups of so many ranks each.", min=1)] = 1,
    roles: Annotated[
        str, typer.Option(help="mixed, or disaggregated: half the EP groups prefill, half decode.")
    ] = "mixed",
    redundant_experts: Annotated[
        int | None,
        typer.Option(
            help="Second copies of the most popular experts of each layer; one per rank if one is to die.",
            min=0,
            show_default="0",
        ),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[@START[-END]],…",
            help=(
                "What goes wrong, and from when to when after the start, as in hot-expert,slow-rank@10m-20m: "
                "hot-expert, topic-shift, slow-rank, dead-rank, router-down, kda-pressure, long-context, "
                "prefill-congestion, cache-miss-storm, skewed-clock, duplicate-instance, silent-rank."
            ),
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same counts.")] = 0,
    duration: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="How long; until Ctrl-C if not given. 0s ends with the backfill.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(parser=parse_duration, metavar="TIME", help="Length of a window.", show_default="10s"),
    ] = 10.0,
    speed: Annotated[
        float, typer.Option(help="Simulated seconds per second; with --duration: it ends now.", min=1.0)
    ] = 1.0,
    backfill: Annotated[
        float,
        typer.Option(
            parser=parse_duration, metavar="TIME", help="First emit the past, at once.", show_default="0s"
        ),
    ] = 0.0,
    backfill_interval: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Length of a window of the past.",
            show_default="1m up to an hour, then a 72nd of the backfill",
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="OTLP/gRPC endpoint; OTEL_EXPORTER_OTLP_* otherwise.")
    ] = None,
    service: Annotated[
        str | None, typer.Option(help="Name of the deployment; the model's name otherwise.")
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="Write what was emitted, as JSON.")] = None,
) -> None:
    """Simulate a fleet without GPUs, through the same recorder and exporter as an engine."""
    from moescope.exporters.otlp_config import Protocol, load_otlp_config
    from moescope.simulator.fleet import Fleet
    from moescope.simulator.plan import backfill_interval as window_of_backfill
    from moescope.simulator.plan import make_plan
    from moescope.simulator.run import run_fleet

    plan = make_plan(
        model=model,
        ranks=ranks,
        tensor_parallel=tensor_parallel,
        scenarios=scenario or [],
        seed=seed,
        service=service,
        ep_groups=ep_groups,
        roles=roles,
        redundant_experts=redundant_experts,
    )
    if speed > 1 and duration is None:
        raise UsageError("--speed needs --duration: the run begins so far in the past that it ends now")
    if interval <= 0:
        raise UsageError("--interval: a window has a length; write 1s, 10s or 1m")
    if truth is not None and not truth.absolute().parent.is_dir():
        raise UsageError(f"--truth {truth}: there is no folder {truth.absolute().parent}")
    config = load_otlp_config(endpoint=endpoint, protocol=Protocol.GRPC if endpoint else None)
    with WindowProgress() as progress:
        run_fleet(
            Fleet(plan, config, load_settings()),
            backfill_seconds=backfill,
            backfill_interval_seconds=window_of_backfill(backfill, backfill_interval),
            windows=_windows(duration, interval),
            interval_seconds=interval,
            truth_file=truth,
            progress=progress.show,
            speed=speed,
        )


def _windows(duration: float | None, interval: float) -> int | None:
    """Windows in real time: for ever if None, none for ``0s``, and one at least otherwise."""
    if duration is None:
        return None
    return max(1, round(duration / interval)) if duration else 0


@app.command()
def scrape(
    urls: Annotated[list[str], typer.Argument(metavar="URL…", help="Pages: http://host:8000/metrics.")],
    interval: Annotated[
        float,
        typer.Option(
            parser=parse_duration, metavar="TIME", help="Time between two readings.", show_default="10s"
        ),
    ] = 10.0,
    engine: Annotated[str, typer.Option(help="auto, vllm, sglang or dynamo.")] = "auto",
    service: Annotated[
        str | None, typer.Option(help="Name of the deployment; the model's name otherwise.")
    ] = None,
    role: Annotated[
        str, typer.Option(help="mixed, prefill or decode, where the page does not say.")
    ] = "mixed",
    tensor_parallel: Annotated[int, typer.Option(help="EP ranks of one engine on a page.", min=1)] = 1,
    endpoint: Annotated[
        str | None, typer.Option(help="OTLP/gRPC endpoint; OTEL_EXPORTER_OTLP_* otherwise.")
    ] = None,
    bearer_token_file: Annotated[Path | None, typer.Option(help="Token that the pages ask for.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Read once, print, send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Report what engines say on their /metrics pages, without touching them."""
    try:
        from moescope.scraping.run import scrape_pages
    except ModuleNotFoundError as error:
        raise missing_extra(error, "moescope scrape", "server") from None
    is_complete = scrape_pages(
        urls,
        interval_seconds=interval,
        engine=engine,
        service=service,
        role=role,
        tensor_parallel=tensor_parallel,
        endpoint=endpoint,
        bearer_token_file=bearer_token_file,
        once=once,
        as_json=as_json,
    )
    raise typer.Exit(int(not is_complete))


@imports.command()
def sglang(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Dumps, or folders with them.")],
    service: Annotated[str, typer.Option(help="Name of the deployment.")] = "sglang-recording",
    ep_size: Annotated[
        int | None, typer.Option(help="Expert-parallel ranks; the ranks of the files if not given.", min=1)
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="prefill or decode; needed where the file does not say.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Experts per token; needed where the file does not tell.", min=1)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When the first pass was; up to the time of the dump if not given."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="A window of so long for each pass; one for all if not given.",
        ),
    ] = None,
    keep_identical: Annotated[
        bool, typer.Option("--keep-identical", help="Count blocks of identical routes too.")
    ] = False,
    endpoint: Annotated[
        str | None, typer.Option(help="OTLP/gRPC endpoint; OTEL_EXPORTER_OTLP_* otherwise.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and report; send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Import what SGLang's expert distribution recorder dumped, or {"logical_count": …}."""
    from moescope.importing.run import import_sglang

    with WindowProgress("") as progress:
        is_whole = import_sglang(
            files,
            service=service,
            ep_size=ep_size,
            top_k=top_k,
            phase=phase,
            at=at,
            interval_seconds=interval,
            keep_identical=keep_identical,
            endpoint=endpoint,
            dry_run=dry_run,
            as_json=as_json,
            progress=progress.show,
        )
    raise typer.Exit(int(not is_whole))


@app.command()
def migrate(
    dsn: Dsn = None,
    cluster: Annotated[
        str | None, typer.Option(help="Create everything ON CLUSTER with replicated engines.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is pending and change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show applied and pending migrations of a store, and apply what is pending."""
    from moescope.migrating import run_migrate

    run_migrate(load_settings(dsn=dsn), cluster=cluster, dry_run=dry_run, as_json=as_json)


@app.command()
def dashboard(
    dsn: Dsn = None,
    port: Annotated[int | None, typer.Option(help="Port of the page.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
) -> None:
    """Serve the dashboard."""
    from moescope.demo import run_dashboard

    run_dashboard(load_settings(dsn=dsn, dashboard_port=port, host=host))


@app.command()
def doctor(dsn: Dsn = None, as_json: Json = False) -> None:
    """Say what is wrong with this installation, its hook, its endpoint or its data."""
    from moescope.doctor import run_doctor

    raise typer.Exit(run_doctor(dsn=dsn, as_json=as_json))
