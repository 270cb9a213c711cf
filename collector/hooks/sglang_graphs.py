"""CUDA graphs that SGLang captures while it serves: meanwhile no other thread may call the device.

It captures anew when weights are updated, when an engine of a disaggregated deployment changes its role, and
when an elastic EP group is resized. All of that ends in the methods that are wrapped here, on the object: the
callers were handed their own way in before the model was loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

_CAPTURES: Final = ("init_decode_cuda_graph", "init_prefill_cuda_graph", "_recapture_elastic_cuda_graphs")


def pause_reads_during_captures(runner: Any, pause: Callable[[], AbstractContextManager[None]]) -> None:
    """Have a model runner capture its graphs within ``pause()``."""
    for name in _CAPTURES:
        original = getattr(runner, name, None)
        if original is not None:
            setattr(runner, name, _paused(original, pause))


def is_captured(tensor: Any) -> bool:
    """Whether what runs on a tensor now only becomes part of a graph."""
    return bool(
        torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def _paused(original: Callable[..., Any], pause: Callable[[], AbstractContextManager[None]]) -> Any:
    @functools.wraps(original)
    def paused(*args: Any, **kwargs: Any) -> Any:
        with pause():
            return original(*args, **kwargs)

    return paused
