"""Wrapping the methods of one engine object, on the object itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from moescope.collector.expert_load_torch import TorchExpertCounter


def wrap(
    target: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Call ``before(*args, **kwargs)`` and ``after(result, *args)`` around a method of this one object."""
    original = getattr(target, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            after(result, *args)
        return result

    setattr(target, name, wrapped)


def pause_reads_in(target: Any, name: str, counter: TorchExpertCounter) -> None:
    """Keep the counts from being read while the method runs: it captures a CUDA graph."""
    original = getattr(target, name)

    @functools.wraps(original)
    def paused(*args: Any, **kwargs: Any) -> Any:
        with counter.reads_paused():
            return original(*args, **kwargs)

    setattr(target, name, paused)
