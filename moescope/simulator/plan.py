"""From the words of a command line to a plan, with the way out where a word is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from moescope.schemas.errors import UsageError
from moescope.schemas.topology import MODEL_SHAPES
from moescope.simulator.expert_load import Scenario
from moescope.simulator.fleet import FleetPlan


def make_plan(
    *,
    model: str,
    ranks: int,
    tensor_parallel: int,
    scenarios: Sequence[str],
    seed: int,
    service: str | None,
) -> FleetPlan:
    """Check the arguments and return what to simulate.

    Raises:
        UsageError: an unknown model or scenario, or ranks that do not fit.
    """
    if model not in MODEL_SHAPES:
        raise UsageError(f"unknown model {model!r}{_hint(model, MODEL_SHAPES)}")
    shape = MODEL_SHAPES[model]
    if ranks > shape.num_experts:
        raise UsageError(f"{ranks} ranks for {shape.num_experts} experts: some ranks would hold none")
    if ranks % tensor_parallel:
        raise UsageError(f"{ranks} ranks do not divide by a tensor-parallel size of {tensor_parallel}")
    words = [word.strip() for text in scenarios for word in text.split(",") if word.strip()]
    known = [scenario.value for scenario in Scenario]
    for word in words:
        if word not in known:
            raise UsageError(f"unknown scenario {word!r}{_hint(word, known)}")
    if seed < 0:
        raise UsageError(f"--seed {seed}: a seed is not negative")
    return FleetPlan(
        shape=shape,
        ranks=ranks,
        tensor_parallel=tensor_parallel,
        service=service or "",
        seed=seed,
        scenarios=tuple(dict.fromkeys(Scenario(word) for word in words)),
    )


def _hint(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; use one of: {', '.join(names)}"
