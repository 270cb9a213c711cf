"""SGLang: the file of ``--init-expert-location``.

SGLang 0.5.23 hands the file's keys to a function as they are: exactly one, ``physical_to_logical_map``, and
any other stops it. It checks neither the width nor that every expert has a slot. Its rows are all decoder
layers, the dense ones included, whose row nobody reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from moescope.exporters.placement_slots import check_for_engine, count_redundant
from moescope.schemas.placement_document import MAP_KEY
from moescope.schemas.topology import Placement


def render(placement: Placement, layers: Sequence[int]) -> str:
    """The file's text.

    Raises:
        PlacementError: see :func:`~moescope.exporters.placement_slots.check_for_engine`.
    """
    check_for_engine(placement, layers)
    table = placement.physical_to_logical_map
    # What SGLang itself starts with; the rows of dense layers stay so.
    trivial = np.arange(table.shape[1]) % placement.num_experts
    rows = np.tile(trivial, (int(max(layers, default=-1)) + 1, 1))
    rows[list(layers)] = table
    return json.dumps({MAP_KEY: rows.tolist()}, separators=(",", ":")) + "\n"


def start_command(placement: Placement, file: str) -> str:
    """How SGLang is started with the file."""
    return (
        f"python -m sglang.launch_server … --ep-size {placement.ep_size} "
        f"--ep-num-redundant-experts {count_redundant(placement)} --init-expert-location {file}"
    )
