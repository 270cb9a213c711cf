"""Read how many bytes one copy of an expert takes, by layer."""

from __future__ import annotations

from typing import Final

import numpy as np

from moescope.analysis.expert_load import LoadScope
from moescope.analysis.frozen import locked_float64
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.records import FloatArray, IntArray

_LOOK_BACK_MS: Final = 86_400_000
_EVERY_LAYER: Final = -1


def read_bytes_per_expert(
    store: Store, scope: LoadScope, layers: IntArray, *, until_ms: int
) -> FloatArray | None:
    """Read the bytes of one copy in each of these layers, as the ranks said within the day before.

    Returns:
        float64 ``[layers]``, bytes; None where a layer's are not known.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query(
        "expert_weight_size",
        service=scope.service,
        ep_group=scope.ep_group,
        from_ms=until_ms - _LOOK_BACK_MS,
        until_ms=until_ms,
    )
    said = dict(
        zip(column_as_array(table, "layer").tolist(), column_as_array(table, "bytes_each"), strict=True)
    )
    sizes = np.array([said.get(int(layer), said.get(_EVERY_LAYER, 0.0)) for layer in layers])
    return locked_float64(sizes) if len(sizes) and (sizes > 0).all() else None
