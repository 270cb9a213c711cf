"""Whether the SGLang that is installed is the one that the hooks were written for."""

from __future__ import annotations

import functools
import logging
import multiprocessing
from typing import Final

from moescope.schemas.engines import SGLANG_SUPPORTED_VERSION

logger = logging.getLogger("moescope")

_NUMBERS: Final = SGLANG_SUPPORTED_VERSION.split(".")


def installed_version() -> str:
    """The version that SGLang gives of itself."""
    from sglang.version import __version__  # noqa: PLC0415 - engines are imported where they are there

    return str(__version__)


def is_supported_version() -> bool:
    """Whether it is; said once per process where it is not."""
    version = installed_version()
    if version.split(".")[: len(_NUMBERS)] == _NUMBERS:
        return True
    warn_about(version)
    return False


@functools.cache
def warn_about(version: str) -> None:
    """Say that this version is left alone, and the way out."""
    # The plug-in loads in every process of an engine; the first one says it for all.
    level = logging.WARNING if multiprocessing.parent_process() is None else logging.DEBUG
    logger.log(
        level,
        "moescope: this release watches SGLang %s and leaves SGLang %s alone. "
        "Install the moescope release made for it, or set MOESCOPE_ENABLED=0 to silence this",
        SGLANG_SUPPORTED_VERSION,
        version,
    )
