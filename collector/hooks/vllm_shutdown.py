"""Time for the last window when ``vllm serve`` is told to end.

By default (``--shutdown-timeout 0``) the API server sends its engine SIGTERM and kills it and its workers in
the same instant, so no worker could report what it counted last. vLLM knows of the difference between the
time that requests get to drain and the time that processes get to clean up, but grants the second on ROCm
only. Here it is granted wherever the hook is installed: as long as vLLM grants its workers elsewhere, and no
longer than they take.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

_FUNCTION: Final = "get_engine_process_shutdown_timeout"
_MARK: Final = "_moescope_original"
# The second imports the function by name; only where it is loaded already.
_MODULES: Final = ("vllm.v1.engine.utils", "vllm.entrypoints.launchers.dp_supervisor")


def grant_time() -> None:
    """Let engine processes end by themselves before they are killed. Safe to call again."""
    from vllm import envs  # noqa: PLC0415 - engines are imported where they are there
    from vllm.v1.engine import utils  # noqa: PLC0415 - same

    original = getattr(utils, _FUNCTION)
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def with_time_to_flush(request_timeout: float | None, process_timeout: float | None) -> Any:
        granted = original(request_timeout, process_timeout)
        if request_timeout == 0 and granted == 0:
            return float(envs.VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS)
        return granted

    setattr(with_time_to_flush, _MARK, original)
    _replace(with_time_to_flush)


def revoke_time() -> None:
    """Put vLLM's own function back."""
    from vllm.v1.engine import utils  # noqa: PLC0415 - engines are imported where they are there

    current = getattr(utils, _FUNCTION)
    _replace(getattr(current, _MARK, current))


def _replace(function: Any) -> None:
    for name in _MODULES:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, _FUNCTION):
            setattr(module, _FUNCTION, function)
