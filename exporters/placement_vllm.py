"""vLLM: a file of ours, which the plug-in in vLLM hands to its expert load balancer.

vLLM 0.32 starts with experts in order and has no option that loads a placement. With
``MOESCOPE_PLACEMENT_FILE`` set, :mod:`moescope.collector.hooks.vllm_policy` answers vLLM's next rearrangement
with the planned map. Its rows are the MoE layers alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from moescope.exporters.placement_slots import check_for_engine, count_redundant
from moescope.schemas.errors import PlacementError
from moescope.schemas.placement_document import make_document
from moescope.schemas.topology import Placement

_MOST_REDUNDANT: Final = 1023
"""``MAX_EXPERT_REDUNDANCY`` of vLLM 0.32."""


def render(placement: Placement, layers: Sequence[int]) -> str:
    """The file's text.

    Raises:
        PlacementError: see :func:`~moescope.exporters.placement_slots.check_for_engine`; or more redundant
            experts than vLLM takes.
    """
    check_for_engine(placement, layers)
    redundant = count_redundant(placement)
    if redundant > _MOST_REDUNDANT:
        raise PlacementError(f"{redundant} redundant experts are more than the {_MOST_REDUNDANT} of vLLM")
    return json.dumps(make_document(placement, layers), separators=(",", ":")) + "\n"


def start_command(placement: Placement, file: str) -> str:
    """How vLLM is started with the file."""
    redundant = count_redundant(placement)
    return (
        f"MOESCOPE_PLACEMENT_FILE={file} vllm serve … --enable-expert-parallel --enable-eplb "
        f"--eplb-config '{{\"num_redundant_experts\": {redundant}}}'"
    )
