import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.schemas.attributes import Phase
from moescope.schemas.topology import MODEL_SHAPES, every_layer_from
from moescope.simulator.expert_load import (
    HotExpert,
    SimulatedExpertLoad,
    draw_counts,
    inclusion_chances,
    plant_hot_expert,
)

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


@given(tokens=st.integers(1, 9973), factor=st.sampled_from([1.0, 1e2, 1e9]), seed=st.integers(0, 99))
def test_no_expert_is_chosen_by_more_than_every_token(tokens: int, factor: float, seed: int):
    hot = HotExpert(layer=1, expert=5, factor=factor)
    counts = SimulatedExpertLoad(SHAPE, seed, (hot,)).draw(0, Phase.PREFILL, tokens)

    assert counts.min() >= 0
    assert counts.max() <= tokens
    assert counts.sum(axis=1).tolist() == [tokens * 2] * 3


def gumbel_top_k(rng: np.random.Generator, weights: np.ndarray, top_k: int, tokens: int) -> np.ndarray:
    """What independent tokens choose, one by one: the sampling that :func:`draw_counts` stands in for."""
    keys = np.log(weights) - np.log(rng.exponential(size=(tokens, len(weights))))
    return np.argsort(-keys, axis=1)[:, :top_k]


@pytest.mark.parametrize(("experts", "top_k", "sigma"), [(13, 3, 0.7), (79, 8, 1.0), (8, 2, 0.4)])
def test_chances_are_those_of_exact_sampling_without_replacement(experts: int, top_k: int, sigma: float):
    rng = np.random.default_rng(13)
    weights = np.exp(rng.normal(0, sigma, experts))
    chosen = gumbel_top_k(rng, weights, top_k, 60_000)
    exact = np.bincount(chosen.ravel(), minlength=experts) / len(chosen)

    chances = inclusion_chances(weights[None], top_k)[0]

    assert chances.sum() == pytest.approx(top_k)
    assert np.abs(chances - exact).max() < 0.02
    assert np.abs(chances / exact - 1)[exact > 0.02].max() < 0.1


@pytest.mark.parametrize("tokens", [1, 5, 23, 79, 331])
def test_counts_of_a_window_vary_as_those_of_exact_sampling(tokens: int):
    rng = np.random.default_rng(23)
    weights = np.exp(rng.normal(0, 0.7, 13))
    draws = max(1500, 20_000 // tokens)
    chosen = gumbel_top_k(rng, weights, 3, draws * tokens).reshape(draws, -1)
    exact = np.array([np.bincount(row, minlength=13) for row in chosen])

    ours = draw_counts(rng, np.tile(inclusion_chances(weights[None], 3), (draws, 1)), tokens, 3)

    assert np.abs(ours.mean(axis=0) / exact.mean(axis=0) - 1).max() < 0.1
    spread = ours.std(axis=0) / exact.std(axis=0)
    assert spread.min() > 0.85
    assert spread.max() < 1.15


def test_tokens_of_one_request_resemble_each_other():
    rng = np.random.default_rng(7)
    chances = np.tile(inclusion_chances(np.ones((1, 79)), 8), (400, 1))

    alone = draw_counts(rng, chances, 997, 8).var(axis=0).mean()
    clustered = draw_counts(rng, chances, 997, 8, clustered=40.0).var(axis=0).mean()

    assert clustered / alone == pytest.approx(1 + 40 * 8 / 79, rel=0.15)


def test_experts_without_a_copy_are_chosen_by_nobody():
    load = SimulatedExpertLoad(SHAPE, 7)
    is_available = np.ones((3, 13), dtype=np.bool_)
    is_available[2, 4:9] = False
    load.set_available(is_available)

    counts = load.draw(0, Phase.DECODE, 997)

    assert counts[2, 4:9].tolist() == [0] * 5
    assert counts.sum(axis=1).tolist() == [997 * 2] * 3


def test_topic_shift_changes_what_is_popular_more_than_an_hour_of_drift():
    def distance(change) -> float:
        load = SimulatedExpertLoad(MODEL_SHAPES["deepseek-v3"], 7)
        before = load.chances(Phase.DECODE).copy()
        change(load)
        load.advance(10)
        return float(np.abs(load.chances(Phase.DECODE) - before).mean())

    shifted = distance(lambda load: setattr(load, "is_shifted", True))
    drifted = distance(lambda load: [load.advance(60) for _ in range(60)])

    assert shifted > 2 * drifted


@pytest.mark.parametrize(
    ("model", "layer", "expert"),
    [("kimi-k3", 40, 347), ("deepseek-v3", 40, 128), ("mixtral", 16, 4)],
)
def test_planted_expert_is_the_documented_one(model: str, layer: int, expert: int):
    hot = plant_hot_expert(MODEL_SHAPES[model], ranks=8)

    assert (hot.layer, hot.expert) == (layer, expert)
