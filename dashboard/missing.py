"""What a section says when nothing of it is stored: which metric is missing, and who would report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from moescope.schemas import metrics
from moescope.schemas.metrics import Metric


@dataclass(frozen=True, slots=True)
class Missing:
    """A section without data.

    Attributes:
        title: what is not there.
        metrics: rows of the registry that would fill it.
        way_out: who would report them.
    """

    title: str
    metrics: tuple[Metric, ...]
    way_out: str


REQUESTS: Final = Missing(
    "No request finished",
    (metrics.TIME_TO_FIRST_TOKEN, metrics.REQUEST_DURATION, metrics.REQUESTS_FINISHED),
    "The front end of an engine reports them: vLLM and SGLang do once the package is in their "
    "environment. Of an engine that cannot be touched `moescope scrape` reads the `/metrics` page.",
)
RANK_LOAD: Final = Missing(
    "What each rank has to do is not known",
    (metrics.EXPERT_TOKENS, metrics.EXPERT_REPLICAS),
    "It is the expert load times the placement: every hook counts the one, and each rank reports the other "
    "when it starts and every few minutes.",
)
RANK_TIMES: Final = Missing(
    "No rank timed its forward passes",
    (metrics.STEP_DURATION, metrics.DISPATCH_DURATION),
    "Ranks time a random sample of them (`MOESCOPE_TIMING_SAMPLE`). Inside a replayed CUDA graph nothing can "
    "be timed.",
)
LOAD: Final = Missing(
    "How many requests run and wait is not stored",
    (metrics.REQUESTS_RUNNING, metrics.REQUESTS_WAITING),
    "A scheduler or front end reports both, or `moescope scrape` reads them.",
)
INSIDE: Final = Missing(
    "No dispatch, combine or step was timed",
    (metrics.DISPATCH_DURATION, metrics.STEP_DURATION),
    "Ranks time a random sample of their forward passes (`MOESCOPE_TIMING_SAMPLE`). Inside a replayed "
    "CUDA graph nothing can be timed.",
)
TRAFFIC: Final = Missing(
    "No rank reported what it sends to the others",
    (metrics.RANK_IO, metrics.RANK_TOKENS, metrics.RANK_ASSIGNMENTS),
    "Ranks with expert parallelism count it unless `MOESCOPE_RANK_TRAFFIC=0`. A single rank has nobody "
    "to send to.",
)
WAITS: Final = Missing(
    "No rank reported whom it waited for",
    (metrics.DISPATCH_WAIT,),
    "Only an all-to-all that measures its waits by peer can say so: DeepEP's low-latency kernels do.",
)
POOLS: Final = Missing(
    "No rank reported its memory by pool",
    (metrics.MEMORY_USAGE, metrics.MEMORY_LIMIT),
    "vLLM's and SGLang's hooks report it once the model is loaded.",
)
CACHES: Final = Missing(
    "No cache reported how full it is",
    (metrics.KDA_STATE_SLOTS, metrics.MLA_KV_CACHE_BLOCKS),
    "The scheduler of an engine reports both kinds, each where the model has it.",
)
PREFIX_CACHE: Final = Missing(
    "Nothing was looked up in a prefix cache",
    (metrics.PREFIX_CACHE_TOKENS,),
    "The front end reports it for every request, if the engine's prefix cache is on.",
)
PLACEMENT: Final = Missing(
    "No rank said which experts it holds",
    (metrics.EXPERT_REPLICAS,),
    "Every hook repeats its rank's placement within minutes; until then nobody knows what would be lost.",
)
TOKENS: Final = Missing(
    "No rank reported the tokens that it computed",
    (metrics.TOKENS,),
    "Every hook counts them at each step; `moescope doctor` says what is missing.",
)
GPUS: Final = Missing(
    "No GPU was read",
    (metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_USAGE, metrics.GPU_IO),
    "Ranks read theirs through NVML where there is one, unless `MOESCOPE_GPU_METRICS=0`.",
)


def show_missing(missing: Missing) -> None:
    """Say what is missing in this window and how to get it."""
    names = ", ".join(f"`{metric.name}`" for metric in missing.metrics)
    st.info(f"{missing.title} in this window: {names}. {missing.way_out}", icon=":material/info:")
