"""TensorRT-LLM: ``moe_load_balancer.yaml``.

Keys of ``initial_global_assignments`` are the model's layer indices; each value names the expert of every
slot, the slots of rank 0 first. ``layer_updates_per_iter: 0`` keeps the placement as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from moescope.exporters.placement_slots import check_for_engine
from moescope.schemas.errors import PlacementError
from moescope.schemas.placement_document import PlacementDocument, as_table
from moescope.schemas.topology import Placement

ASSIGNMENTS: Final = "initial_global_assignments"


def render(placement: Placement, layers: Sequence[int]) -> str:
    """The file's text.

    Raises:
        PlacementError: see :func:`~moescope.exporters.placement_slots.check_for_engine`.
    """
    check_for_engine(placement, layers)
    table = placement.physical_to_logical_map
    lines = [f"num_slots: {table.shape[1]}", "layer_updates_per_iter: 0", f"{ASSIGNMENTS}:"]
    lines += [
        f"  {int(layer)}: [{', '.join(map(str, row))}]"
        for layer, row in zip(layers, table.tolist(), strict=True)
    ]
    return "\n".join(lines) + "\n"


def parse(content: Mapping[str, Any], *, ep_size: int | None, num_experts: int | None) -> PlacementDocument:
    """Read what the YAML holds.

    Raises:
        PlacementError: its slots are not what it says, or nobody could serve from it.
    """
    assignments = content[ASSIGNMENTS]
    if not isinstance(assignments, Mapping) or not all(type(layer) is int for layer in assignments):
        raise PlacementError(f"{ASSIGNMENTS} must have a list of experts for each layer index")
    layers = sorted(assignments)
    table = as_table([assignments[layer] for layer in layers])
    slots = content.get("num_slots")
    if slots is not None and slots != table.shape[1]:
        raise PlacementError(f"num_slots is {slots}, and the layers assign {table.shape[1]} slots")
    if ep_size is None:
        raise PlacementError("it does not say how many ranks share its slots; give them with --ranks")
    experts = num_experts or int(table.max(initial=0)) + 1
    return PlacementDocument(Placement(table, ep_size, experts), tuple(layers))


def start_command(placement: Placement, file: str) -> str:
    """How TensorRT-LLM is started with the file."""
    return (
        f"trtllm-serve … --ep_size {placement.ep_size} --extra_llm_api_options options.yaml, and in "
        f"options.yaml: enable_attention_dp: true, moe_config: {{load_balancer: {file}}}"
    )
