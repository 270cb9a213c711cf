"""The forward pass under way: what its rows are, and which phase its numbers count for.

A pass has one time, and often rows of both phases. What cannot be divided, its duration and that of its
exchanges, counts for prefill as soon as one of its rows computes a prompt: prompts make a pass long. What can
be divided by rows is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moescope.collector.expert_load import Row, Segment
from moescope.schemas.attributes import PHASE, Phase
from moescope.schemas.records import Attributes, IntArray

PHASE_ATTRIBUTES: Final[dict[Phase, Attributes]] = {phase: {PHASE: phase.value} for phase in Phase}


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What the rows of one pass are; no rows of load in a warm-up or dummy pass."""

    prefill_rows: int = 0
    decode_rows: int = 0

    @property
    def load_rows(self) -> int:
        """Rows that are load."""
        return self.prefill_rows + self.decode_rows

    @property
    def phase(self) -> Phase:
        """What counts once, counts for this phase."""
        return Phase.PREFILL if self.prefill_rows else Phase.DECODE

    def share(self, amounts: IntArray) -> dict[Phase, IntArray]:
        """Divide whole numbers by the rows of the phases that there are; nothing is lost."""
        if not (self.prefill_rows and self.decode_rows):
            return {self.phase: amounts}
        prefill = amounts * self.prefill_rows // self.load_rows
        return {Phase.PREFILL: prefill, Phase.DECODE: amounts - prefill}


NO_LOAD: Final = ForwardPass()


def pass_of(segments: Sequence[Segment]) -> ForwardPass:
    """Read the segments of :meth:`moescope.collector.recorder.Recorder.begin_step`."""
    return ForwardPass(
        prefill_rows=sum(tokens for row, tokens in segments if row is Row.PREFILL),
        decode_rows=sum(tokens for row, tokens in segments if row is Row.DECODE),
    )
