"""vLLM 0.32: ``WorkerBase.__init__`` is patched, so that every worker that is made gets followed.

Every kind of worker calls it (GPU, CPU, XPU, those of other packages); all else is wrapped on the worker
itself, by :mod:`moescope.collector.hooks.vllm_worker`.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from moescope.collector.hooks import vllm_shutdown
from moescope.collector.hooks.vllm_version import is_supported_version
from moescope.collector.hooks.vllm_worker import MakeRecorder, WorkerHook

_MARK: Final = "_moescope_original"


def install(make_recorder: MakeRecorder) -> bool:
    """Watch every vLLM worker that this process makes from now on. Safe to call again.

    Returns:
        whether workers are watched: not with another version of vLLM than the hook was written for.
    """
    if not is_supported_version():
        return False
    from vllm.v1.worker.worker_base import WorkerBase  # noqa: PLC0415 - another version may not have it

    original = WorkerBase.__init__
    if hasattr(original, _MARK):
        return True

    @functools.wraps(original)
    def init_and_watch(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.moescope = WorkerHook(self, make_recorder)
        self.moescope.attempt(self.moescope.watch)

    setattr(init_and_watch, _MARK, original)
    WorkerBase.__init__ = init_and_watch
    vllm_shutdown.grant_time()
    return True


def uninstall() -> None:
    """Take the patch back; workers that are watched already stay so."""
    from vllm.v1.worker.worker_base import WorkerBase  # noqa: PLC0415 - engines are imported where they are there

    WorkerBase.__init__ = getattr(WorkerBase.__init__, _MARK, WorkerBase.__init__)
    vllm_shutdown.revoke_time()
