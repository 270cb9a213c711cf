"""A rank's slowness delays the tokens that are routed to it, and nobody else's."""

import itertools

import numpy as np
import pytest

from moescope.schemas.topology import MODEL_SHAPES, every_layer_from
from moescope.simulator.dispatch import wait_ns
from moescope.simulator.serving import SERVING_FACTS, Device
from moescope.simulator.step_time import StepModel, StepTime, chance_of_need, expected_largest

RANKS, SLOW = 4, 3
SHAPE = every_layer_from("tiny", 0, 3, num_experts=8, top_k=1)
DEVICE = Device(80 * 10**9, 2.4e12)


def time(reach: np.ndarray, tokens: list[float], *, slow: float = 1.0, tensor_parallel: int = 1) -> StepTime:
    model = StepModel(SHAPE, SERVING_FACTS["mixtral"], DEVICE, 2, tensor_parallel)
    slowness = np.ones(RANKS)
    slowness[SLOW] = slow
    per_engine = np.array(tokens)
    return model.time(reach, reach, tokens=per_engine.sum(), tokens_per_engine=per_engine, slowness=slowness)


def test_engine_whose_tokens_never_need_the_slow_rank_is_not_delayed():
    reach = np.tile([0.5, 0.25, 0.25, 0.0], (3, 1))
    healthy, slow = (time(reach, [1, 5, 13, 23], slow=factor) for factor in (1.0, 2.5))

    assert slow.engines[:SLOW].tolist() == healthy.engines[:SLOW].tolist()
    assert slow.engines[SLOW] > healthy.engines[SLOW], "its own attention is slow"


def test_an_engine_waits_for_the_slow_rank_with_the_chance_that_its_tokens_are_routed_there():
    reach = np.full((3, RANKS), 0.25)
    tokens = [1.0, 2.0, 5.0, 1.0]
    healthy, slow = (time(reach, tokens, slow=factor) for factor in (1.0, 2.5))

    experts, dense = healthy.experts[0, 0], healthy.dense[0]
    for engine, count in enumerate(tokens[:SLOW]):
        chance = 1 - 0.75**count
        extra = 3 * chance * (1.5 * dense + 2.5 * experts)
        # Where it is not needed, or healthy, one of the others is waited for if any is needed.
        others = 1 - 0.75 ** (3 * count)
        assert slow.engines[engine] - healthy.engines[engine] == pytest.approx(
            extra + 3 * ((1 - chance) * others - (1 - 0.75 ** (4 * count))) * experts
        )


def test_each_layer_adds_a_chance_to_wait():
    reach = np.zeros((3, RANKS))
    reach[:, 0] = 1.0
    delays = []
    for layers in (1, 2, 3):
        reach[:layers, SLOW] = 0.25
        healthy, slow = (time(reach, [1.0] * RANKS, slow=factor) for factor in (1.0, 2.5))
        delays.append(slow.engines[1] - healthy.engines[1])

    assert delays == pytest.approx([delays[0], 2 * delays[0], 3 * delays[0]])


@pytest.mark.parametrize(
    ("model", "ranks", "tokens", "least", "most"),
    [("gpt-oss", 64, 1, 0.03, 0.07), ("kimi-k3", 64, 1, 0.2, 0.25), ("kimi-k3", 64, 79, 1 - 1e-8, 1.0)],
)
def test_small_batches_of_few_active_experts_may_do_without_a_rank(
    model: str, ranks: int, tokens: int, least: float, most: float
):
    shape = MODEL_SHAPES[model]
    reach = np.full((1, ranks), 1 - (1 - shape.top_k / shape.num_experts) ** (shape.num_experts / ranks))

    need = chance_of_need(reach, np.array([float(tokens)]))[0, 0, 5]

    assert least < need <= most
    assert need == pytest.approx(1 - (1 - reach[0, 5]) ** tokens)


def test_expected_largest_is_that_of_every_combination():
    values, chances = np.array([3.0, 13.0, 5.0]), np.array([0.5, 0.25, 0.875])
    exact = sum(
        max([*values[np.array(there)], 0.0]) * np.prod(np.where(there, chances, 1 - chances))
        for there in itertools.product([False, True], repeat=3)
    )

    assert expected_largest(values, chances) == pytest.approx(exact)


def test_parts_of_a_layer_add_up_where_every_rank_is_needed():
    step = time(np.ones((3, RANKS)), [13.0] * RANKS, slow=2.5)

    parts = step.dispatch_seconds() + step.combine_seconds() + step.dense[:, None] + step.experts.T
    assert parts.sum(axis=1) == pytest.approx(step.engines)


def test_ranks_of_the_slow_ranks_engine_are_slow_together():
    reach = np.tile([1.0, 0.0, 0.0, 0.0], (3, 1))
    healthy, slow = (time(reach, [5, 5], slow=factor, tensor_parallel=2) for factor in (1.0, 2.5))

    assert slow.engines[0] == healthy.engines[0]
    assert slow.engines[1] > healthy.engines[1]


def test_nobody_waits_for_a_rank_that_its_tokens_do_not_need():
    reach = np.tile([1.0, 1.0, 1.0, 0.0], (3, 1))
    reach[1, 2] = 0.0
    step = time(reach, [5.0] * RANKS, slow=2.5)
    alive = np.ones(RANKS, dtype=np.bool_)

    waits = wait_ns(step, np.full(RANKS, 13), np.zeros(RANKS), alive)

    assert waits["combine"][:, SLOW].tolist() == [0] * RANKS, "it has no expert that they chose"
    late = 1.5 * step.dense[0]
    expected = [13 * 3 * late * 1e9, 13 * 3 * late * 1e9, 13 * 2 * late * 1e9, 0]
    assert waits["dispatch"][:, SLOW] == pytest.approx(expected, abs=1), "its tokens come late"


def test_nobody_waits_for_the_dead_and_they_for_nobody():
    step = time(np.full((3, RANKS), 0.25), [5.0] * RANKS)
    is_alive = np.array([True, False, True, True])

    for wait in wait_ns(step, np.full(RANKS, 13), np.full(RANKS, 4e-6), is_alive).values():
        assert wait[:, 1].tolist() == wait[1].tolist() == [0] * RANKS
        assert (wait[0, 2:] >= 13 * 3 * 4000).all()
