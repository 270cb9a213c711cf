"""What the loss of ranks does: known small cases, and what must hold for every placement."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.failover_impact import FailoverStrategy, lose_ranks
from moescope.analysis.failover_reload import EMPTY, NO_SLOT
from moescope.analysis.failover_share import share_of_requests_hit, share_of_tokens_hit
from moescope.analysis.failover_survivors import choose_next_best
from moescope.schemas.errors import ShapeError
from moescope.schemas.topology import Placement, every_layer_from, place_contiguously

REASSIGN, BLOCK, FALLBACK = FailoverStrategy
CONTIGUOUS = place_contiguously(every_layer_from("known", 0, 2, num_experts=8, top_k=2), 4)
"""Two layers, four ranks of two experts each, no copies."""
EVEN = np.full((2, 8), 79)


def placed(*slots_of_ranks: list[int]) -> np.ndarray:
    """Replicas ``[ranks, 1, experts]`` of one layer."""
    slots = max(map(len, slots_of_ranks))
    table = [slot for rank in slots_of_ranks for slot in rank + [-1] * (slots - len(rank))]
    experts = max(table) + 1
    return Placement(np.array([table]), len(slots_of_ranks), experts).replicas_per_rank_layer_expert()


def test_rank_without_redundancy_takes_its_experts_with_it():
    impact = lose_ranks(EVEN, CONTIGUOUS.replicas_per_rank_layer_expert(), [1], top_k=2, strategy=BLOCK)

    assert np.flatnonzero(impact.is_lost[0]).tolist() == [2, 3]
    assert impact.lost_experts.tolist() == [2, 2]
    assert impact.traffic_share == 0.25
    assert impact.traffic_share_by_layer.tolist() == [0.25, 0.25]
    assert impact.taken_over_share == 0


def test_far_more_tokens_are_hit_than_assignments():
    impact = lose_ranks(EVEN, CONTIGUOUS.replicas_per_rank_layer_expert(), [1], top_k=2, strategy=BLOCK)

    spared_in_a_layer = (1 - 0.25) ** 2
    assert impact.tokens_hit.expected == pytest.approx(1 - spared_in_a_layer**2)
    assert impact.tokens_hit.low == pytest.approx(0.25), "both choices of a token may be the two lost ones"
    assert impact.tokens_hit.high == 1


def test_requests_lie_between_tokens_that_choose_alike_and_independent_ones():
    share = share_of_tokens_hit(np.array([[999, 1]]), np.array([[False, True]]), 1)
    requests = share_of_requests_hit(share, 1000)

    assert requests.alike == pytest.approx(0.001)
    assert requests.independent == pytest.approx(1 - 0.999**1000)


def test_expert_that_every_token_chooses_hits_every_token():
    tokens = np.array([[100, 60, 40]])
    share = share_of_tokens_hit(tokens, np.array([[True, False, False]]), 2)

    assert share.low == share.expected == share.high == 1


def test_surviving_copies_take_the_load_evenly():
    replicas = placed([0, 1, 4], [2, 3, 0], [4, 0, 5])
    tokens = np.array([[90, 10, 20, 30, 40, 50]])
    impact = lose_ranks(tokens, replicas, [2], top_k=2, strategy=BLOCK)

    assert np.flatnonzero(impact.is_covered[0]).tolist() == [0, 4]
    assert np.flatnonzero(impact.is_lost[0]).tolist() == [5]
    assert impact.taken_over_share == pytest.approx((90 / 3 + 40 / 2) / 240)
    assert impact.rank_loads_before[0].tolist() == [30 + 10 + 20, 20 + 30 + 30, 20 + 30 + 50]


def test_lost_expert_is_loaded_into_an_empty_slot_of_the_least_loaded_rank():
    replicas = placed([0, 1], [2], [3, 4])
    tokens = np.array([[5, 5, 50, 7, 3]])
    impact = lose_ranks(tokens, replicas, [2], top_k=2, bytes_per_expert=13.0, free_bytes=np.zeros(3))
    load = impact.reload

    assert list(zip(load.expert, load.rank, load.replaced, strict=True)) == [(3, 1, EMPTY), (4, 0, NO_SLOT)]
    assert load.bytes_to_load.tolist() == [13, 13, 0]
    assert load.bytes_beyond.tolist() == [13, 0, 0]
    assert load.fits is False
    assert impact.rank_loads_after[0].tolist() == [13, 57, 0]
    assert impact.unserved_share == 0


def test_second_copy_makes_way_for_an_expert_that_has_none():
    replicas = placed([0, 1], [2, 0], [3, 1])
    tokens = np.array([[40, 10, 20, 30]])
    impact = lose_ranks(tokens, replicas, [2], top_k=2, bytes_per_expert=13.0)
    load = impact.reload

    assert (load.expert.tolist(), load.rank.tolist(), load.replaced.tolist()) == ([3], [0], [0])
    assert load.fits is True
    assert load.made_way == 1
    assert impact.rank_loads_after[0].tolist() == [10 + 30, 20 + 40, 0]


def test_memory_that_is_free_decides_where_an_expert_without_a_slot_goes():
    replicas = placed([0], [1], [2])
    tokens = np.array([[10, 50, 30]])
    sizes = {"bytes_per_expert": 13.0}
    roomy = lose_ranks(tokens, replicas, [2], top_k=1, free_bytes=np.array([0, 79.0, 0]), **sizes)
    unknown = lose_ranks(tokens, replicas, [2], top_k=1, **sizes)

    assert (roomy.reload.rank.tolist(), roomy.reload.fits) == ([1], True)
    assert (unknown.reload.rank.tolist(), unknown.reload.fits) == ([0], None)


def test_tokens_that_wait_compute_nothing_in_the_layers_behind():
    tokens = np.array([[50, 50], [60, 40]])
    replicas = np.array([[[1, 0], [1, 1]], [[0, 1], [0, 0]]])
    impact = lose_ranks(tokens, replicas, [1], top_k=1, strategy=BLOCK)

    assert impact.tokens_after.tolist() == [[50, 0], [30, 20]]
    assert impact.unserved.tolist() == [50, 50]


def test_next_best_experts_grow_in_proportion_while_few_tokens_choose_each():
    tokens = np.array([[10, 20, 30, 40, 100_000, 100_000]])
    lost = np.array([[True, False, False, False, False, False]])
    after = choose_next_best(tokens, lost, 1)

    np.testing.assert_allclose(after[0, 1:] / tokens[0, 1:], 1, atol=1e-4)
    assert after.sum() == pytest.approx(tokens.sum())
    assert after[0, 0] == 0


def test_no_token_chooses_the_next_best_expert_twice():
    tokens = np.array([[90, 60, 30, 20]])
    after = choose_next_best(tokens, np.array([[False, True, False, False]]), 2)

    assert after.sum() == pytest.approx(200)
    assert after.max() <= 100


def test_choices_are_missing_where_fewer_experts_are_left_than_a_token_chooses():
    impact = lose_ranks(
        np.array([[79] * 4]), placed([0], [1], [2], [3]), [1, 2, 3], top_k=2, strategy=FALLBACK
    )

    assert impact.tokens_after.tolist() == [[158, 0, 0, 0]]
    assert impact.unserved.tolist() == [158]


def test_both_copies_on_the_lost_node_are_no_help():
    replicas = placed([0, 1], [1, 0], [2, 3])
    impact = lose_ranks(np.array([[10, 20, 30, 40]]), replicas, [0, 1], top_k=2, strategy=FALLBACK)

    assert np.flatnonzero(impact.is_lost[0]).tolist() == [0, 1]
    assert impact.covered_experts.tolist() == [0]


def test_two_copies_on_the_lost_rank_are_no_help():
    impact = lose_ranks(np.array([[10, 20]]), placed([0, 0], [1, 1]), [0], top_k=1, strategy=BLOCK)

    assert impact.traffic_share == pytest.approx(1 / 3)


@pytest.mark.parametrize("strategy", FailoverStrategy)
def test_group_of_one_rank_loses_everything(strategy):
    impact = lose_ranks(np.array([[13, 23]]), placed([0, 1]), [0], top_k=1, strategy=strategy)

    assert impact.traffic_share == impact.unserved_share == 1
    assert impact.tokens_hit.expected == pytest.approx(1)
    assert impact.rank_loads_after.tolist() == [[0]]
    assert impact.reload is None


def test_rank_that_is_not_there_is_refused():
    with pytest.raises(ShapeError, match="0 … 3"):
        lose_ranks(EVEN, CONTIGUOUS.replicas_per_rank_layer_expert(), [4], top_k=2)
    with pytest.raises(ShapeError, match="top-9 of 8"):
        lose_ranks(EVEN, CONTIGUOUS.replicas_per_rank_layer_expert(), [1], top_k=9)


@st.composite
def fleets(draw):
    """Tokens, copies with every expert somewhere, top-k, and the ranks that are lost."""
    ranks, layers, experts = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    replicas = np.zeros((ranks, layers, experts), dtype=np.uint16)
    for layer, expert in itertools.product(range(layers), range(experts)):
        replicas[rng.integers(ranks), layer, expert] += 1
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            replicas[rng.integers(ranks), layer, expert] += 1
    tokens = rng.poisson(rng.gamma(0.5, 79, (layers, experts)))
    top_k = draw(st.integers(1, experts))
    return tokens, replicas, top_k, draw(st.sets(st.integers(0, ranks - 1)))


@given(fleets(), st.sampled_from(FailoverStrategy))
def test_every_assignment_is_computed_or_counted_as_unserved(fleet, strategy):
    tokens, replicas, top_k, lost = fleet
    impact = lose_ranks(tokens, replicas, lost, top_k=top_k, strategy=strategy)

    served = impact.rank_loads_after.sum(axis=1)
    np.testing.assert_allclose(served + impact.unserved, tokens.sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(impact.tokens_after.sum(axis=1), served, atol=1e-6)
    assert not impact.rank_loads_after[:, sorted(lost)].any()


@given(fleets(), st.sampled_from(FailoverStrategy))
def test_losing_nothing_changes_nothing(fleet, strategy):
    tokens, replicas, top_k, _ = fleet
    impact = lose_ranks(tokens, replicas, [], top_k=top_k, strategy=strategy)

    assert not impact.is_lost.any()
    assert impact.traffic_share == impact.taken_over_share == impact.unserved_share == 0
    assert impact.tokens_hit.high == 0
    np.testing.assert_allclose(impact.rank_loads_after, impact.rank_loads_before)
    np.testing.assert_allclose(impact.ratio_after, impact.ratio_before)


@given(fleets())
def test_nobody_gains_from_a_loss(fleet):
    tokens, replicas, top_k, lost = fleet
    stay = np.setdiff1d(np.arange(len(replicas)), sorted(lost))
    for strategy in (REASSIGN, FALLBACK):
        impact = lose_ranks(tokens, replicas, lost, top_k=top_k, strategy=strategy)
        if impact.reload is not None and impact.reload.made_way:
            continue  # a rank that gives a busy copy up for an idle expert has less to do
        if not impact.unserved.any():
            less = impact.rank_loads_before[:, stay] - impact.rank_loads_after[:, stay]
            assert less.max(initial=0) < 1e-6, strategy


@given(fleets())
def test_more_losses_never_hit_less(fleet):
    tokens, replicas, top_k, lost = fleet
    ordered = [*lost, *(set(range(len(replicas))) - lost)]
    previous = lose_ranks(tokens, replicas, [], top_k=top_k, strategy=FALLBACK)
    for number in range(1, len(ordered) + 1):
        impact = lose_ranks(tokens, replicas, ordered[:number], top_k=top_k, strategy=FALLBACK)
        assert impact.traffic_share >= previous.traffic_share
        assert impact.tokens_hit.expected >= previous.tokens_hit.expected - 1e-9
        assert (impact.is_lost >= previous.is_lost).all()
        previous = impact


@given(fleets())
def test_bounds_hold_the_expectation_and_the_traffic(fleet):
    tokens, replicas, top_k, lost = fleet
    impact = lose_ranks(tokens, replicas, lost, top_k=top_k, strategy=BLOCK)
    hit = impact.tokens_hit

    assert hit.low <= hit.expected + 1e-9
    assert hit.expected <= hit.high + 1e-9
    assert impact.traffic_share <= hit.high + 1e-9


@given(fleets())
def test_every_lost_expert_is_loaded_once_on_a_rank_that_stays(fleet):
    tokens, replicas, top_k, lost = fleet
    impact = lose_ranks(tokens, replicas, lost, top_k=top_k, bytes_per_expert=13.0)
    load = impact.reload
    if load is None:
        assert len(lost) == len(replicas)
        return

    assert sorted(zip(load.layer, load.expert, strict=True)) == sorted(
        zip(*np.nonzero(impact.is_lost), strict=True)
    )
    assert not np.isin(load.rank, sorted(lost)).any()
    assert load.bytes_to_load.sum() == 13 * impact.is_lost.sum()


@given(fleets(), st.data())
def test_sampled_tokens_agree_with_the_share_that_is_expected(fleet, data):
    """One layer, drawn without putting back."""
    tokens, _, top_k, _ = fleet
    weights = np.maximum(tokens[0], 1) / np.maximum(tokens[0], 1).sum()
    rng = np.random.default_rng(79)
    drawn = 2000
    keys = rng.exponential(1 / weights, (drawn, len(weights)))
    chosen = np.argsort(keys, axis=1)[:, :top_k]
    lost = np.array(data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights))))
    counts = np.bincount(chosen.ravel(), minlength=len(weights))[None]
    share = share_of_tokens_hit(counts, lost[None], top_k)
    truth = lost[chosen].any(axis=1).mean()

    assert share.low <= truth + 1e-9
    assert truth <= share.high + 1e-9
    assert share.expected <= truth + 4 * np.sqrt(0.25 / drawn), "it never claims too much"
