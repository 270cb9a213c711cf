"""Whether the vLLM that is installed is the one that the hooks were written for."""

from __future__ import annotations

import functools
import logging
import multiprocessing
from typing import Final

from moescope.schemas.engines import VLLM_SUPPORTED_VERSION

logger = logging.getLogger("moescope")

_MAJOR_AND_MINOR: Final = VLLM_SUPPORTED_VERSION.split(".")


def is_supported_version() -> bool:
    """Whether it is; said once per process where it is not."""
    import vllm  # noqa: PLC0415 - engines are imported where they are there

    if vllm.__version__.split(".")[:2] == _MAJOR_AND_MINOR:
        return True
    warn_about(vllm.__version__)
    return False


@functools.cache
def warn_about(version: str) -> None:
    """Say that this version is left alone, and the way out."""
    # The plug-ins load in every process of an engine; the first one says it for all.
    level = logging.WARNING if multiprocessing.parent_process() is None else logging.DEBUG
    logger.log(
        level,
        "moescope: this release watches vLLM %s.x and leaves vLLM %s alone. "
        "Install the moescope release made for it, or set MOESCOPE_ENABLED=0 to silence this",
        VLLM_SUPPORTED_VERSION,
        version,
    )
