"""A placement as a JSON document: what ``moescope plan`` writes, and what the plug-in inside vLLM reads.

::

    {"format": "moescope.placement/1", "ep_size": 64, "experts": 896, "layers": [1, 2, …],
     "physical_to_logical_map": [[…] per layer]}

Only the map is needed: SGLang's file for ``--init-expert-location`` is the same document with nothing else in
it, and then whoever reads it says how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.schemas.errors import PlacementError
from moescope.schemas.records import IntArray
from moescope.schemas.topology import Placement

FORMAT: Final = "moescope.placement/1"
MAP_KEY: Final = "physical_to_logical_map"
COUNTS_KEY: Final = "logical_count"


@dataclass(frozen=True, slots=True)
class PlacementDocument:
    """A placement out of a file.

    Attributes:
        layers: the model's layer index of each row; None where the file does not say.
        remarks: sentences about the file that somebody should read.
    """

    placement: Placement
    layers: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()

    def rows_of(self, layers: Sequence[int]) -> Placement:
        """The placement of these layers of the model, in their order.

        A file that does not name its layers has a row for each of them, or, as SGLang's has, one for every
        decoder layer, the dense ones included.

        Raises:
            PlacementError: the file has no row for one of them.
        """
        table = self.placement.physical_to_logical_map
        wanted = [int(layer) for layer in layers]
        if self.layers is not None:
            row_of = {layer: row for row, layer in enumerate(self.layers)}
            missing = [layer for layer in wanted if layer not in row_of]
            if missing:
                raise PlacementError(
                    f"it places the layers {_span(self.layers)} and not layer {missing[0]} "
                    f"({len(missing)} such); it was made for another model"
                )
            rows = [row_of[layer] for layer in wanted]
        elif len(table) == len(wanted):
            rows = list(range(len(wanted)))
        elif len(table) > max(wanted, default=0):
            rows = wanted
        else:
            raise PlacementError(
                f"it has {len(table)} layers, and the counts have {len(wanted)} ({_span(wanted)}); a row for "
                "each of these, or one for every layer of the model, is needed"
            )
        return Placement(table[rows], self.placement.ep_size, self.placement.num_experts)


def make_document(placement: Placement, layers: Sequence[int]) -> dict[str, Any]:
    """The document of a placement whose rows are these layers of the model."""
    return {
        "format": FORMAT,
        "ep_size": placement.ep_size,
        "experts": placement.num_experts,
        "layers": [int(layer) for layer in layers],
        MAP_KEY: placement.physical_to_logical_map.tolist(),
    }


def parse_document(
    content: Any, *, ep_size: int | None = None, num_experts: int | None = None
) -> PlacementDocument:
    """Read a document that JSON (or YAML, or a file of torch) gave.

    Args:
        content: what the file holds.
        ep_size: ranks of the group, where the file does not say; where it does, both must agree.
        num_experts: logical experts; where nobody says, one more than the largest id.

    Raises:
        PlacementError: it is no placement, or one that nobody could serve from; the message says why.
    """
    if not isinstance(content, Mapping) or MAP_KEY not in content:
        raise PlacementError(_why_not(content))
    table = as_table(content[MAP_KEY])
    ranks = _agreed("ranks", content.get("ep_size"), ep_size)
    if ranks is None:
        raise PlacementError("it does not say how many ranks share its slots; give them with --ranks")
    experts = _agreed("experts", content.get("experts"), num_experts) or int(table.max(initial=0)) + 1
    layers = _layers(content.get("layers"), len(table))
    others = sorted(str(key) for key in content if key != MAP_KEY)
    remarks = []
    if others and "ep_size" not in content:
        remarks.append(
            f"SGLang would not start from this file: beside {MAP_KEY} it has {', '.join(others)}, and SGLang "
            "takes no other key"
        )
    return PlacementDocument(Placement(table, ranks, experts), layers, tuple(remarks))


def as_table(rows: Any) -> IntArray:
    """A map as int64 ``[layers, slots]``, out of lists or an array.

    Raises:
        PlacementError: rows of several lengths, or something else than whole numbers.
    """
    try:
        table = np.asarray(rows)
    except ValueError:
        table = np.asarray(rows, dtype=object)
    if table.ndim != 2:
        listed = rows if isinstance(rows, Iterable) else ()
        lengths = sorted({len(row) for row in listed if isinstance(row, Sized)})
        raise PlacementError(
            f"{MAP_KEY} must be [layers][slots], the same slots in each layer; "
            + (f"the rows have {lengths} slots" if lengths else "it has no rows of slots")
        )
    if table.dtype.kind not in "iu" or table.dtype == np.uint64:
        raise PlacementError(f"{MAP_KEY} holds {table.dtype.name}, expected ids of experts")
    return table.astype(np.int64)


def _why_not(content: Any) -> str:
    if isinstance(content, Mapping) and COUNTS_KEY in content:
        return f"it holds counts ({COUNTS_KEY}) and no placement; give it with --from-counts"
    keys = (
        ", ".join(sorted(map(str, content))[:6]) if isinstance(content, Mapping) else type(content).__name__
    )
    return f"it is no placement: it has no {MAP_KEY} (found: {keys or 'nothing'})"


def _agreed(noun: str, said: Any, asked: int | None) -> int | None:
    if said is None:
        return asked
    if not isinstance(said, int) or isinstance(said, bool) or said < 1:
        raise PlacementError(f"its number of {noun} is {said!r}, expected a whole number from 1")
    if asked is not None and asked != said:
        raise PlacementError(f"it is for {said} {noun}, and there are {asked}")
    return said


def _layers(said: Any, rows: int) -> tuple[int, ...] | None:
    if said is None:
        return None
    is_list = isinstance(said, list) and all(type(layer) is int and layer >= 0 for layer in said)
    if not is_list or len(set(said)) != rows or len(said) != rows:
        raise PlacementError(f"its layers do not name its {rows} rows, each once")
    return tuple(said)


def _span(layers: Sequence[int]) -> str:
    return f"{min(layers)} … {max(layers)}" if layers else "none"
