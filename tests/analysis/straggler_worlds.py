"""Ranks that are late by known amounts, and what they wait for one another, with seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from moescope.analysis.straggler_evidence import RankTimes, StragglerEvidence
from moescope.schemas.attributes import DispatchStage, Phase

DEEPEP_FILE = Path(__file__).resolve().parents[3] / "shared/data/deepep/pr311_ep16_dispatch_wait.json"
LAYERS, PASSES, PASS_SECONDS = 23, 790, 0.05
DISPATCH, COMBINE = DispatchStage.DISPATCH, DispatchStage.COMBINE
DENSE_SECONDS, EXPERT_SECONDS, TOKEN_SECONDS = 4e-4, 3e-4, 3e-7
"""Of a layer on an ordinary rank: attention; reading its experts; each assignment."""
TOKENS = 1_000.0
"""Assignments of a rank and layer in a pass, on average."""
NETWORK_SECONDS = 2e-3
"""A way to another node takes that much longer, where there are several."""


@dataclass
class World:
    """A fleet in which every layer of every pass begins together, as in an engine that runs in lock step.

    Attributes:
        slow: by rank, multiples of an ordinary rank's time.
        load: by rank, multiples of an ordinary rank's assignments, in all layers.
        hot: by (layer, rank), the same in one.
        links: by (waiting, sender), seconds of each exchange more.
        silent: ranks whose rows are missing; ``dead`` ones nobody waits for either.
        from_window, until_window: when ``slow`` and ``links`` hold.
        jitter: seconds of a layer that a rank is late by chance on average, gamma(4): its own in all windows.
        gusts: likewise, drawn again for each window.
        sampling: spread of times of which a few passes are measured, as part of them.
    """

    ranks: int = 8
    per_node: int | None = None
    knows_hosts: bool = True
    windows: int = 7
    seed: int = 0
    slow: Mapping[int, float] = field(default_factory=dict)
    load: Mapping[int, float] = field(default_factory=dict)
    hot: Mapping[tuple[int, int], float] = field(default_factory=dict)
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    from_window: int = 0
    until_window: int = 1_000
    jitter: float = 4e-6
    gusts: float = 0.0
    sampling: float = 0.0

    def evidence(self, parts: str = "waits times calls experts loads", *, cycles: bool = False):
        """What the ranks report of themselves: only ``parts`` of it."""
        rng = np.random.default_rng([79, self.seed])
        bias = rng.gamma(4, self.jitter / 4, self.ranks)
        share = rng.lognormal(0, 0.1, (LAYERS, self.ranks))
        for rank, times in self.load.items():
            share[:, rank] *= times
        for (layer, rank), times in self.hot.items():
            share[layer, rank] *= times
        loads = TOKENS * share / share.mean(axis=1, keepdims=True)
        rows = [self._window(rng, window, bias, loads) for window in range(self.windows)]
        waits, calls, experts = ([row[part] for row in rows] for part in range(3))
        shape = self.windows, self.ranks
        known = np.ones(self.ranks, dtype=bool)
        known[[*self.silent, *self.dead]] = False
        passes = np.where(known, PASSES + rng.integers(-7, 8, shape), np.nan)
        times = RankTimes(
            passes=passes,
            pass_seconds=np.where(known, np.full(shape, PASS_SECONDS), np.nan),
            pass_tokens=np.where(known, 13.0 * rng.lognormal(0, 0.1, shape), np.nan),
            call_seconds={
                stage: np.where(known, np.stack([one[stage] for one in calls]), np.nan)
                for stage in DispatchStage
                if "calls" in parts
            },
            expert_seconds=np.where(known, np.stack(experts), np.nan) if "experts" in parts else None,
            loads=loads * PASSES if "loads" in parts else None,
        )
        return StragglerEvidence(
            ranks=np.arange(self.ranks),
            starts_ms=60_000 * np.arange(self.windows),
            window_seconds=60.0,
            waits={
                stage: np.where(known[None, :, None], np.stack([one[stage] for one in waits]), np.nan)
                * (1.7e9 if cycles else 1.0)
                for stage in DispatchStage
                if "waits" in parts
            },
            waits_are_time=not cycles,
            hosts=tuple(f"node-{self.node(rank)}" if self.knows_hosts else "" for rank in range(self.ranks)),
            times={Phase.DECODE: times} if "times" in parts else {},
        )

    def node(self, rank: int) -> int:
        return rank // (self.per_node or self.ranks)

    def _window(self, rng, window, bias, loads):
        bias = bias + rng.gamma(4, self.gusts / 4, self.ranks)
        is_on = self.from_window <= window < self.until_window
        slowness = np.ones(self.ranks)
        for rank, times in self.slow.items():
            slowness[rank] = times if is_on else 1.0
        dense = (DENSE_SECONDS + rng.normal(0, 3e-6, (LAYERS, self.ranks))) * slowness
        experts = (EXPERT_SECONDS + TOKEN_SECONDS * loads) * slowness * rng.lognormal(0, 0.01, loads.shape)
        nodes = np.array([self.node(rank) for rank in range(self.ranks)])
        way = NETWORK_SECONDS * (nodes[:, None] != nodes[None, :])
        for (waiting, sender), seconds in self.links.items():
            way[waiting, sender] += seconds if is_on else 0.0
        found = {}, {}
        for stage, ready in ((DISPATCH, dense), (COMBINE, experts)):
            late = ready[:, None, :] - ready[:, :, None] + way
            waits = (np.maximum(late, 0) + bias[None, None, :] * rng.lognormal(0, 0.2, late.shape)).sum(
                axis=0
            )
            waits[:, list(self.dead)] = 0.0
            np.fill_diagonal(waits, 0.0)
            found[0][stage] = waits * PASSES
            found[1][stage] = 2e-5 + np.maximum(late, 0).max(axis=2).mean(axis=0)
            found[1][stage] *= rng.lognormal(0, self.sampling, self.ranks)
        return *found, experts * rng.lognormal(0, self.sampling, experts.shape)


def deepep_evidence(hosts: bool, windows: int = 5) -> StragglerEvidence:
    """The published matrix of DeepEP's pull request 311: cycles, seven of sixteen rows, rank 2 is slow."""
    data = json.loads(DEEPEP_FILE.read_text())
    waits = np.full((data["ep_size"], data["ep_size"]), np.nan)
    waits[: len(data["rows"])] = data["rows"]
    return StragglerEvidence(
        ranks=np.arange(16),
        starts_ms=60_000 * np.arange(windows),
        window_seconds=60.0,
        waits={DISPATCH: np.stack([waits] * windows)},
        waits_are_time=False,
        hosts=tuple(f"node-{rank // 8}" if hosts else "" for rank in range(16)),
    )
