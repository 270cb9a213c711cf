"""The placement that a plan starts from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moescope.collector.recordings.torch_file import read_torch_file
from moescope.exporters.placement_files import read_placement_document
from moescope.planning.load import PlanLoad
from moescope.planning.request import PlanRequest
from moescope.schemas.errors import PlacementError, UsageError
from moescope.schemas.topology import EMPTY_SLOT, ModelShape, Placement, place_contiguously


@dataclass(frozen=True, slots=True)
class Start:
    """Where a plan starts.

    Attributes:
        placement: as it is now; in order, one copy of each expert, where ``is_known`` is false.
        notes: sentences that belong under the answer.
    """

    placement: Placement
    is_known: bool
    notes: tuple[str, ...] = ()

    @property
    def redundant_experts(self) -> int:
        """Copies of a layer beyond one per expert, the most of any layer."""
        held = (self.placement.physical_to_logical_map != EMPTY_SLOT).sum(axis=1)
        return int(held.max()) - self.placement.num_experts


def find_start(load: PlanLoad, request: PlanRequest) -> Start:
    """Take ``--current``, or what the source of the load knows, or experts in order.

    Raises:
        UsageError: nobody says how many ranks there are, or the file does not fit the load.
    """
    ranks = request.ranks
    if request.current_file is not None:
        return _read(request.current_file, load, ranks)
    if load.current is not None and ranks in {None, load.current.ep_size}:
        return Start(load.current, is_known=True)
    if ranks is None:
        raise UsageError("how many ranks share the experts is not known; say so with --ranks")
    notes: tuple[str, ...] = ()
    if load.current is not None:
        there = load.current.ep_size
        notes = (f"The load is of {there} ranks, the plan for {ranks}: it starts from experts in order.",)
    shape = ModelShape("planned", len(load.layers), tuple(range(len(load.layers))), load.experts, 1)
    return Start(place_contiguously(shape, ranks), is_known=False, notes=notes)


def widen(placement: Placement, slots_per_rank: int) -> Placement:
    """The same placement with empty slots at the end of each rank, where it has fewer than so many."""
    extra = slots_per_rank - placement.slots_per_rank
    if extra <= 0:
        return placement
    table = placement.physical_to_logical_map.reshape(-1, placement.ep_size, placement.slots_per_rank)
    wider = np.pad(table, ((0, 0), (0, 0), (0, extra)), constant_values=EMPTY_SLOT)
    return Placement(wider.reshape(len(table), -1), placement.ep_size, placement.num_experts)


def _read(file: Path, load: PlanLoad, ranks: int | None) -> Start:
    known = ranks or (None if load.current is None else load.current.ep_size)
    try:
        document = read_placement_document(
            file, ep_size=known, num_experts=load.experts, read_torch=read_torch_file
        )
        placement = document.rows_of(load.layers.tolist())
    except PlacementError as error:
        text = str(error).removeprefix(f"{file}: ")
        raise UsageError(f"--current {file}: {text}") from None
    remarks = tuple(f"--current {file}: {one}." for one in document.remarks)
    return Start(placement, is_known=True, notes=remarks)
