"""What engines' plug-in loaders call. Nothing here may raise, and nothing is imported when it is off."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moescope.collector.hooks.vllm_requests import RequestWatch

logger = logging.getLogger("moescope")


def load_vllm() -> None:
    """Entry point ``vllm.general_plugins``: watch the engines and workers that this process makes.

    vLLM calls it in its front end, its engine core and every worker, perhaps more than once. With
    ``MOESCOPE_ENABLED=0`` or ``OTEL_SDK_DISABLED=true`` it does nothing.
    """
    try:
        from moescope.api import is_switched_off  # noqa: PLC0415 - an engine must start without it
        from moescope.schemas.settings import load_engine_settings  # noqa: PLC0415 - same

        settings = load_engine_settings()
        if is_switched_off(settings):
            return
        from moescope.collector.hooks import vllm as hook  # noqa: PLC0415 - torch and vLLM are there by now
        from moescope.collector.hooks import vllm_caches, vllm_offline, vllm_policy  # noqa: PLC0415 - same

        if hook.install(_make_recorder):
            vllm_caches.install(_make_process_recorder)
            vllm_offline.install(_make_stat_logger)
            vllm_policy.install(settings.placement_file)
    except Exception:
        logger.exception("moescope: could not be loaded; vLLM goes on without it")


def load_sglang() -> None:
    """Entry point ``sglang.srt.plugins``: watch what this process of SGLang becomes.

    SGLang calls it in its front end, its detokenizer and every scheduler, before it loads anything else.
    With ``MOESCOPE_ENABLED=0`` or ``OTEL_SDK_DISABLED=true`` it does nothing.
    """
    try:
        from moescope.api import is_switched_off  # noqa: PLC0415 - an engine must start without it

        if is_switched_off():
            return
        from moescope.collector.hooks import sglang as hook  # noqa: PLC0415 - torch and SGLang are there by now

        hook.install(_make_recorder, _make_process_recorder)
    except Exception:
        logger.exception("moescope: could not be loaded; SGLang goes on without it")


def __getattr__(name: str) -> Any:
    """Entry point ``vllm.stat_logger_plugins``: a class of vLLM's own kind, made when it is asked for.

    vLLM refuses anything else, and refuses to start then: so there is a class however moescope is set, and
    one that is off does nothing.

    That there is one has an effect of its own: where vLLM serves (``AsyncLLM``) it then keeps its statistics,
    under ``--disable-log-stats`` too and with ``MOESCOPE_ENABLED=0``, and only its own loggers stay off.
    Whoever wants vLLM without them uninstalls moescope.
    """
    if name != "VllmStatLogger":
        raise AttributeError(f"module 'moescope.plugin' has no attribute {name!r}")
    if name in globals():
        return globals()[name]
    # Whoever asks has loaded it: this imports nothing new.
    from vllm.v1.metrics.loggers import StatLoggerBase  # noqa: PLC0415 - engines are imported where they are

    made = type(name, (_StatLogger, StatLoggerBase), {"__doc__": _StatLogger.__doc__, "__module__": __name__})
    globals()[name] = made
    return made


class _StatLogger:
    """Hands one engine's numbers, step by step, to what measures its requests."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._watch = _watch_requests(vllm_config, engine_index)

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,  # noqa: ARG002 - vLLM's signature
        engine_idx: int = 0,  # noqa: ARG002 - vLLM's signature; there is one logger per engine
    ) -> None:
        """Take the numbers of one step. Never raises."""
        if self._watch is not None:
            self._watch.record(scheduler_stats, iteration_stats)

    def log_engine_initialized(self) -> None:
        """Have nothing to say."""


def _watch_requests(vllm_config: Any, dp_rank: int) -> RequestWatch | None:
    try:
        from moescope.api import is_switched_off, make_process_recorder  # noqa: PLC0415 - same as above

        if is_switched_off():
            return None
        from moescope.collector.hooks import vllm_requests  # noqa: PLC0415 - only a front end needs it

        return vllm_requests.watch_requests(vllm_config, dp_rank, make_process_recorder)
    except Exception:
        logger.exception("moescope: requests are not measured; vLLM serves on")
        return None


def _make_stat_logger(vllm_config: Any, dp_rank: int) -> Any:
    return __getattr__("VllmStatLogger")(vllm_config, dp_rank)


def _make_recorder(*args: Any, **kwargs: Any) -> Any:
    from moescope.api import make_recorder  # noqa: PLC0415 - only a worker needs the exporter

    return make_recorder(*args, **kwargs)


def _make_process_recorder(*args: Any, **kwargs: Any) -> Any:
    from moescope.api import make_process_recorder  # noqa: PLC0415 - only some processes need the exporter

    return make_process_recorder(*args, **kwargs)
