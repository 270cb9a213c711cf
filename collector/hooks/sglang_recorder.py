"""What SGLang calls during a forward pass: its own recorder, with ours listening to the same calls.

SGLang asks one object per process which layer runs, what the batch is and which experts were selected. Ours
passes every call on to the one that SGLang would have used: its real recorder where EPLB needs one or the
user asked for one, its empty one otherwise. So dumps, EPLB and the three HTTP endpoints stay as they are.

Some dispatchers look at the recorder's class to decide whether counting is worth it; each of ours is of the
class that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from sglang.srt.eplb import expert_distribution as sglang


class PassListener(Protocol):
    """What listens. None of it raises."""

    def enter_layer(self, layer: int | None) -> None:
        """The layer with this index runs, or none does."""

    def mute(self) -> None:
        """What follows is not the model's own: the layers of a draft model."""

    def unmute(self) -> None:
        """The end of what :meth:`mute` began."""

    def begin_pass(self, batch: Any) -> None:
        """A forward pass begins."""

    def end_pass(self) -> None:
        """It has been launched."""

    def select(self, topk_ids: Any) -> None:
        """The router of the running layer selected these experts."""


def listen(inner: Any, listener: PassListener) -> Any:
    """A recorder of ``inner``'s kind that lets ``listener`` hear what it is told."""
    kind = _ListeningNoop if isinstance(inner, sglang._ExpertDistributionRecorderNoop) else _Listening  # noqa: SLF001 - what dispatchers ask for
    return kind(inner, listener)


class _LayerScope:
    """One layer's context; the same object each time that the layer runs."""

    __slots__ = ("_layer", "_listener")

    def __init__(self, listener: PassListener, layer: int) -> None:
        self._listener = listener
        self._layer = layer

    def __enter__(self) -> None:
        self._listener.enter_layer(self._layer)

    def __exit__(self, *_: object) -> None:
        self._listener.enter_layer(None)


class _Calls:
    """The calls that both kinds pass on."""

    def __init__(self, inner: Any, listener: PassListener) -> None:
        self._inner = inner
        self._listener = listener
        self._scopes: dict[int, _LayerScope] = {}

    @property
    def recording(self) -> bool:
        """Whether SGLang's own recorder records; ours always does."""
        return bool(self._inner.recording)

    def with_current_layer(self, layer_idx: int) -> AbstractContextManager[Any]:
        """See SGLang's recorder."""
        scope = self._scopes.get(layer_idx)
        if scope is None:
            scope = self._scopes[layer_idx] = _LayerScope(self._listener, layer_idx)
        return scope

    def with_debug_name(self, debug_name: str) -> Any:
        """See SGLang's recorder."""
        return self._inner.with_debug_name(debug_name)

    @contextmanager
    def disable_this_region(self) -> Iterator[None]:
        """See SGLang's recorder."""
        self._listener.mute()
        try:
            with self._inner.disable_this_region():
                yield
        finally:
            self._listener.unmute()

    @contextmanager
    def with_forward_pass(self, forward_pass_id: int, forward_batch: Any) -> Iterator[Any]:
        """See SGLang's recorder."""
        self._listener.begin_pass(forward_batch)
        try:
            with self._inner.with_forward_pass(forward_pass_id, forward_batch) as outputs:
                yield outputs
        finally:
            self._listener.end_pass()

    def on_select_experts(self, topk_ids: Any) -> None:
        """See SGLang's recorder."""
        self._listener.select(topk_ids)
        self._inner.on_select_experts(topk_ids=topk_ids)

    def on_deepep_dispatch_normal(self, *args: Any, **kwargs: Any) -> None:
        """See SGLang's recorder. What DeepEP sends was counted by its ids, padding left out."""
        self._inner.on_deepep_dispatch_normal(*args, **kwargs)

    def on_deepep_dispatch_low_latency(self, *args: Any, **kwargs: Any) -> None:
        """See SGLang's recorder. What a rank receives is what others have counted as sent."""
        self._inner.on_deepep_dispatch_low_latency(*args, **kwargs)

    def get_current_pass_count_buffer(self, layer_idx: int) -> None:
        """Have none: a kernel that counts into SGLang's own buffer would tell nobody which ids it counted."""

    def start_record(self) -> None:
        """See SGLang's recorder."""
        self._inner.start_record()

    def stop_record(self) -> None:
        """See SGLang's recorder."""
        self._inner.stop_record()

    def dump_record(self, *args: Any, **kwargs: Any) -> Any:
        """See SGLang's recorder."""
        return self._inner.dump_record(*args, **kwargs)


class _ListeningNoop(_Calls, sglang._ExpertDistributionRecorderNoop):  # type: ignore[misc]  # noqa: SLF001 - no types here; see listen()
    """In place of SGLang's empty recorder."""


class _Listening(_Calls, sglang.ExpertDistributionRecorder):  # type: ignore[misc]  # SGLang has no types here
    """Around SGLang's real recorder."""

    def with_current_layer(self, layer_idx: int) -> AbstractContextManager[Any]:
        """See SGLang's recorder."""
        return self._both(super().with_current_layer(layer_idx), layer_idx)

    @contextmanager
    def _both(self, scope: AbstractContextManager[Any], layer_idx: int) -> Iterator[None]:
        with scope, self._inner.with_current_layer(layer_idx):
            yield
