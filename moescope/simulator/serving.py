"""What serving a model costs: bytes and arithmetic of experts, caches and dispatch, and the device it needs.

From published configurations; "estimated" where arithmetic stands in for a published number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moescope.schemas.topology import ModelShape

MLA_BLOCK_TOKENS: Final = 64
"""Tokens of one block of the MLA KV cache (of the attention KV cache, where a model has no MLA)."""

_DEVICE_BYTES: Final = (80 * 10**9, 141 * 10**9, 192 * 10**9, 288 * 10**9)
"""H100, H200, B200, B300: the smallest that fits is taken."""
_WEIGHT_SHARE: Final = 0.7
"""Share of the device that weights may take; where no device is large enough, one that is gets made up."""
_SECONDS_TO_READ_DEVICE: Final = 0.033
"""Memory size over bandwidth, much the same for all of them: 141 GB at 4.8 TB/s, 288 GB at 8 TB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFacts:
    """Bytes and arithmetic of one model.

    Attributes:
        expert_bytes: weights of one routed expert of one layer.
        expert_parameters: the same in parameters; twice that is the arithmetic of one assignment.
        other_bytes: all weights that are no routed expert, over all tensor-parallel ranks.
        dispatch_bytes: one copy of a token on its way to an expert's rank.
        combine_bytes: one result on its way back.
        kv_bytes_per_token: KV cache of all attention layers.
        is_kv_sharded: whether tensor-parallel ranks share it out (by heads) or each hold all of it (MLA).
        kda_state_bytes: KDA state of one sequence over all tensor-parallel ranks; 0 where there is none.
    """

    expert_bytes: int
    expert_parameters: int
    other_bytes: int
    dispatch_bytes: int
    combine_bytes: int
    kv_bytes_per_token: int
    is_kv_sharded: bool = False
    kda_state_bytes: int = 0


SERVING_FACTS: Final[dict[str, ServingFacts]] = {
    # 3 · 3584 · 3072 parameters an expert in MXFP4 (4.25 bits); 104 G active parameters less 16 · 92 experts
    # leaves 55.4 G others, bf16, estimated; latent of 3584 in bf16 dispatched; 24 MLA layers of
    # (512 + 64) · bf16; 69 KDA layers of 96 heads · 128 · 128 in fp32 with a bf16 convolution.
    "kimi-k3": ServingFacts(
        expert_bytes=17_547_264,
        expert_parameters=33_030_144,
        other_bytes=110_800_000_000,
        dispatch_bytes=7168,
        combine_bytes=7168,
        kv_bytes_per_token=27_648,
        kda_state_bytes=449_000_000,
    ),
    # 3 · 7168 · 2048 in FP8 with a scale per 128 × 128; 17 G others in FP8, estimated; dispatch in FP8 with a
    # scale per 128, combine in bf16; 61 layers of (512 + 64) · bf16.
    "deepseek-v3": ServingFacts(
        expert_bytes=44_050_944,
        expert_parameters=44_040_192,
        other_bytes=17_000_000_000,
        dispatch_bytes=7392,
        combine_bytes=14_336,
        kv_bytes_per_token=70_272,
    ),
    # Qwen3-235B-A22B in bf16: 3 · 4096 · 1536 an expert; 94 layers of 2 · 4 KV heads · 128.
    "qwen3-moe": ServingFacts(
        expert_bytes=37_748_736,
        expert_parameters=18_874_368,
        other_bytes=16_000_000_000,
        dispatch_bytes=8192,
        combine_bytes=8192,
        kv_bytes_per_token=192_512,
        is_kv_sharded=True,
    ),
    # gpt-oss-120b: 3 · 2880 · 2880 in MXFP4; 36 layers of 2 · 8 KV heads · 64 in bf16, sliding windows not
    # deducted.
    "gpt-oss": ServingFacts(
        expert_bytes=13_219_200,
        expert_parameters=24_883_200,
        other_bytes=4_300_000_000,
        dispatch_bytes=5760,
        combine_bytes=5760,
        kv_bytes_per_token=73_728,
        is_kv_sharded=True,
    ),
    # Mixtral-8x7B in bf16: 3 · 4096 · 14336 an expert; 32 layers of 2 · 8 KV heads · 128.
    "mixtral": ServingFacts(
        expert_bytes=352_321_536,
        expert_parameters=176_160_768,
        other_bytes=3_200_000_000,
        dispatch_bytes=8192,
        combine_bytes=8192,
        kv_bytes_per_token=131_072,
        is_kv_sharded=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU under one rank.

    Attributes:
        memory_bytes: its memory.
        bytes_per_second: of that memory.
        operations_per_second: of grouped expert kernels, sustained (estimated).
        link_bytes_per_second: to other ranks, sustained (estimated).
    """

    memory_bytes: int
    bytes_per_second: float
    operations_per_second: float = 0.8e15
    link_bytes_per_second: float = 150e9


def choose_device(shape: ModelShape, facts: ServingFacts, *, slots: int, tensor_parallel: int) -> Device:
    """The smallest device that holds the weights of a rank with ``slots`` physical experts a layer."""
    weights = slots * shape.num_moe_layers * facts.expert_bytes + facts.other_bytes // tensor_parallel
    fitting = [size for size in _DEVICE_BYTES if weights <= _WEIGHT_SHARE * size]
    memory_bytes = fitting[0] if fitting else round(weights / _WEIGHT_SHARE)
    return Device(memory_bytes, memory_bytes / _SECONDS_TO_READ_DEVICE)
