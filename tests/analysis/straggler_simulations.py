"""What the simulator's EP groups would report, without processes, sockets and a store."""

from __future__ import annotations

import numpy as np

from moescope.analysis.straggler_evidence import RankTimes, StragglerEvidence
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.topology import MODEL_SHAPES
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.plan import FleetPlan
from moescope.simulator.rank import GPUS_PER_NODE
from moescope.simulator.scenarios import active, parse_scenarios

MINUTE = 60.0


def simulate(
    *scenarios: str,
    model: str = "gpt-oss",
    ranks: int = 8,
    minutes: int = 6,
    seed: int = 0,
) -> StragglerEvidence:
    """Run one group for some minutes and put together what its ranks report."""
    plan = FleetPlan(
        shape=MODEL_SHAPES[model],
        ranks=ranks,
        seed=seed,
        schedule=parse_scenarios(scenarios),
    )
    group = SimulatedGroup(plan, 0, "0")
    group.warm_up()
    windows, alive = [], []
    for minute in range(minutes):
        start, end = minute * MINUTE, (minute + 1) * MINUTE
        windows.append(group.advance(start, end, active(plan.schedule, start, end)))
        alive.append(group.is_alive.copy())
    reports = np.stack(alive)
    waits = {
        stage: np.where(reports[:, :, None], np.stack([one.wait[stage] for one in windows]) / 1e9, np.nan)
        for stage in DispatchStage
    }
    times = [_times([one.phases[index] for one in windows], reports) for index in range(2)]
    return StragglerEvidence(
        ranks=np.arange(ranks),
        starts_ms=(1_000 * MINUTE * np.arange(minutes)).astype(np.int64),
        window_seconds=MINUTE,
        waits=waits,
        hosts=tuple(f"node-{rank // GPUS_PER_NODE}" for rank in range(ranks)),
        times=dict(zip((Phase.PREFILL, Phase.DECODE), times, strict=True)),
    )


def _times(phases: list, reports: np.ndarray) -> RankTimes:
    passes = np.stack([one.steps for one in phases]).astype(float)
    tokens = np.stack([one.tokens for one in phases])
    newest = phases[-5:]
    return RankTimes(
        passes=np.where(reports, passes, np.nan),
        pass_seconds=np.where(reports, np.stack([one.step.engines for one in phases]), np.nan),
        pass_tokens=np.where(reports, tokens / np.maximum(passes, 1), np.nan),
        call_seconds={
            stage: np.where(
                reports,
                np.stack([one.calls[stage][1] / np.maximum(one.calls[stage][0].sum(1), 1) for one in phases]),
                np.nan,
            )
            for stage in DispatchStage
        },
        expert_seconds=np.where(reports[:, None], np.stack([one.step.experts for one in phases]), np.nan),
        loads=np.sum([one.share * one.tokens.sum() for one in newest], axis=0),
    )
