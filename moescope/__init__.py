"""moescope: expert-level telemetry for serving large Mixture-of-Experts models.

>>> import moescope
>>> recorder = moescope.instrument(model)                       # a Transformers model
>>> recorder = moescope.instrument(shape=moescope.ModelShape(   # any other engine
...     "my-model", num_layers=4, moe_layers=(1, 2, 3), num_experts=64, top_k=8))

vLLM needs no call: it loads moescope as a plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moescope.api import instrument
    from moescope.collector.expert_load import Row
    from moescope.collector.recorder import NullRecorder, Recorder
    from moescope.schemas.attributes import Phase
    from moescope.schemas.errors import MoescopeError
    from moescope.schemas.topology import ModelShape, Placement, RankGrid

__version__ = "0.1.0"

__all__ = [
    "ModelShape",
    "MoescopeError",
    "NullRecorder",
    "Phase",
    "Placement",
    "RankGrid",
    "Recorder",
    "Row",
    "instrument",
]

_HOME = {
    "ModelShape": "moescope.schemas.topology",
    "MoescopeError": "moescope.schemas.errors",
    "NullRecorder": "moescope.collector.recorder",
    "Phase": "moescope.schemas.attributes",
    "Placement": "moescope.schemas.topology",
    "RankGrid": "moescope.schemas.topology",
    "Recorder": "moescope.collector.recorder",
    "Row": "moescope.collector.expert_load",
    "instrument": "moescope.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a room never pays for another."""
    if name in _HOME:
        import importlib  # noqa: PLC0415 - keeps `import moescope.schemas` as light as it can be

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'moescope' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Show the lazy names too."""
    return sorted([*globals(), *__all__])
