"""What simulated ranks send each other: assignments, tokens sent once, bytes. Mirrored to the byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.serving import ServingFacts


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """Traffic of one phase and window, int64 ``[ep_size, ep_size]``: row = the rank whose tokens they are.

    Attributes:
        assignments: (token, expert) pairs by the rank that computes them, its own included.
        tokens: the same tokens, each once per rank and layer.
        sent: bytes from row to column: tokens on their way out and results on their way back.
    """

    assignments: IntArray
    tokens: IntArray
    sent: IntArray

    @property
    def received(self) -> IntArray:
        """Bytes that row received from column."""
        return self.sent.T


def distinct_tokens(assignments: IntArray, share: FloatArray, reach: FloatArray, top_k: int) -> IntArray:
    """Tokens that a rank sends to each peer, once per layer however many of their experts live there.

    Args:
        assignments: int64 ``[num_moe_layers, ep_size]``: of one rank's tokens.
        share: float64, same shape: assignments that one token brings to the peer, on average.
        reach: float64, same shape: chance that it brings any.
        top_k: experts per token.

    Returns:
        int64 ``[ep_size]``, summed over the layers; between assignments / top_k and assignments.
    """
    once = np.divide(reach, share, out=np.zeros_like(reach), where=share > 0)
    summed: IntArray = assignments.sum(axis=0)
    expected = np.rint((assignments * once).sum(axis=0)).astype(np.int64)
    tokens: IntArray = np.clip(expected, -(-summed // top_k), summed)
    return tokens


def make_traffic(assignments: IntArray, tokens: IntArray, facts: ServingFacts) -> RankTraffic:
    """Count the bytes of ``tokens`` ``[ep_size, ep_size]``; what stays on its rank crosses no link."""
    away = tokens.copy()
    np.fill_diagonal(away, 0)
    return RankTraffic(assignments, tokens, away * facts.dispatch_bytes + away.T * facts.combine_bytes)
