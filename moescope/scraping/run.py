"""Scrape pages until asked to stop, or look at them once."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from moescope import __version__
from moescope.collector.scrape.tables import TABLES
from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import OtlpConfig, Protocol, load_otlp_config
from moescope.schemas.attributes import Role
from moescope.schemas.errors import StoreUnavailableError, UsageError
from moescope.schemas.settings import load_settings
from moescope.scraping.fetch import Address, parse_address
from moescope.scraping.once import as_text, read_once
from moescope.scraping.target import ScrapePlan, Target, service_of_environment

logger = logging.getLogger("moescope")

_LONGEST_TIMEOUT_SECONDS = 10.0


def scrape_pages(
    urls: Sequence[str],
    *,
    interval_seconds: float,
    engine: str,
    service: str | None,
    role: str,
    tensor_parallel: int,
    endpoint: str | None,
    bearer_token_file: Path | None,
    once: bool,
    as_json: bool,
) -> bool:
    """Do what ``moescope scrape`` is asked; False where a page could not be read once.

    Raises:
        UsageError: an argument that makes no sense.
        StoreUnavailableError: see :func:`run_scrape`.
    """
    if interval_seconds <= 0:
        raise UsageError("--interval: there is time between two readings; write 5s, 10s or 1m")
    if as_json and not once:
        raise UsageError("--json prints what was read, which needs --once")
    plan = ScrapePlan(
        settings=load_settings(),
        interval_seconds=interval_seconds,
        timeout_seconds=min(interval_seconds, _LONGEST_TIMEOUT_SECONDS),
        engine="" if engine == "auto" else _one_of("--engine", engine, [*TABLES], "auto"),
        service=service or service_of_environment(),
        role=Role(_one_of("--role", role, [*Role])),
        tensor_parallel=tensor_parallel,
    )
    token = _read_token(bearer_token_file)
    addresses = [parse_address(url, token) for url in dict.fromkeys(urls)]
    if once:
        answer = read_once(addresses, plan)
        sys.stdout.write((json.dumps(answer, indent=2) if as_json else as_text(answer)) + "\n")
        return not answer["errors"]
    config = load_otlp_config(endpoint=endpoint, protocol=Protocol.GRPC if endpoint else None)
    run_scrape(addresses, plan, config)
    return True


def _one_of(option: str, word: str, known: Sequence[str], *others: str) -> str:
    if word not in known:
        raise UsageError(f"{option} {word}: use one of {', '.join([*others, *known])}")
    return word


def _read_token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"--bearer-token-file {path}: {error.strerror}") from None


def run_scrape(addresses: Sequence[Address], plan: ScrapePlan, config: OtlpConfig) -> None:
    """Scrape every page, each on a thread of its own, until Ctrl-C or SIGTERM.

    Raises:
        StoreUnavailableError: the end came and the endpoint had not acknowledged everything.
    """
    targets = [
        Target(address, plan, lambda who: OtlpExporter(who, config, version=__version__))
        for address in addresses
    ]
    stop = threading.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: stop.set())
    threads = [
        threading.Thread(target=_keep_scraping, args=(target, stop), name="moescope-scrape", daemon=True)
        for target in targets
    ]
    for thread in threads:
        thread.start()
    stop.wait()
    for thread in threads:
        thread.join(plan.timeout_seconds)
    closed = [target.close() for target in targets]  # each one, come what may
    if not all(closed):
        raise StoreUnavailableError(
            "the endpoint did not acknowledge the last windows. Check --endpoint, or start one with: "
            "moescope serve"
        )


def _keep_scraping(target: Target, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            target.scrape()
        except Exception:
            logger.exception("moescope: %s could not be read; trying on", target.address.url)
        stop.wait(target.pause_seconds(time.time()))
