"""Options that several commands share, and how arguments are read."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from moescope.schemas.errors import MissingExtraError, UsageError

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(ms|s|m|h|d)?", re.ASCII)
_TOKENS: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)")
_TIMES: Final = {"": 1, "k": 1024, "m": 1024**2}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def parse_duration(text: str | float) -> float:
    """Read a span of time: ``90s``, ``15m``, ``24h``, ``1.5`` (seconds).

    Returns:
        seconds.

    Raises:
        typer.BadParameter: the text is no span of time.
    """
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no span of time; write 90s, 15m, 6h or 2d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_window(text: str | float) -> float:
    """Read how far to look back.

    Returns:
        seconds, above 0.

    Raises:
        typer.BadParameter: the text is no span of time, or none at all.
    """
    seconds = parse_duration(text)
    if not seconds:
        raise typer.BadParameter(f"{text!r} looks back over nothing; write 90s, 15m, 6h or 2d")
    return seconds


def parse_time(text: str | int) -> int:
    """Read a point in time: ``2026-03-01T12:30:00Z``, with another offset, or UTC where none is written.

    Returns:
        Unix milliseconds.

    Raises:
        typer.BadParameter: the text is no point in time.
    """
    try:
        moment = datetime.fromisoformat(str(text).strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no point in time; write 2026-03-01T12:30:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_contexts(texts: Iterable[str]) -> tuple[int, ...]:
    """Read lengths of contexts: ``32k``, ``1M`` (powers of 1024), ``50000``; several, or with commas.

    Returns:
        tokens, each once, in the order in which they were said.

    Raises:
        UsageError: the text is no number of tokens.
    """
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    return tuple(dict.fromkeys(_tokens(word) for word in words))


def _tokens(word: str) -> int:
    match = _TOKENS.fullmatch(word)
    tokens = int(float(match[1]) * _TIMES[match[2].lower()]) if match else 0
    if tokens < 1:
        raise UsageError(f"--context {word!r} is no number of tokens; write 8k, 128k, 1M or 50000")
    return tokens


def text_width() -> int:
    """Columns for text: the terminal's, and 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 140) if sys.stdout.isatty() else 100


def missing_extra(error: ModuleNotFoundError, part: str, extra: str) -> Exception:
    """The error to raise where a package of an extra is not there; a fault of our own stays what it is."""
    if error.name is not None and error.name.startswith("moescope"):
        return error
    return MissingExtraError(part, extra)


Dsn = Annotated[
    str | None,
    typer.Option("--dsn", help="Store: http(s)://host:port/database or chdb:///path.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
Window = Annotated[
    float,
    typer.Option(
        "--window", parser=parse_window, metavar="TIME", help="How far to look back.", show_default="15m"
    ),
]
Limit = Annotated[int, typer.Option(help="Most rows to show.", min=1)]
Service = Annotated[str | None, typer.Option(help="Deployment; needed only where there are several.")]
Contexts = Annotated[
    list[str] | None,
    typer.Option(
        "--context",
        metavar="TOKENS,…",
        help="Prompt and output of the requests that are to fit: 32k, 1M, 50000.",
        show_default="8k,128k,1M",
    ),
]
