"""How many more requests fit, for a readiness protocol."""

from __future__ import annotations

from moescope.analysis.memory import PoolMemory
from moescope.analysis.memory_outlook import Capacity, read_memory_outlook
from moescope.analysis.readiness_evidence import Room, Unknown
from moescope.analysis.readiness_protocol import FittingRequests
from moescope.analysis.span import Span
from moescope.analysis.store import Store
from moescope.schemas.attributes import MemoryPool
from moescope.schemas.settings import Settings


def read_room(
    store: Store, span: Span, pools: PoolMemory, settings: Settings, wanted: FittingRequests
) -> tuple[Room, ...] | Unknown:
    """How many more requests of the protocol's length fit each engine.

    Raises:
        StoreError: the store cannot answer.
    """
    outlook = read_memory_outlook(store, span, pools, settings, (wanted.tokens,))
    known = [(one, one.admissions[0].fits) for one in outlook.capacities]
    room = tuple(
        Room(ranks=one.caches.ranks, fits=fits, evidence=_what_binds(one))
        for one, fits in known
        if fits is not None
    )
    return room or Unknown("No engine says how large its caches are, so what fits is unknown.")


def _what_binds(one: Capacity) -> str:
    binds = one.admissions[0].binds
    names = {MemoryPool.KDA_STATE: "KDA state slots", MemoryPool.MLA_KV_CACHE: "MLA KV cache blocks"}
    return f"{names[binds]} end first." if binds in names else ""
