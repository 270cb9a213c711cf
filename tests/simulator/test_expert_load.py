import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.schemas.attributes import Phase
from moescope.schemas.topology import MODEL_SHAPES, every_layer_from
from moescope.simulator.expert_load import HotExpert, SimulatedExpertLoad, plant_hot_expert

SHAPE = every_layer_from("tiny", 0, 3, num_experts=13, top_k=2)


def test_same_seed_gives_the_same_counts_to_the_token():
    def draw(seed: int):
        load = SimulatedExpertLoad(SHAPE, seed)
        load.advance(10)
        load.advance(10)
        return load.draw(3, Phase.DECODE, 79)

    assert (draw(7) == draw(7)).all()
    assert (draw(7) != draw(8)).any()


@given(tokens=st.integers(0, 997), seed=st.integers(0, 99))
def test_each_layer_sums_to_tokens_times_top_k(tokens: int, seed: int):
    counts = SimulatedExpertLoad(SHAPE, seed).draw(0, Phase.PREFILL, tokens)

    assert counts.sum(axis=1).tolist() == [tokens * 2] * 3


def test_ranks_phases_and_windows_differ():
    load = SimulatedExpertLoad(SHAPE, 7)
    first = load.draw(0, Phase.DECODE, 997)
    other_rank = load.draw(1, Phase.DECODE, 997)
    other_phase = load.draw(0, Phase.PREFILL, 997)
    load.advance(10)
    other_window = load.draw(0, Phase.DECODE, 997)

    for other in (other_rank, other_phase, other_window):
        assert (first != other).any()


def test_popularity_drifts_slowly():
    load = SimulatedExpertLoad(MODEL_SHAPES["mixtral"], 7)
    before = load.draw(0, Phase.DECODE, 100_000) / 200_000
    load.advance(10)
    soon = load.draw(0, Phase.DECODE, 100_000) / 200_000
    for _ in range(60):
        load.advance(600)
    later = load.draw(0, Phase.DECODE, 100_000) / 200_000

    assert np.abs(soon - before).mean() < np.abs(later - before).mean()


def test_planted_expert_is_the_most_chosen_of_its_layer():
    hot = HotExpert(layer=1, expert=5, factor=30)
    counts = SimulatedExpertLoad(SHAPE, 7, (hot,)).draw(0, Phase.PREFILL, 997)

    assert counts[1].argmax() == 5
    assert counts[1, 5] > 2 * np.median(counts[1])
    assert counts[0].argmax() != 5 or counts[0, 5] < counts[1, 5]


def test_no_expert_is_chosen_by_more_than_every_token():
    hot = HotExpert(layer=1, expert=5, factor=1e9)
    counts = SimulatedExpertLoad(SHAPE, 7, (hot,)).draw(0, Phase.PREFILL, 9973)

    assert counts.max() <= 9973


@pytest.mark.parametrize(
    ("model", "layer", "expert"),
    [("kimi-k3", 40, 347), ("deepseek-v3", 40, 128), ("mixtral", 16, 4)],
)
def test_planted_expert_is_the_documented_one(model: str, layer: int, expert: int):
    hot = plant_hot_expert(MODEL_SHAPES[model], ranks=8)

    assert (hot.layer, hot.expert) == (layer, expert)
