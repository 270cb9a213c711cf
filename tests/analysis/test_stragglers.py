"""Who is late is named, why, and nobody else: planted in known worlds, and in DeepEP's published matrix."""

import numpy as np
import pytest

from moescope.analysis.straggler import Confidence, StragglerKind
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules
from moescope.analysis.stragglers import find_stragglers
from tests.analysis.straggler_worlds import World, deepep_evidence

RULES = StragglerRules()
SLOW, OVERLOADED = StragglerKind.SLOW_RANK, StragglerKind.OVERLOADED_RANK
LINK, NODE = StragglerKind.SLOW_LINK, StragglerKind.SLOW_NODE
WAYS_TO_KNOW = ("waits times calls experts loads", "waits", "times calls loads", "times calls experts loads")


def named(evidence: StragglerEvidence, rules: StragglerRules = RULES) -> dict[tuple[int, ...], StragglerKind]:
    return {one.ranks: one.kind for one in find_stragglers(evidence, rules)}


@pytest.mark.parametrize("hosts", [True, False], ids=["hosts known", "hosts unknown"])
def test_slow_rank_of_the_published_matrix_is_named_and_nobody_on_the_other_node(hosts):
    (only,) = find_stragglers(deepep_evidence(hosts), RULES)
    assert (only.rank, only.kind) == (2, SLOW)
    assert 4_000 < only.times_others < 5_000, "2.1 million cycles against 450 between neighbours"
    assert only.cost_seconds_per_minute is None, "cycles are no time"
    assert (only.windows, only.judged_windows) == (5, 5)


@pytest.mark.parametrize("parts", WAYS_TO_KNOW)
@pytest.mark.parametrize(
    ("ranks", "slow"),
    [(3, 1), (8, 1), (8, 3), (16, 5), (64, 1), (64, 23)],
    ids=str,
)
def test_slow_ranks_are_found_whether_one_or_a_third_of_them_are(ranks, slow, parts):
    for seed in range(5 if ranks < 64 else 2):
        late = np.random.default_rng(seed).choice(ranks, slow, replace=False)
        world = World(ranks, seed=seed, slow=dict.fromkeys(late.tolist(), 2.5))
        assert named(world.evidence(parts)) == {(rank,): SLOW for rank in late}, seed


@pytest.mark.parametrize("cycles", [True, False])
@pytest.mark.parametrize("hosts", [True, False], ids=["hosts known", "hosts unknown"])
def test_slow_ranks_of_two_nodes_are_found_wherever_they_are(hosts, cycles):
    for seed in range(10):
        late = np.random.default_rng(seed).choice(16, 5, replace=False)
        world = World(16, 8, seed=seed, slow=dict.fromkeys(late.tolist(), 2.5), knows_hosts=hosts)
        assert named(world.evidence("waits", cycles=cycles)) == {(rank,): SLOW for rank in late}, seed


def test_five_slow_ranks_of_one_node_are_five_ranks_and_no_node():
    world = World(16, 8, slow=dict.fromkeys([8, 9, 11, 13, 14], 2.5))
    assert named(world.evidence()) == {(rank,): SLOW for rank in (8, 9, 11, 13, 14)}


def test_slow_rank_is_named_with_its_multiple_and_what_it_costs():
    (only,) = find_stragglers(World(slow={5: 2.5}).evidence(), RULES)
    assert only.rank == 5
    assert only.times_others == pytest.approx(2.5, rel=0.03), "its experts at the same load"
    assert only.confidence is Confidence.HIGH
    extra = 1.5 * (4e-4 + 3e-4 + 1_000 * 3e-7) * 23 * 790
    assert only.cost_seconds_per_minute == pytest.approx(7 * extra, rel=0.05)
    assert only.lost_share == pytest.approx(extra / 60, rel=0.05)


def test_rank_that_is_a_third_slower_is_found():
    for seed in range(5):
        assert named(World(16, seed=seed, slow={11: 1.33}).evidence()) == {(11,): SLOW}


@pytest.mark.parametrize("parts", WAYS_TO_KNOW)
@pytest.mark.parametrize(
    "world",
    [
        {},
        {"ranks": 64},
        {"ranks": 16, "per_node": 8},
        {"ranks": 16, "per_node": 8, "knows_hosts": False},
        {"ranks": 16, "per_node": 4, "silent": (9,), "dead": (3,)},
        {"ranks": 16, "per_node": 8, "silent": tuple(range(7, 16)), "knows_hosts": False},
        {"silent": (0, 1, 2)},
    ],
    ids=str,
)
def test_jitter_alone_names_nobody(world, parts):
    for seed in range(2 if world.get("ranks") == 64 else 7):
        for gusts in (0.0, 40e-6):
            assert named(World(**world, seed=seed, gusts=gusts).evidence(parts)) == {}, (seed, gusts)


def test_ranks_that_differ_widely_in_any_case_are_no_news():
    for seed in range(13):
        assert named(World(16, 8, seed=seed, jitter=40e-6).evidence("waits")) == {}, seed


