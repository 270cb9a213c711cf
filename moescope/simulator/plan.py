"""From the words of a command line to a plan, with the way out where a word is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from moescope.schemas.attributes import Role
from moescope.schemas.errors import UsageError
from moescope.schemas.topology import MODEL_SHAPES, ModelShape
from moescope.simulator.expert_load import HotExpert, plant_hot_expert
from moescope.simulator.scenarios import Scenario, ScheduledScenario, hint, parse_scenarios
from moescope.simulator.serving import SERVING_FACTS, ServingFacts

_MOST_RANKS: Final = 128
_FINE_BACKFILL_SECONDS: Final = 3600.0
_COARSE_WINDOWS: Final = 72
"""Windows of a long backfill: at 64 ranks of K3 one is 10 million counts, seconds of the server's work."""


class Roles(StrEnum):
    """Whether each EP group serves both phases, or the first half of them prefill and the others decode."""

    MIXED = "mixed"
    DISAGGREGATED = "disaggregated"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What is simulated.

    Attributes:
        shape: the model.
        ranks: EP ranks of each group.
        ep_groups: EP groups.
        roles: which phases they serve.
        tensor_parallel: neighbouring ranks that compute the same tokens; only the first of them counts, as in
            an engine, and every rank reports which experts it holds.
        redundant_experts: copies beyond one per expert, in each layer of each group.
        service: name of the deployment; empty: the model's name.
        seed: decides everything.
        schedule: what goes wrong, and when.
        requests_per_second: of each data-parallel engine; fewer where the ranks could not serve so many.
    """

    shape: ModelShape
    ranks: int = 8
    ep_groups: int = 1
    roles: Roles = Roles.MIXED
    tensor_parallel: int = 1
    redundant_experts: int = 0
    service: str = ""
    seed: int = 0
    schedule: tuple[ScheduledScenario, ...] = ()
    requests_per_second: float = 1.0

    @property
    def facts(self) -> ServingFacts:
        """What serving the model costs."""
        return SERVING_FACTS[self.shape.name]

    @property
    def service_name(self) -> str:
        """Name of the deployment."""
        return self.service or self.shape.name

    @property
    def hot_experts(self) -> tuple[HotExpert, ...]:
        """What the schedule plants."""
        if self.has(Scenario.HOT_EXPERT):
            return (plant_hot_expert(self.shape, ranks=self.ranks),)
        return ()

    def has(self, scenario: Scenario) -> bool:
        """Whether it is scheduled at any time."""
        return any(item.scenario is scenario for item in self.schedule)

    def role_of(self, group: int) -> Role:
        """What the group of that ordinal serves."""
        if self.roles is Roles.MIXED:
            return Role.MIXED
        return Role.PREFILL if group < (self.ep_groups + 1) // 2 else Role.DECODE


def make_plan(
    *,
    model: str,
    ranks: int,
    tensor_parallel: int,
    scenarios: Sequence[str],
    seed: int,
    service: str | None,
    ep_groups: int = 1,
    roles: str = Roles.MIXED.value,
    redundant_experts: int | None = None,
) -> FleetPlan:
    """Check the arguments and return what to simulate.

    ``redundant_experts`` is one per rank and layer if None and a rank is to die: something must take over.

    Raises:
        UsageError: an unknown model or scenario, or ranks that do not fit.
    """
    if model not in MODEL_SHAPES:
        raise UsageError(f"unknown model {model!r}{hint(model, MODEL_SHAPES)}")
    shape = MODEL_SHAPES[model]
    _check_ranks(shape, ranks, tensor_parallel, ep_groups)
    if roles not in [role.value for role in Roles]:
        raise UsageError(f"unknown roles {roles!r}{hint(roles, [role.value for role in Roles])}")
    if roles == Roles.DISAGGREGATED and ep_groups < 2:
        raise UsageError("--roles disaggregated: prefill and decode need an EP group each; add --ep-groups 2")
    if seed < 0:
        raise UsageError(f"--seed {seed}: a seed is not negative")
    schedule = parse_scenarios(scenarios)
    dies = any(item.scenario is Scenario.DEAD_RANK for item in schedule)
    if dies and ranks < 2:
        raise UsageError("scenario 'dead-rank' needs a rank that stays alive; use --ranks 2 or more")
    if redundant_experts is None:
        redundant_experts = ranks if dies and ranks <= shape.num_experts else 0
    return FleetPlan(
        shape=shape,
        ranks=ranks,
        ep_groups=ep_groups,
        roles=Roles(roles),
        tensor_parallel=tensor_parallel,
        redundant_experts=redundant_experts,
        service=service or "",
        seed=seed,
        schedule=schedule,
    )


def backfill_interval(backfill_seconds: float, asked_seconds: float | None) -> float:
    """Length of a backfill's windows: a minute up to an hour, then so long that there are 72 of them.

    Raises:
        UsageError: the interval that was asked for is none.
    """
    if asked_seconds is not None:
        if asked_seconds <= 0:
            raise UsageError("--backfill-interval: a window has a length; write 30s, 1m or 5m")
        return asked_seconds
    if backfill_seconds <= _FINE_BACKFILL_SECONDS:
        return 60.0
    return max(60.0, math.ceil(backfill_seconds / _COARSE_WINDOWS / 60) * 60.0)


def _check_ranks(shape: ModelShape, ranks: int, tensor_parallel: int, ep_groups: int) -> None:
    if ranks > shape.num_experts:
        raise UsageError(f"{ranks} ranks for {shape.num_experts} experts: some ranks would hold none")
    if ranks % tensor_parallel:
        raise UsageError(f"{ranks} ranks do not divide by a tensor-parallel size of {tensor_parallel}")
    if ranks * ep_groups > _MOST_RANKS:
        raise UsageError(
            f"{ranks} ranks × {ep_groups} EP groups: the simulator is made for up to {_MOST_RANKS} ranks"
        )
