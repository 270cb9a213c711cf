"""What a person asks of a plan, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from moescope.analysis.replication import CoverNodes
from moescope.planning.amounts import MoveLimit
from moescope.schemas.errors import UsageError


class OutputFormat(StrEnum):
    """What ``--format`` takes."""

    TEXT = "text"
    JSON = "json"
    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"

    @property
    def is_engine(self) -> bool:
        """Whether it is an engine's own file."""
        return self not in {OutputFormat.TEXT, OutputFormat.JSON}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The options of ``moescope plan`` that shape the plan; None where nobody said."""

    ranks: int | None = None
    redundant_experts: int | None = None
    slots_per_rank: tuple[int, ...] | None = None
    max_moved: MoveLimit | None = None
    memory_budget_bytes: float | None = None
    expert_bytes: float | None = None
    nodes: int | None = None
    expert_groups: int = 1
    cover_nodes: CoverNodes = CoverNodes.NONE
    current_file: Path | None = None
    windows: int | None = None
    time_budget_seconds: float = 20.0
    is_split_uneven: bool = False
    output_format: OutputFormat = OutputFormat.TEXT

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            UsageError: two options that exclude each other; the message names both.
        """
        if self.slots_per_rank is not None and self.redundant_experts is not None:
            raise UsageError("--slots-per-rank says how many slots there are; leave --redundant-experts out")
        is_uneven = self.slots_per_rank is not None and len(set(self.slots_per_rank)) > 1
        if is_uneven and self.output_format.is_engine:
            raise UsageError(
                f"--format {self.output_format}: engines give every rank the same slots; plan with equal "
                "--slots-per-rank or with --redundant-experts, or write --format json"
            )
        if self.max_moved is not None:
            self._check_incremental()

    def _check_incremental(self) -> None:
        """A re-plan keeps what the current placement has; it knows no such rules."""
        for option, is_set in (
            ("--memory-budget", self.memory_budget_bytes is not None),
            ("--cover-nodes", self.cover_nodes is not CoverNodes.NONE),
            ("--expert-groups", self.expert_groups > 1),
        ):
            if is_set:
                raise UsageError(f"--max-moved and {option} cannot be kept together; leave one of them out")