def test_times_of_a_few_passes_drawn_by_chance_are_enough():
    for seed in range(5):
        drawn = {"seed": seed, "sampling": 0.1}
        assert named(World(16, **drawn).evidence("times calls experts loads")) == {}
        slow = World(8, slow={1: 2.5, 2: 2.5, 5: 2.5}, **drawn).evidence("times calls experts loads")
        assert named(slow) == {(1,): SLOW, (2,): SLOW, (5,): SLOW}
        loaded = World(16, load={5: 3.0}, **drawn).evidence("times calls experts loads")
        assert named(loaded) == {(5,): OVERLOADED}


@pytest.mark.parametrize(
    "parts", ["waits times calls experts loads", "waits times loads", "times calls experts loads"]
)
def test_overloaded_rank_is_never_called_slow(parts):
    for seed in range(10):
        world = World(seed=seed, load={5: 3.0})
        assert named(world.evidence(parts)) == {(5,): OVERLOADED}, seed


def test_rank_with_one_hot_layer_is_overloaded():
    rules = StragglerRules(cost_share=0.02)
    for seed in range(10):
        assert named(World(16, seed=seed, hot={(13, 5): 13.0}).evidence(), rules) == {(5,): OVERLOADED}
        assert named(World(16, seed=seed, hot={(13, 5): 13.0}).evidence("waits times loads"), rules) == {
            (5,): OVERLOADED
        }


def test_rank_that_is_slow_and_overloaded_is_slow():
    (only,) = find_stragglers(World(slow={5: 2.0}, load={5: 1.7}).evidence(), RULES)
    assert (only.rank, only.kind) == (5, SLOW)
    assert only.load_of_median == pytest.approx(1.7, rel=0.05)


@pytest.mark.parametrize("cycles", [True, False])
@pytest.mark.parametrize("world", [{}, {"ranks": 16, "per_node": 8}], ids=str)
def test_slow_link_is_named_with_both_ends_and_no_rank(world, cycles):
    for seed in range(5):
        evidence = World(**world, seed=seed, links={(1, 6): 5e-3, (13, 2): 0.05} if world else {(1, 6): 5e-3})
        found = find_stragglers(evidence.evidence("waits", cycles=cycles), RULES)
        assert {one.kind for one in found} == {LINK}
        assert {one.pair for one in found} == ({(6, 1), (2, 13)} if world else {(6, 1)})


def test_rank_whose_way_out_of_its_node_is_slow_is_a_link_and_no_rank():
    slow = dict.fromkeys([(waiting, 3) for waiting in range(8, 16)], 0.02)
    (only,) = find_stragglers(World(16, 8, links=slow).evidence("waits"), RULES)
    assert (only.kind, only.ranks) == (LINK, (3,))


@pytest.mark.parametrize("per_node", [4, 8])
def test_node_that_is_late_as_a_whole_is_one_node(per_node):
    ranks = range(per_node, 2 * per_node)
    for seed in range(5):
        world = World(16, per_node, seed=seed, slow=dict.fromkeys(ranks, 6.0))
        (only,) = find_stragglers(world.evidence("waits"), RULES)
        assert (only.kind, only.node, only.ranks) == (NODE, "node-1", tuple(ranks))


def test_other_node_whose_rows_are_missing_is_not_accused():
    for hosts in (True, False):
        world = World(16, 8, silent=tuple(range(8, 16)), knows_hosts=hosts)
        assert named(world.evidence("waits", cycles=True)) == {}


def test_two_ranks_have_no_majority():
    assert named(World(2, slow={1: 2.5}).evidence()) == {}


def test_one_bad_window_is_chance_and_three_are_not():
    for length, expected in ((1, {}), (2, {}), (3, {(5,): SLOW})):
        assert named(World(slow={5: 2.5}, from_window=7 - length).evidence()) == expected


def test_two_quiet_windows_end_it():
    for quiet, expected in ((1, {(5,): SLOW}), (2, {}), (3, {})):
        assert named(World(slow={5: 2.5}, until_window=7 - quiet).evidence()) == expected


def test_it_says_since_when_and_how_often():
    (only,) = find_stragglers(World(windows=13, slow={5: 2.5}, from_window=7).evidence(), RULES)
    assert only.since_ms == 7 * 60_000
    assert (only.windows, only.judged_windows, only.all_late, only.all_windows) == (5, 5, 6, 13)


def test_slow_rank_beside_a_dead_and_a_silent_one_is_found():
    assert named(World(slow={5: 2.5}, dead=(7,), silent=(2,)).evidence()) == {(5,): SLOW}


def test_a_rank_cannot_be_named_from_equal_passes_alone():
    assert named(World(slow={5: 2.5}).evidence("times")) == {}


def test_experts_that_are_slow_at_equal_load_are_enough_where_nobody_waits():
    (only,) = find_stragglers(World(slow={5: 2.5}).evidence("times experts loads"), RULES)
    assert (only.rank, only.kind, only.confidence) == (5, SLOW, Confidence.MEDIUM)
    assert only.times_others == pytest.approx(2.5, rel=0.03)


def test_nothing_known_names_nobody():
    empty = StragglerEvidence(ranks=np.arange(0), starts_ms=np.arange(0), window_seconds=60.0)
    assert find_stragglers(empty, RULES) == ()
    assert named(World().evidence("")) == {}
