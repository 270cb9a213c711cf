import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.analysis.plan_advice import PlanVerdict
from moescope.planning.amounts import MoveLimit
from moescope.planning.load import PlanLoad
from moescope.planning.make import make_plan
from moescope.planning.request import OutputFormat, PlanRequest
from moescope.schemas.errors import UsageError
from moescope.schemas.topology import EMPTY_SLOT, Placement


def load_of(tokens, **known):
    tokens = np.asarray(tokens, dtype=np.float64)
    tokens = tokens[None] if tokens.ndim == 2 else tokens
    return PlanLoad(tokens=tokens, layers=np.arange(tokens.shape[1]), source="a test", **known)


def plan(load, **request):
    return make_plan(load, PlanRequest(**({"time_budget_seconds": 2.0} | request)), lambda *_: None)


def skewed(seed, layers=3, experts=13, windows=1, tokens=20_000):
    random = np.random.default_rng(seed)
    rates = random.lognormal(0, 0.8, (layers, experts))
    return random.poisson(rates / rates.sum(axis=1, keepdims=True) * tokens, (windows, layers, experts))


def ratios(tokens, placement):
    """Max / mean, added up slot by slot."""
    loads = np.zeros((len(tokens), placement.ep_size))
    copies = placement.replicas_per_layer_expert()
    for layer, row in enumerate(placement.physical_to_logical_map):
        for slot, expert in enumerate(row):
            if expert != EMPTY_SLOT:
                rank = slot // placement.slots_per_rank
                loads[layer, rank] += tokens[layer, expert] / copies[layer, expert]
    return loads.max(axis=1) / loads.mean(axis=1)


@given(seed=st.integers(0, 2**32 - 1), ranks=st.integers(1, 6), redundant=st.integers(0, 9))
@settings(max_examples=25)
def test_a_plan_covers_every_expert_and_its_ratios_are_those_of_its_map(seed, ranks, redundant):
    tokens = skewed(seed)[0]

    made = plan(load_of(tokens), ranks=ranks, redundant_experts=redundant)

    assert made.placement.replicas_per_layer_expert().min() >= 1
    assert made.placement.same_rank_duplicates() == 0
    assert made.ratio_after == pytest.approx(ratios(tokens, made.placement))
    assert (made.ratio_after >= made.bound - 1e-9).all()
    assert made.redundant_experts <= redundant


def test_without_a_placement_before_is_experts_in_order():
    tokens = [[79, 13, 23, 5]]

    made = plan(load_of(tokens), ranks=2)

    assert made.ratio_before.tolist() == [92 / 60]
    assert not made.is_before_known


def test_a_re_plan_keeps_to_its_limit_and_makes_no_layer_worse():
    load = load_of(skewed(23, layers=5, experts=79))
    current = plan(load_of(skewed(13, layers=5, experts=79)), ranks=8, redundant_experts=9).placement

    made = plan(
        load_of(load.tokens[0], current=current), max_moved=MoveLimit(share=0.05), redundant_experts=9
    )

    assert 0 < made.moved.sum() <= 0.05 * 88 * 5
    assert (made.ratio_after <= made.ratio_before + 1e-12).all()
    assert made.is_before_known


def test_a_limit_in_bytes_needs_the_size_of_an_expert():
    load = load_of(skewed(23))

    with pytest.raises(UsageError, match=r"--expert-bytes.*--max-moved 2%"):
        plan(load, ranks=4, max_moved=MoveLimit(size_bytes=40e9))

    made = plan(load, ranks=4, max_moved=MoveLimit(size_bytes=5e6), expert_bytes=1e6)
    assert 0 < made.moved.sum() <= 5
    assert made.moved_bytes_per_rank.sum() == made.moved.sum() * 1e6


def test_as_many_redundant_experts_as_now_are_planned_where_nobody_says():
    current = plan(load_of(skewed(5)), ranks=4, redundant_experts=3).placement

    made = plan(load_of(skewed(23), current=current))

    assert made.placement.physical_to_logical_map.shape[1] == 16
    assert made.small_change.moved <= 0.05 * 48


def test_a_placement_of_other_ranks_is_not_started_from_and_that_is_said():
    current = plan(load_of(skewed(5)), ranks=4).placement

    made = plan(load_of(skewed(23), current=current), ranks=2)

    assert not made.is_before_known
    assert "4 ranks" in made.notes[0]


def test_ranks_must_be_known():
    with pytest.raises(UsageError, match="--ranks"):
        plan(load_of(skewed(23)))


