"""Attribute keys and their closed vocabularies. Nothing else spells them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """What a token row was computed for. Kept apart everywhere: they bind on different resources."""

    PREFILL = "prefill"
    DECODE = "decode"


class Excluded(StrEnum):
    """Why a token row is not part of the load; ``NONE`` means that it is."""

    NONE = "none"
    PADDING = "padding"
    WARMUP = "warmup"
    DUMMY = "dummy"


class Role(StrEnum):
    """Which phases an engine serves."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class DispatchStage(StrEnum):
    """The two all-to-alls around the experts."""

    DISPATCH = "dispatch"
    COMBINE = "combine"


class Direction(StrEnum):
    """Seen from the reporting rank."""

    TRANSMIT = "transmit"
    RECEIVE = "receive"


class MemoryPool(StrEnum):
    """Where a rank's bytes are. KDA state is copied on write, the MLA KV cache grows: never one number."""

    WEIGHTS = "weights"
    RUNTIME = "runtime"
    KDA_STATE = "kda_state"
    MLA_KV_CACHE = "mla_kv_cache"
    REPLICATION = "replication"
    TRANSFER = "transfer"


class CacheResult(StrEnum):
    """What the prefix cache answered for a prompt token.

    A prompt is found as far as can be if no more is left of it than one block of the cache: whole blocks are
    found, and the last token is always computed. Its found tokens are ``HIT``, those of a prompt of which
    more is left ``PARTIAL_HIT``; every token that had to be computed is ``MISS``. Each request is counted
    once, when it is over, by what was found when it was first scheduled: what is computed or found again
    after a preemption is neither.
    """

    HIT = "hit"
    PARTIAL_HIT = "partial_hit"
    MISS = "miss"


class CopyReason(StrEnum):
    """Why a KDA state slot was copied.

    ``COPY_ON_WRITE``: a request goes on from a state that others share, in a slot of its own. ``CHECKPOINT``:
    a running request leaves its state behind for the prefix cache.
    """

    COPY_ON_WRITE = "copy_on_write"
    CHECKPOINT = "checkpoint"


class DurationSource(StrEnum):
    """Whether an expert's time was measured or shared out from a grouped kernel's time by tokens."""

    MEASURED = "measured"
    APPORTIONED = "apportioned"


class FailoverReason(StrEnum):
    """Why another copy of an expert served in place of the one that should have."""

    RANK_DOWN = "rank_down"
    TIMEOUT = "timeout"
    OVERLOAD = "overload"


class Contract(StrEnum):
    """Whether a finished request kept the latency contract of the settings: TTFT and TPOT, both."""

    MET = "met"
    MISSED = "missed"


class Component(StrEnum):
    """What kind of process reports. An engine is several: only a ``RANK`` holds experts.

    ``SCHEDULER`` knows the caches of its engine, ``FRONTEND`` the requests, ``SCRAPER`` what an engine that
    cannot be touched says on its own page.
    """

    RANK = "rank"
    SCHEDULER = "scheduler"
    FRONTEND = "frontend"
    SCRAPER = "scraper"


# Keys of point attributes.
LAYER: Final = "moe.layer"
PHASE: Final = "moe.phase"
EXCLUDED: Final = "moe.excluded"
REASON: Final = "moe.reason"
SOURCE: Final = "moe.source"
STAGE: Final = "moe.stage"
POOL: Final = "moe.pool"
RESULT: Final = "moe.result"
CONTRACT: Final = "moe.contract"
DIRECTION: Final = "network.io.direction"
HW_ID: Final = "hw.id"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
ENCODING: Final = "moe.encoding"
SNAPSHOT: Final = "moe.snapshot"

ENCODING_INDEX: Final = "index"
"""Value of ``moe.encoding``: bucket i is index i (an expert or a peer rank), never a range."""

# Keys of resource attributes.
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
HOST_NAME: Final = "host.name"
EP_GROUP: Final = "moe.ep.group"
EP_RANK: Final = "moe.ep.rank"
EP_SIZE: Final = "moe.ep.size"
MODEL_NAME: Final = "moe.model.name"
MODEL_EXPERTS: Final = "moe.model.experts"
MODEL_LAYERS: Final = "moe.model.layers"
MODEL_MOE_LAYERS: Final = "moe.model.moe_layers"
MODEL_TOP_K: Final = "moe.model.top_k"
ENGINE: Final = "moe.engine"
ENGINE_VERSION: Final = "moe.engine.version"
ROLE: Final = "moe.role"
COMPONENT: Final = "moe.component"
