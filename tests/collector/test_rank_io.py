import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.expert_load import NumpyExpertCounter, Row
from moescope.collector.expert_load_source import ExpertLoadSource
from moescope.collector.rank_io import NumpyRankIoCounter, RankIoCounter, find_peers
from moescope.schemas import metrics
from moescope.schemas.attributes import PHASE, Phase
from moescope.schemas.errors import ShapeError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.topology import Placement, RankGrid, every_layer_from, place_contiguously

LAYERS, EXPERTS, TOP_K, RANKS = 2, 13, 3, 4
SHAPE = every_layer_from("tiny", 1, LAYERS + 1, num_experts=EXPERTS, top_k=TOP_K)


def source_of(ep_rank=0, placement=None, ranks=RANKS):
    counter = NumpyRankIoCounter(LAYERS, EXPERTS, ep_size=ranks)
    return ExpertLoadSource(EngineIdentity("s", SHAPE, RankGrid("0", ep_rank, ranks)), counter, placement)


def close(source):
    """{(metric, phase): by rank}, of the tokens and assignments by rank; and the expert load's sums."""
    by_rank, load = {}, {}
    for record in source.close_window(snapshot=False):
        if record.metric in {metrics.RANK_TOKENS, metrics.RANK_ASSIGNMENTS}:
            by_rank[record.metric.name.split(".")[-1], record.attributes[PHASE]] = (
                record.counts_per_row_index[0].tolist()
            )
        if record.metric is metrics.EXPERT_TOKENS:
            load[record.attributes[PHASE]] = int(record.counts_per_row_index.sum())
    return by_rank, load


def placement_with_replicas(*rows):
    """One row of slots per layer, for four ranks."""
    return Placement(np.array(rows), RANKS, EXPERTS)


# 16 slots on four ranks: expert 0 is on the ranks 0, 1 and 3, expert 5 on 1 and 3.
REPLICATED = placement_with_replicas(*[[0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, 0, 11, 5, 12]] * LAYERS)


def test_a_token_counts_once_per_rank_however_many_of_its_experts_live_there():
    source = source_of()  # experts 0-3, 4-6, 7-9, 10-12
    source.begin_step((Row.PREFILL, 2), (Row.DECODE, 1))

    source.record_topk(1, [[0, 1, 12], [4, 5, 6], [3, 4, 9]])

    by_rank, _ = close(source)
    assert by_rank == {
        ("tokens", "prefill"): [1, 1, 0, 1],
        ("tokens", "decode"): [1, 1, 1, 0],
        ("assignments", "prefill"): [2, 3, 0, 1],
        ("assignments", "decode"): [1, 1, 1, 0],
    }


def test_each_layer_call_counts_anew():
    source = source_of()
    source.begin_step((Row.DECODE, 1))

    for layer in (1, 2, 2):
        source.record_topk(layer, [[0, 1, 2]])

    by_rank, _ = close(source)
    assert by_rank["tokens", "decode"] == [3, 0, 0, 0]
    assert by_rank["assignments", "decode"] == [9, 0, 0, 0]


def test_rows_that_are_no_load_and_ids_that_no_expert_has_go_nowhere():
    source = source_of()
    source.begin_step((Row.DUMMY, 1), (Row.WARMUP, 1), (Row.DECODE, 1))

    source.record_topk(1, [[0, 1, 2], [0, 1, 2], [-1, 13, 4], [0, 1, 2]])  # the last is padding

    by_rank, _ = close(source)
    assert by_rank["tokens", "decode"] == [0, 1, 0, 0]
    assert by_rank["tokens", "prefill"] == [0, 0, 0, 0]
    assert by_rank["assignments", "decode"] == [0, 1, 0, 0]


def test_a_window_holds_what_came_since_the_one_before():
    source = source_of()
    source.begin_step((Row.DECODE, 1))
    source.record_topk(1, [[0, 4, 5]])
    close(source)

    source.record_topk(1, [[7, 8, 9]])

    by_rank, _ = close(source)
    assert by_rank["tokens", "decode"] == [0, 0, 1, 0]
    assert close(source)[0]["assignments", "decode"] == [0, 0, 0, 0]


def test_a_forked_child_does_not_repeat_its_parents_tokens():
    source = source_of()
    source.begin_step((Row.DECODE, 1))
    source.record_topk(1, [[0, 4, 5]])

    source.reset()

    by_rank, _ = close(source)
    assert by_rank["tokens", "decode"] == [0, 0, 0, 0]


