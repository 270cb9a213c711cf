"""The offline engine (``LLM``) reports its requests too.

vLLM loads stat loggers where it serves, but not in ``LLMEngine``, and ``LLM`` switches its statistics off
by default, without which no request is timed. So ``LLMEngine.__init__`` is patched: the statistics are on and
moescope's logger is one of those that get them. Where they were meant to be off nothing is printed, which is
how vLLM itself proceeds when it finds a stat logger while statistics are off. An engine that is not as
expected is made as it was asked for, without the logger.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger("moescope")

_MARK: Final = "_moescope_original"


def install(stat_logger: Callable[[Any, int], Any]) -> None:
    """Have every ``LLMEngine`` that is made from now on report. Safe to call again.

    Args:
        stat_logger: makes one engine's logger from vLLM's configuration and its data-parallel rank.
    """
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415 - another version may not have it

    original = LLMEngine.__init__
    if hasattr(original, _MARK):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_and_report(*args: Any, **kwargs: Any) -> None:
        try:
            call, is_meant_to_log = _with_logger(signature.bind(*args, **kwargs), stat_logger)
        except Exception:
            logger.exception("moescope: requests are not measured; the engine is made without it")
            original(*args, **kwargs)
            return
        original(*call.args, **call.kwargs)
        if not is_meant_to_log:
            _try_to_print_nothing(call.arguments["self"])

    setattr(init_and_report, _MARK, original)
    LLMEngine.__init__ = init_and_report


def uninstall() -> None:
    """Take the patch back; engines that report already go on."""
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415 - engines are imported where they are there

    LLMEngine.__init__ = getattr(LLMEngine.__init__, _MARK, LLMEngine.__init__)


def _with_logger(
    call: inspect.BoundArguments, stat_logger: Callable[[Any, int], Any]
) -> tuple[inspect.BoundArguments, bool]:
    """The same call with the logger, and whether statistics were meant to be on."""
    call.apply_defaults()
    # An offline engine calls itself 0 whichever of several data-parallel ones it is.
    dp_rank = call.arguments["vllm_config"].parallel_config.data_parallel_rank
    is_meant_to_log = bool(call.arguments["log_stats"])
    call.arguments["log_stats"] = True
    call.arguments["stat_loggers"] = [
        *(call.arguments["stat_loggers"] or ()),
        lambda vllm_config, _engine_index: stat_logger(vllm_config, dp_rank),
    ]
    return call, is_meant_to_log


def _try_to_print_nothing(engine: Any) -> None:
    try:
        _print_nothing(engine)
    except Exception:
        logger.exception("moescope: vLLM may print statistics that it was asked not to")


def _print_nothing(engine: Any) -> None:
    from vllm.v1.metrics.loggers import LoggingStatLogger  # noqa: PLC0415 - engines are imported where they are

    def prints(stat_logger: Any) -> bool:
        inner = getattr(stat_logger, "per_engine_stat_loggers", {0: stat_logger})
        return any(isinstance(one, LoggingStatLogger) for one in inner.values())

    manager = engine.logger_manager
    manager.stat_loggers = [one for one in manager.stat_loggers if not prints(one)]
