"""Which rank of a vLLM deployment this process is, and what it has to report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moescope.schemas.attributes import Role
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import RankGrid

_ROLES = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}


@dataclass(frozen=True, slots=True)
class Ranks:
    """This worker's place.

    ``is_sequence_parallel`` says that the tensor-parallel ranks share the rows of a batch among them instead
    of each routing all of it.
    """

    dp_rank: int
    dp_size: int
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    ep_rank: int
    ep_size: int
    is_sequence_parallel: bool = False

    @property
    def sp_size(self) -> int:
        """Ranks that share the rows of one batch."""
        return self.tp_size if self.is_sequence_parallel else 1

    @property
    def counts(self) -> bool:
        """Whether this rank counts: tensor-parallel ranks route the same tokens, so only the first does."""
        return self.tp_rank == 0 or self.is_sequence_parallel

    @property
    def reports(self) -> bool:
        """Whether it reports at all: a rank that counts nothing may still hold experts."""
        return self.counts or self.ep_size > 1

    @property
    def exchanges(self) -> bool:
        """Whether tokens travel between the EP ranks; tensor-parallel ranks alone all have them already."""
        return self.ep_size > 1 and (self.dp_size > 1 or self.is_sequence_parallel)

    def grid(self, ep_group: str) -> RankGrid:
        """Its place in its EP group; each pipeline stage has a group of its own."""
        name = f"{ep_group}-pp{self.pp_rank}" if self.pp_size > 1 else ep_group
        return RankGrid(name, self.ep_rank, self.ep_size)


def find_ranks(vllm_config: Any, *, is_sequence_parallel: bool) -> Ranks:
    """Read the ranks from vLLM's process groups.

    Raises:
        EngineNotSupportedError: the rows of a batch reach the router in an order that the hook cannot follow.
    """
    from vllm.distributed import parallel_state  # noqa: PLC0415 - engines are imported where they are there

    config = vllm_config.parallel_config
    if config.use_ubatching:
        raise EngineNotSupportedError("dual-batch overlap is on; serve without --enable-dbo to count experts")
    if config.prefill_context_parallel_size > 1:
        raise EngineNotSupportedError(
            "prefill context parallelism is on; serve with --prefill-context-parallel-size 1 to count experts"
        )
    tp_group, pp_group = parallel_state.get_tp_group(), parallel_state.get_pp_group()
    ep_rank, ep_size = 0, 1
    if config.enable_expert_parallel:
        ep_group = parallel_state.get_ep_group()
        ep_rank, ep_size = ep_group.rank_in_group, ep_group.world_size
    return Ranks(
        dp_rank=config.data_parallel_rank,
        dp_size=config.data_parallel_size,
        tp_rank=tp_group.rank_in_group,
        tp_size=tp_group.world_size,
        pp_rank=pp_group.rank_in_group,
        pp_size=pp_group.world_size,
        ep_rank=ep_rank,
        ep_size=ep_size,
        is_sequence_parallel=is_sequence_parallel,
    )


def name_of_model(vllm_config: Any) -> str:
    """The name that the model is served under; the folder's name where that is a path."""
    served = vllm_config.model_config.served_model_name
    name = str(served[0] if isinstance(served, list) else served)
    return Path(name).name if Path(name).is_absolute() else name


def role_of(vllm_config: Any) -> Role:
    """Which phases this engine serves, from its KV transfer role."""
    transfer = vllm_config.kv_transfer_config
    return _ROLES.get(getattr(transfer, "kv_role", None) or "", Role.MIXED)