def test_tokens_follow_a_placement_that_changes():
    source = source_of()
    source.begin_step((Row.DECODE, 1))
    reversed_blocks = np.tile(np.append(np.arange(13)[::-1], [-1] * 3), (LAYERS, 1))  # 12-9, 8-5, 4-1, 0

    source.set_placement(Placement(reversed_blocks, RANKS, EXPERTS))
    source.record_topk(1, [[0, 1, 2]])

    by_rank, _ = close(source)
    assert by_rank["tokens", "decode"] == [0, 0, 1, 1]
    assert by_rank["assignments", "decode"] == [0, 0, 2, 1]


def test_a_rank_serves_what_it_holds_itself():
    for ep_rank in range(RANKS):
        peers = find_peers(REPLICATED, ep_rank)
        held = REPLICATED.replicas_per_rank_layer_expert()[ep_rank] > 0
        assert (peers[held] == ep_rank).all()


@given(seed=st.integers(0, 2**32 - 1), ranks=st.sampled_from([1, 2, 4, 8]))
def test_only_holders_serve_and_the_sources_spread_evenly_over_them(seed, ranks):
    random = np.random.default_rng(seed)
    slots = np.concatenate([np.arange(EXPERTS), random.integers(-1, EXPERTS, 24 - EXPERTS)])
    placement = Placement(random.permutation(slots)[None], ranks, EXPERTS)
    holds = placement.replicas_per_rank_layer_expert()[:, 0] > 0

    peers = np.array([find_peers(placement, rank)[0] for rank in range(ranks)])  # [source, expert]

    for expert in range(EXPERTS):
        assert holds[peers[:, expert], expert].all()
        guests = peers[~holds[:, expert], expert]
        per_holder = np.bincount(guests, minlength=ranks)[holds[:, expert]]
        assert per_holder.max() - per_holder.min() <= 1


def recount(ids, peers, ranks):
    """Plain Python: [tokens by rank], [assignments by rank]."""
    tokens, assignments = [0] * ranks, [0] * ranks
    for row in ids:
        seen = [int(peers[expert]) for expert in row]
        for rank in seen:
            assignments[rank] += 1
        for rank in set(seen):
            tokens[rank] += 1
    return tokens, assignments


@given(seed=st.integers(0, 2**32 - 1), num_tokens=st.integers(0, 79), ep_rank=st.integers(0, RANKS - 1))
def test_the_numbers_equal_a_plain_recount_and_keep_their_bounds(seed, num_tokens, ep_rank):
    random = np.random.default_rng(seed)
    source = source_of(ep_rank, REPLICATED)
    expected_tokens, expected_assignments = np.zeros(RANKS, int), np.zeros(RANKS, int)
    source.begin_step((Row.PREFILL, num_tokens))
    for ordinal, layer in enumerate(SHAPE.moe_layers):
        ids = np.array([random.permutation(EXPERTS)[:TOP_K] for _ in range(num_tokens)]).reshape(-1, TOP_K)
        source.record_topk(layer, ids)
        tokens, assignments = recount(ids, find_peers(REPLICATED, ep_rank)[ordinal], RANKS)
        expected_tokens += tokens
        expected_assignments += assignments

    by_rank, load = close(source)

    tokens, assignments = (np.array(by_rank[kind, "prefill"]) for kind in ("tokens", "assignments"))
    assert tokens.tolist() == expected_tokens.tolist()
    assert assignments.tolist() == expected_assignments.tolist()
    assert (tokens <= assignments).all()
    assert (assignments <= tokens * TOP_K).all()
    assert assignments.sum() == load["prefill"] == num_tokens * TOP_K * LAYERS


def test_counts_that_an_engine_made_itself_have_assignments_by_rank_too():
    source = source_of()
    counts = np.zeros((LAYERS, EXPERTS), dtype=np.int64)
    counts[1, [0, 12]] = 5, 23

    source.add_counts(Phase.DECODE, 28, counts)

    assert close(source)[0]["assignments", "decode"] == [5, 0, 0, 23]


def test_a_counter_that_does_not_count_by_rank_reports_nothing_by_rank():
    counter = NumpyExpertCounter(LAYERS, EXPERTS)
    assert not isinstance(counter, RankIoCounter)

    source = ExpertLoadSource(EngineIdentity("s", SHAPE, RankGrid("0", 0, RANKS)), counter)

    assert close(source)[0] == {}


def test_a_counter_for_another_group_is_refused():
    with pytest.raises(ShapeError, match="the counter has 4 ranks, the placement 2"):
        source_of(placement=place_contiguously(SHAPE, 2))
