"""Colours with a meaning. They are the same in the light and the dark theme.

Scales run through transparency instead of white or black, so a figure looks right on either background and
does not have to be drawn again when somebody switches. Blue against orange is told apart by every common kind
of colour vision, and no meaning rests on colour alone: rings, icons and words say it too.
"""

from __future__ import annotations

from typing import Final

from moescope.schemas.attributes import CacheResult, DispatchStage, Excluded, MemoryPool, Phase

PHASE_COLOR: Final = {Phase.PREFILL: "#009e73", Phase.DECODE: "#2b8ad6"}

POOL_COLOR: Final = {
    MemoryPool.WEIGHTS: "#5f7a99",
    MemoryPool.RUNTIME: "#a9b4c0",
    MemoryPool.KDA_STATE: "#c45a9c",
    MemoryPool.MLA_KV_CACHE: "#2b8ad6",
    MemoryPool.REPLICATION: "#009e73",
    MemoryPool.TRANSFER: "#e69f00",
}
KDA, MLA = POOL_COLOR[MemoryPool.KDA_STATE], POOL_COLOR[MemoryPool.MLA_KV_CACHE]
STAGE_COLOR: Final = {DispatchStage.DISPATCH: "#2b8ad6", DispatchStage.COMBINE: "#c45a9c"}
CACHE_COLOR: Final = {
    CacheResult.HIT: "#2b8ad6",
    CacheResult.PARTIAL_HIT: "#8fc1ea",
    CacheResult.MISS: "#e69f00",
}
EXCLUDED_COLOR: Final = {
    Excluded.PADDING: "#e69f00",
    Excluded.WARMUP: "#c45a9c",
    Excluded.DUMMY: "#8a95a3",
}
REQUEST: Final = "#2b8ad6"
WAITING: Final = "#e0480e"
GOOD: Final = "#009e73"

QUANTILE_LINE: Final[dict[str, dict[str, object]]] = {
    "p50": {"width": 2.4},
    "p90": {"width": 1.6, "dash": "dash"},
    "p99": {"width": 1.6, "dash": "dot"},
}
"""The same colour throughout: the dash says which percentile it is."""

LOST: Final = "#e69f00"
"""What nobody else has; :data:`BAD` where it is more than may be lost."""

RING: Final = "#d81b78"
"""Around what is harmful or selected: found nowhere in the scales."""

OK: Final = "rgba(110, 135, 160, 0.55)"
BAD: Final = "#e0480e"
WARM: Final = "#e69f00"
LIMIT: Final = "rgba(128, 140, 155, 0.9)"
NODE: Final = "rgba(110, 120, 135, 0.95)"
ROOM: Final = "rgba(128, 140, 155, 0.16)"
MUTED: Final = "rgba(128, 140, 155, 0.75)"

DIVERGING: Final = (
    "rgba(43, 122, 196, 0.55)",
    "rgba(43, 122, 196, 0.20)",
    "rgba(128, 128, 128, 0.04)",
    "rgba(240, 150, 40, 0.26)",
    "rgba(238, 126, 24, 0.78)",
    "rgb(224, 72, 14)",
    "rgb(150, 22, 60)",
)
"""Below, at and above what is usual: the middle is nearly invisible."""

SEQUENTIAL: Final = (
    "rgba(43, 122, 196, 0.02)",
    "rgba(43, 122, 196, 0.06)",
    "rgba(43, 122, 196, 0.13)",
    "rgba(43, 122, 196, 0.26)",
    "rgba(43, 122, 196, 0.50)",
    "rgba(58, 84, 190, 0.90)",
    "rgb(110, 44, 160)",
)
"""From nothing to a lot."""

SERIES_COLOR: Final = ("#2b8ad6", "#e69f00", "#009e73", "#c45a9c", "#5f7a99", "#e0480e", "#8fc1ea", "#8a95a3")
SERIES_DASH: Final = ("solid", "dash")
"""Lines of whatever a person asks for: told apart by colour, and by dash from the ninth on."""