def test_engines_get_every_slot_filled_and_the_ratio_of_what_they_get():
    tokens = skewed(23)[0]

    made = plan(load_of(tokens), ranks=4, redundant_experts=1, output_format=OutputFormat.SGLANG)

    assert (made.placement.physical_to_logical_map >= 0).all()
    assert made.ratio_after == pytest.approx(ratios(tokens, made.placement))
    assert any("--redundant-experts 3" in note for note in made.notes)


def test_a_copy_that_only_unbalances_stays_unused_except_where_engines_fill_every_slot():
    load = load_of([[1, 3, 3, 3, 4]])

    ours = plan(load, ranks=2, redundant_experts=1)
    engine = plan(load, ranks=2, redundant_experts=1, output_format=OutputFormat.SGLANG)

    assert ours.ratio_after[0] == pytest.approx(1.0)
    assert (ours.placement.physical_to_logical_map == EMPTY_SLOT).sum() == 1
    assert (engine.placement.physical_to_logical_map != EMPTY_SLOT).all()
    assert engine.ratio_after[0] == pytest.approx(7.5 / 7)
    assert not engine.notes


def test_a_budget_of_memory_is_kept_and_asks_for_the_size_of_an_expert():
    load = load_of(skewed(23))
    budget = {"ranks": 4, "redundant_experts": 7, "memory_budget_bytes": 13e6}
    with pytest.raises(UsageError, match="--expert-bytes"):
        plan(load, **budget)

    made = plan(load, **budget, expert_bytes=1e6)

    assert made.memory_per_rank(made.placement).max() <= 13e6
    with pytest.raises(UsageError, match=r"--memory-budget.*--format json"):
        plan(load, **budget, expert_bytes=1e6, output_format=OutputFormat.VLLM)


def test_windows_are_back_tested_and_a_known_split_of_a_files_steps_is_forecast():
    steps = skewed(79, windows=24, tokens=5_000)

    made = plan(load_of(steps), ranks=4, redundant_experts=3)
    assert (made.windows, made.planned_for) == (12, "sum")
    assert made.tokens.tolist() == steps.sum(axis=0).tolist()
    assert made.backtest.windows == 12

    made = plan(load_of(steps), ranks=4, redundant_experts=3, windows=6)
    assert (made.windows, made.planned_for) == (6, "forecast")
    with pytest.raises(UsageError, match=r"--windows 25: the file has 24"):
        plan(load_of(steps), ranks=4, windows=25)


def test_loads_that_are_no_counts_have_no_noise_and_no_back_test():
    made = plan(load_of(skewed(23, windows=3) / 7), ranks=4)

    assert made.noise_floor is None
    assert made.backtest is None


def test_no_load_at_all_is_left_alone():
    made = plan(load_of(np.zeros((2, 13))), ranks=4)

    assert made.advice.verdict is PlanVerdict.LEAVE_IT
    assert made.ratio_after.tolist() == [1, 1]


def test_unequal_slots_stay_where_they_are():
    made = plan(load_of(skewed(23)), ranks=4, slots_per_rank=(5, 4, 3, 2))

    held = (made.placement.physical_to_logical_map != EMPTY_SLOT).reshape(3, 4, -1).sum(axis=2)
    assert (held <= [5, 4, 3, 2]).all()


def test_an_uneven_split_is_no_worse_and_names_its_engines():
    made = plan(load_of(skewed(23)), ranks=4, redundant_experts=3, is_split_uneven=True)

    assert (made.uneven.ratio_uneven <= made.ratio_after + 1e-9).all()
    assert "SGLang" in made.uneven.label


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"slots_per_rank": (2, 2), "redundant_experts": 1}, "leave --redundant-experts out"),
        ({"slots_per_rank": (3, 2), "output_format": OutputFormat.VLLM}, "every rank the same slots"),
        ({"max_moved": MoveLimit(share=0.1), "memory_budget_bytes": 1e9}, "--memory-budget"),
        ({"max_moved": MoveLimit(share=0.1), "expert_groups": 2}, "--expert-groups"),
    ],
)
def test_options_that_exclude_each_other_are_named(request_, words):
    with pytest.raises(UsageError, match=words):
        PlanRequest(**request_)


def test_kimi_k3_takes_any_redundancy():
    random = np.random.default_rng(13)
    tokens = random.poisson(random.lognormal(0, 0.5, (4, 896)) * 200)

    made = plan(load_of(tokens), ranks=64, redundant_experts=32)

    assert made.ratio_after.max() < 1.01
    assert Placement(made.placement.physical_to_logical_map, 64, 896).slots_per_rank == 15
