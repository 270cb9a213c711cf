"""What engines' plug-in loaders call. Nothing here may raise, and nothing is imported when it is off."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("moescope")


def load_vllm() -> None:
    """Entry point ``vllm.general_plugins``: watch the workers that this process makes.

    vLLM calls it in its front end, its engine core and every worker, perhaps more than once. With
    ``MOESCOPE_ENABLED=0`` or ``OTEL_SDK_DISABLED=true`` it does nothing.
    """
    try:
        from moescope.api import is_switched_off  # noqa: PLC0415 - an engine must start without it

        if is_switched_off():
            return
        from moescope.collector.hooks import vllm as hook  # noqa: PLC0415 - torch and vLLM are there by now

        hook.install(_make_recorder)
    except Exception:
        logger.exception("moescope: could not be loaded; vLLM goes on without it")


def _make_recorder(*args: Any, **kwargs: Any) -> Any:
    from moescope.api import make_recorder  # noqa: PLC0415 - only a worker needs the exporter

    return make_recorder(*args, **kwargs)
