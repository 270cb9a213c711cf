"""The shape of a model that SGLang serves: from the model itself where it is loaded, else from its config.

Model families name the same things differently; a name that means something else in another family is not
among those below.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import ModelShape

_EXPERTS: Final = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
    "max_n_routed_experts",
)
_TOP_K: Final = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k")


def find_experts(model: Any) -> list[Any]:
    """A loaded model's modules with routed experts, those of this pipeline stage; empty if none are seen."""
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE  # noqa: PLC0415 - lazy

    return [m for m in model.modules() if isinstance(m, FusedMoE) and not m.is_shared_fused_moe]


def shape_of(name: str, config: Any, layers: Sequence[int] = ()) -> ModelShape:
    """The shape that a text config describes.

    Args:
        name: name of the model.
        config: the language model's config, as SGLang or Transformers define it for its family.
        layers: layer indices with routed experts, if known; otherwise by the config's own rules.

    Raises:
        EngineNotSupportedError: the config names no routed experts, or not one number of them for all layers.
    """
    num_experts, top_k = _number(config, _EXPERTS, name), _number(config, _TOP_K, name)
    num_layers = int(config.num_hidden_layers)
    moe_layers = tuple(sorted(set(layers))) or moe_layers_by_rule(config)
    if not moe_layers:
        raise EngineNotSupportedError(f"{name} has {num_experts} experts and no layer that routes to them")
    return ModelShape(name, max(num_layers, moe_layers[-1] + 1), moe_layers, num_experts, top_k)


def has_experts(config: Any) -> bool:
    """Whether a text config names routed experts at all."""
    return any(getattr(config, name, None) for name in _EXPERTS)


def moe_layers_by_rule(config: Any) -> tuple[int, ...]:
    """Layer indices with routed experts by the config's own rules."""
    return tuple(layer for layer in range(int(config.num_hidden_layers)) if _has_experts(config, layer))


def name_of(served_name: str) -> str:
    """The name that a model is served under; the folder's name where that is a path."""
    return Path(served_name).name if Path(served_name).is_absolute() else served_name


def _number(config: Any, names: Sequence[str], model: str) -> int:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
        if value:  # a list by layer, in a few families
            raise EngineNotSupportedError(f"{model}: {name} is {value!r}, not one number for all layers")
    raise EngineNotSupportedError(f"{model}: its config has none of {', '.join(names)}")


def _has_experts(config: Any, layer: int) -> bool:
    listed = getattr(config, "moe_layers_enum", None)  # Step
    if listed:
        return layer in {int(part) for part in str(listed).split(",")}
    pattern = getattr(config, "hybrid_override_pattern", None)  # Nemotron-H
    if pattern:
        return str(pattern)[layer : layer + 1] == "E"
    is_dense = layer < int(getattr(config, "first_k_dense_replace", 0) or 0)
    is_dense |= layer in (getattr(config, "mlp_only_layers", None) or ())
    return not is_dense and _is_its_turn(config, layer)


def _is_its_turn(config: Any, layer: int) -> bool:
    frequency = getattr(config, "moe_layer_freq", 1)
    if isinstance(frequency, (list, tuple)):
        return bool(frequency[layer])
    # Qwen and Llama 4 count from one.
    step = getattr(config, "decoder_sparse_step", None) or getattr(config, "interleave_moe_layer_step", None)
    return layer % int(frequency or 1) == 0 and (layer + 1) % int(step or 1) == 0
