"""Transformers 5: forward hooks on the routers, which return the ids that they selected.

A hook that returned anything would replace the layer's output: these return None, and the model's outputs
stay the same to the bit.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from moescope.collector.expert_load import Segment
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.forwarding_recorder import ForwardingRecorder
from moescope.collector.hooks.transformers_batch import segments_of_forward
from moescope.collector.hooks.transformers_memory import report_weights
from moescope.collector.hooks.transformers_timing import ForwardTiming
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.recorder import NullRecorder
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.settings import load_engine_settings
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")

ROUTER_OF_FAMILY: Final = {
    "deepseek_v3": "DeepseekV3TopkRouter",
    "gpt_oss": "GptOssTopKRouter",
    "mixtral": "MixtralTopKRouter",
    "olmoe": "OlmoeTopKRouter",
    "qwen3_moe": "Qwen3MoeTopKRouter",
}
"""Families whose router returns ``(logits, weights, selected ids)``: read, and tested, one by one."""

_SELECTED_IDS: Final = 2
_EXPERTS_BESIDE: Final = re.compile(r"[^.]+$")
_LAYER_IN_PATH: Final = re.compile(r"^(?:(?P<base>.+)\.)?layers\.(?P<layer>\d+)\.")
# More rows than any forward pass has; 4 bytes each.
_MAX_TOKENS: Final = 2**20


def instrument_model(
    model: Any, make_recorder: Callable[..., LiveRecorder | NullRecorder], *, service: str | None = None
) -> InstrumentedModel:
    """Count what the routers of ``model`` select, in ``generate`` and in plain forward passes.

    Args:
        model: a Transformers model of a family in :data:`ROUTER_OF_FAMILY`, in any wrapper that keeps its
            modules and ``config``.
        make_recorder: :func:`moescope.api.make_recorder`.
        service: name of the deployment; the model's name by default.

    Returns:
        a recorder that reports already. Its ``close()`` leaves the model as it was.

    Raises:
        EngineNotSupportedError: the model is of another family, or has no router.
    """
    routers = _find_routers(model)
    shape = _shape_of(model, routers)
    base, _ = _split(next(iter(routers)))
    counter = TorchExpertCounter(
        shape.num_moe_layers, shape.num_experts, _MAX_TOKENS, _device_of(next(iter(routers.values())))
    )
    identity = EngineIdentity(service or shape.name, shape, engine="transformers", engine_version=_version())
    recorder = make_recorder(identity, counter)
    instrumented = InstrumentedModel(recorder)
    if isinstance(recorder, LiveRecorder):
        instrumented.watch(model.get_submodule(base), list(routers.values()), counter)
        experts = [model.get_submodule(_EXPERTS_BESIDE.sub("experts", path)) for path in routers]
        report_weights(recorder, model, experts, shape)
        if counter.device.type == "cpu":
            share = load_engine_settings().timing_sample
            instrumented.time(ForwardTiming(recorder, shape, share), experts)
        recorder.start()
    return instrumented


class InstrumentedModel(ForwardingRecorder):
    """The recorder of one watched model: a :class:`~moescope.collector.recorder.Recorder`.

    Args:
        recorder: what it passes everything on to.
    """

    def __init__(self, recorder: LiveRecorder | NullRecorder) -> None:
        super().__init__(recorder)
        self._handles: list[Any] = []
        self._timing: ForwardTiming | None = None
        self._signature = inspect.Signature()

    def watch(self, base: torch.nn.Module, routers: list[Any], counter: TorchExpertCounter) -> None:
        """Hook the module that runs the layers, and each router, in layer order."""
        self._signature = inspect.signature(base.forward)
        # Not traced: what the rows are is read on the host.
        begin, end = torch.compiler.disable(self._begin), torch.compiler.disable(self._end)
        self._handles.append(base.register_forward_pre_hook(begin, with_kwargs=True))
        self._handles.append(base.register_forward_hook(end, always_call=True))
        for ordinal, router in enumerate(routers):
            self._handles.append(router.register_forward_hook(self._hand_over(counter, ordinal)))

    def time(self, timing: ForwardTiming, experts: list[Any]) -> None:
        """Time the forward passes too, and of some of them the modules that compute the experts."""
        self._timing = timing
        self._handles += timing.attach(experts)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Recorder.flush`. Waits for what the model has launched."""
        _finish_device_work()
        return self._recorder.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Take the hooks off, flush and stop; the model is as it was before. Safe to call twice."""
        self._unhook()
        _finish_device_work()
        return self._recorder.close(timeout_seconds)

    def _begin(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        segments: tuple[Segment, ...] = ()
        try:
            segments = segments_of_forward(self._signature.bind(*args, **kwargs).arguments)
            self._recorder.begin_step(*segments)
            if self._timing is not None:
                self._timing.begin(segments)
        except Exception:
            self._give_up()

    def _end(self, _module: Any, _args: tuple[Any, ...], _output: Any) -> None:
        # Gradient checkpointing computes the layers again in the backward pass: that is no new load.
        try:
            if self._timing is not None:
                self._timing.end()
            if torch.is_grad_enabled():
                self._recorder.begin_step()
        except Exception:
            self._give_up()

    def _hand_over(self, counter: TorchExpertCounter, ordinal: int) -> Callable[[Any, Any, Any], None]:
        device = counter.device

        def hand_over(_router: Any, _args: Any, output: Any) -> None:
            try:
                ids = output[_SELECTED_IDS]
                # Layers of a model that is spread over devices.
                counter.add(ordinal, ids if ids.device == device else ids.to(device, non_blocking=True))
            except Exception:
                self._give_up()

        return hand_over

    def _give_up(self) -> None:
        """Stop watching: the hook may fail, the model may not."""
        logger.error("moescope: expert load is not counted any more; the model goes on", exc_info=True)  # noqa: LOG014 - called from handlers
        self._unhook()

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _find_routers(model: Any) -> dict[str, Any]:
    """The routers by their path in the model, in layer order."""
    family = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    router_class = ROUTER_OF_FAMILY.get(family)
    if router_class is None:
        raise EngineNotSupportedError(
            f"{family} is no model family whose routers moescope knows ({', '.join(ROUTER_OF_FAMILY)}). "
            "For any other model call moescope.instrument(shape=ModelShape(…)) and record_topk()"
        )
    routers = {
        path: module for path, module in model.named_modules() if type(module).__name__ == router_class
    }
    if not routers or any(_LAYER_IN_PATH.match(path) is None for path in routers):
        raise EngineNotSupportedError(
            f"this {family} model has no {router_class} in its layers; moescope knows Transformers 5, "
            f"this is {_version()}"
        )
    return dict(sorted(routers.items(), key=lambda item: _split(item[0])[1]))


def _shape_of(model: Any, routers: dict[str, Any]) -> ModelShape:
    config = model.config
    any_router = next(iter(routers.values()))
    return ModelShape(
        name=_name_of(config),
        num_layers=config.num_hidden_layers,
        moe_layers=tuple(_split(path)[1] for path in routers),
        num_experts=any_router.num_experts,
        top_k=any_router.top_k,
    )


def _name_of(config: Any) -> str:
    name = str(config.name_or_path or config.model_type)
    return Path(name).name if Path(name).is_absolute() else name


def _split(path: str) -> tuple[str, int]:
    """The path of the module that has the layers, and the layer's index."""
    match = _LAYER_IN_PATH.match(path)
    assert match is not None  # noqa: S101 - for the type checker: _find_routers has looked
    return match["base"] or "", int(match["layer"])


def _device_of(router: Any) -> Any:
    device = router.weight.device
    return torch.device("cpu") if device.type == "meta" else device


def _finish_device_work() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _version() -> str:
    import transformers  # noqa: PLC0415 - engines are imported where they are there

    return str(transformers.__version__)
