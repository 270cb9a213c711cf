"""What a recording says, whoever made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from moescope.schemas.attributes import Phase
from moescope.schemas.records import IntArray


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """One forward pass, its ranks added up.

    Attributes:
        tokens_per_layer_expert: whole numbers ``[num_layers, num_experts]`` by logical expert; dense
            layers are zeros.
        phase: None where the file does not say.
        warmup_tokens: rows that were found to be no real tokens, and are not in the counts.
    """

    tokens_per_layer_expert: npt.NDArray[Any]
    phase: Phase | None = None
    warmup_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Several passes of one model.

    Attributes:
        kind: how it was recorded, in the recorder's own word.
        passes: in order where the recorder kept one.
        physical_to_logical_map: int64 ``[num_layers, slots]``; None where the file has none.
        ranks: which reported; empty where the file has them added up.
        left_out: what was not taken, and how much of it.
        remarks: sentences about what it cannot say, or lacks.
        top_k: experts per token; 0 where the file does not say.
    """

    kind: str
    passes: Sequence[RecordedPass]
    num_layers: int
    num_experts: int
    physical_to_logical_map: IntArray | None = None
    ranks: tuple[int, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    top_k: int = 0
    made_seconds: float | None = None
