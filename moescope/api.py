"""The public API: one call that puts an engine, its counters and an exporter together."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from opentelemetry.sdk.resources import OTELResourceDetector

from moescope import __version__
from moescope.collector.expert_load import ExpertCounter, NumpyExpertCounter
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.recorder import NullRecorder, Recorder
from moescope.exporters.otlp import OtlpExporter
from moescope.exporters.otlp_config import is_disabled, load_otlp_config
from moescope.exporters.rank_page import WindowExporter, with_page
from moescope.schemas.errors import UsageError
from moescope.schemas.identity import EngineIdentity, Identity, ProcessIdentity
from moescope.schemas.settings import Settings, load_engine_settings
from moescope.schemas.topology import ModelShape, Placement, RankGrid

_DEFAULT_SERVICE = "moescope"
_Identity = TypeVar("_Identity", bound=Identity)


def instrument(
    model: Any = None,
    *,
    shape: ModelShape | None = None,
    service: str | None = None,
    grid: RankGrid | None = None,
    placement: Placement | None = None,
    device: Any = None,
    max_tokens: int = 8192,
) -> Recorder:
    """Start to count which experts each token uses, and to report it over OTLP.

    Args:
        model: a Transformers model whose routers are to be watched; nothing else needs to be called then.
        shape: for any other engine, what its router chooses from.
        service: name of the deployment; ``OTEL_SERVICE_NAME`` wins, the model's name is the default.
        grid: EP group, rank and size of this process; one rank by default.
        placement: where the copies of each expert are; contiguous blocks by default.
        device: a torch device to count on; None counts numpy arrays on the host.
        max_tokens: the largest number of token rows of one forward pass (only with ``device``).

    Returns:
        a recorder, already reporting; a :class:`~moescope.collector.recorder.NullRecorder` where telemetry is
        switched off (``MOESCOPE_ENABLED=0`` or ``OTEL_SDK_DISABLED=true``).

    Raises:
        UsageError: neither ``model`` nor ``shape`` is given, or both are.
        ShapeError: the shape, grid and placement do not fit each other.
        EngineNotSupportedError: the model is of no family whose routers moescope knows.
        SettingError: an ``OTEL_*`` or ``MOESCOPE_*`` variable holds what it cannot take.
    """
    if (model is None) == (shape is None):
        raise UsageError(
            "instrument() takes a Transformers model, or shape=ModelShape(…) for any other engine"
        )
    if model is not None:
        from moescope.collector.hooks.transformers import instrument_model  # noqa: PLC0415 - engines are lazy

        return instrument_model(model, make_recorder, service=service)
    assert shape is not None  # noqa: S101 - for the type checker: one of the two is given
    identity = EngineIdentity(service or shape.name, shape, grid or RankGrid())
    recorder = make_recorder(identity, _counter(shape, device, max_tokens), placement=placement)
    if isinstance(recorder, LiveRecorder):
        recorder.start()
    return recorder


def make_recorder(
    identity: EngineIdentity,
    counter: ExpertCounter,
    *,
    placement: Placement | None = None,
    settings: Settings | None = None,
) -> LiveRecorder | NullRecorder:
    """Put a recorder together that reports over OTLP. It reports once its ``start()`` is called."""
    settings = settings or load_engine_settings()
    if is_switched_off(settings):
        return NullRecorder()
    config = load_otlp_config()

    def make_exporter(who: EngineIdentity) -> WindowExporter:
        return with_page(OtlpExporter(who, config, version=__version__), who, settings)

    return LiveRecorder(_named(identity), counter, make_exporter, settings, placement)


def make_process_recorder(
    identity: ProcessIdentity, *, settings: Settings | None = None
) -> ProcessRecorder | NullRecorder:
    """Put the recorder of a process without experts together. It reports once its ``start()`` is called."""
    settings = settings or load_engine_settings()
    if is_switched_off(settings):
        return NullRecorder()
    config = load_otlp_config()
    return ProcessRecorder(
        _named(identity), lambda who: OtlpExporter(who, config, version=__version__), settings
    )


def is_switched_off(settings: Settings | None = None) -> bool:
    """Whether ``MOESCOPE_ENABLED`` or one of OpenTelemetry's switches turns telemetry off."""
    return not (settings or load_engine_settings()).enabled or is_disabled()


def _named(identity: _Identity) -> _Identity:
    """Let ``OTEL_SERVICE_NAME`` (or ``service.name`` of ``OTEL_RESOURCE_ATTRIBUTES``) name the deployment."""
    detected = OTELResourceDetector().detect().attributes.get("service.name")
    service = os.environ.get("OTEL_SERVICE_NAME") or detected or identity.service or _DEFAULT_SERVICE
    return identity.named(str(service))


def _counter(shape: ModelShape, device: Any, max_tokens: int) -> ExpertCounter:
    if device is None:
        return NumpyExpertCounter(shape.num_moe_layers, shape.num_experts)
    from moescope.collector.expert_load_torch import TorchExpertCounter  # noqa: PLC0415 - torch is optional

    return TorchExpertCounter(shape.num_moe_layers, shape.num_experts, max_tokens, device)
