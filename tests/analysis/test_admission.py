"""How many more requests fit: against the simulator's own caches, and never one number for two caches."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.admission import EngineCaches, admit, crossover_tokens, price_replica
from moescope.analysis.request_footprint import (
    Basis,
    RequestModel,
    share_engines,
    slots_of_a_request,
    tokens_of_a_block,
)
from moescope.schemas.attributes import MemoryPool
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.plan import make_plan
from moescope.simulator.serving import MLA_BLOCK_TOKENS

KDA, MLA = MemoryPool.KDA_STATE, MemoryPool.MLA_KV_CACHE
NAN = math.nan
MODEL = RequestModel(1.0, Basis.MEASURED, 64.0, Basis.SETTING)
KIBI = 1024


def _engine(slots=13.0, slots_limit=79.0, blocks=1_000.0, blocks_limit=20_000.0, **changes):
    values = {"slot_bytes": 449e6, "block_bytes": 1.77e6, "is_shared": False} | changes
    return EngineCaches((3,), slots, slots_limit, blocks, blocks_limit, **values)


def test_short_requests_end_the_slots_and_long_ones_the_blocks():
    short, long = admit(_engine(), MODEL, 8 * KIBI), admit(_engine(), MODEL, 128 * KIBI)
    assert (short.by_kda, short.by_mla, short.fits, short.binds) == (66, 148, 66, KDA)
    assert (long.by_kda, long.by_mla, long.fits, long.binds) == (66, 9, 9, MLA)


def test_context_that_begins_a_block_holds_all_of_it():
    assert admit(_engine(blocks=0, blocks_limit=2), MODEL, 65).by_mla == 1
    assert admit(_engine(blocks=0, blocks_limit=2), MODEL, 64).by_mla == 2


def test_crossover_is_where_both_allow_the_same():
    engine = _engine()
    tokens = crossover_tokens(engine, MODEL)
    assert tokens == pytest.approx(64 * 19_000 / 66)
    assert admit(engine, MODEL, int(tokens * 0.9)).binds is KDA
    assert admit(engine, MODEL, int(tokens * 1.1)).binds is MLA


def test_caches_lent_from_one_set_of_blocks_compete():
    engine = _engine(slots=79, slots_limit=1_000, blocks=21, blocks_limit=1_000, is_shared=True)
    model = RequestModel(3.0, Basis.MEASURED, 512.0, Basis.SETTING)
    one = admit(engine, model, 8 * KIBI)
    assert engine.free_slots == engine.free_blocks == 900
    assert one.fits == 900 // (3 + 16)
    assert one.binds is MLA
    assert admit(engine, model, KIBI).binds is KDA
    assert crossover_tokens(engine, model) == 1_536


def test_engine_without_kda_state_has_one_limit():
    one = admit(_engine(slots=NAN, slots_limit=NAN), MODEL, 8 * KIBI)
    assert (one.by_kda, one.fits, one.binds) == (None, 148, MLA)
    assert crossover_tokens(_engine(slots=NAN, slots_limit=NAN), MODEL) is None


def test_what_is_not_known_is_not_guessed():
    blind = RequestModel(1.0, Basis.ASSUMED, None, Basis.UNKNOWN)
    one = admit(_engine(), blind, 8 * KIBI)
    assert (one.by_kda, one.by_mla, one.fits, one.binds) == (66, None, 66, KDA)
    none = admit(_engine(slots=NAN, slots_limit=NAN, blocks=NAN, blocks_limit=NAN), MODEL, 8 * KIBI)
    assert (none.fits, none.binds) == (None, None)


def test_full_caches_take_nobody():
    one = admit(_engine(slots=79), MODEL, KIBI)
    assert (one.fits, one.binds) == (0, KDA)
    assert crossover_tokens(_engine(slots=79), MODEL) is None


@given(st.integers(1, 2**20), st.integers(0, 79), st.integers(0, 20_000), st.booleans())
def test_so_many_fit_and_not_one_more(context: int, slots: int, blocks: int, shared: bool):
    engine = _engine(float(slots), 20_000.0 if shared else 79.0, float(blocks), is_shared=shared)
    one = admit(engine, MODEL, context)
    each = MODEL.blocks_of(context)
    held = (one.fits * 1, one.fits * each)
    if shared:
        assert sum(held) <= engine.free_blocks < (one.fits + 1) * (1 + each) or one.fits == 0
    else:
        assert held[0] <= engine.free_slots
        assert held[1] <= engine.free_blocks
        assert one.fits + 1 > engine.free_slots or (one.fits + 1) * each > engine.free_blocks


# --- what a request holds, from what is stored --------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 3])
def test_slots_of_a_request_are_told_by_their_coming_and_going(each: int):
    rng = np.random.default_rng(79)
    running = 40 + np.cumsum(rng.integers(-4, 5, 60))
    kept = np.minimum(np.arange(60) * 2.5, 100) + rng.integers(0, 3, 60)
    assert slots_of_a_request(each * running + kept, running.astype(float)) == each


def test_slots_that_do_not_follow_the_requests_tell_nothing():
    rng = np.random.default_rng(13)
    assert slots_of_a_request(rng.integers(0, 79, 60).astype(float), rng.integers(0, 79, 60) * 1.0) is None
    assert slots_of_a_request(np.full(60, 13.0), np.full(60, 7.0)) is None
    assert slots_of_a_request(np.arange(5.0), np.arange(5.0)) is None


def test_tokens_of_a_block_need_something_that_runs():
    assert tokens_of_a_block(200, 10, prompt_tokens=1_000, output_tokens=560) == 64
    assert tokens_of_a_block(0, 10, prompt_tokens=1_000, output_tokens=560) is None
    assert tokens_of_a_block(200, 0, prompt_tokens=1_000, output_tokens=560) is None


def test_neighbours_that_always_say_the_same_are_one_engine():
    rng = np.random.default_rng(7)
    first, second = rng.integers(0, 79, (2, 23)).astype(float)
    constant = np.full(23, 7.0)
    states = np.stack([first, first, second, constant, constant, first])
    assert share_engines([0, 1, 2, 3, 4, 5], states) == ((0, 1), (2,), (3,), (4,), (5,))
    assert share_engines([0, 2], states[:2]) == ((0,), (2,))


# --- one more copy of an expert -----------------------------------------------------------------------------


def test_copy_that_fits_the_headroom_displaces_nobody():
    cost = price_replica(3, 1_614_348_288, 16e9, _engine())
    assert (cost.fits, cost.missing_bytes, cost.slots, cost.blocks) == (True, 0, 0, 0)
    assert cost.displaced(MODEL, 8 * KIBI) == (0, 0)


def test_copy_that_does_not_fit_takes_from_either_cache():
    cost = price_replica(3, 1_614_348_288, 0.614348288e9, _engine())
    assert (cost.fits, cost.missing_bytes) == (False, 1_000_000_000)
    assert (cost.slots, cost.blocks) == (3, 565)
    assert cost.displaced(MODEL, 8 * KIBI) == (3, 5)


def test_copy_is_priced_where_the_device_does_not_say_how_large_it_is():
    cost = price_replica(3, 1_614_348_288, NAN, None)
    assert (cost.fits, cost.headroom_bytes, cost.slots, cost.blocks) == (None, None, None, None)
    assert cost.displaced(MODEL, 8 * KIBI) == (None, None)


# --- against the simulator's own caches ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated():
    """Fifteen minutes of a group: itself, its last window, and slots, blocks and running over time."""
    plan = make_plan(model="kimi-k3", ranks=32, tensor_parallel=1, scenarios=[], seed=3, service=None)
    group = SimulatedGroup(plan, 0, "0")
    group.warm_up()
    windows = [group.advance(at * 10.0, (at + 1) * 10.0, frozenset()) for at in range(90)]
    return group, windows


@pytest.mark.parametrize("context", [1_000, 8 * KIBI, 40 * KIBI, 128 * KIBI, 900_000])
def test_requests_that_fit_are_those_that_the_simulators_caches_take(simulated, context: int):
    group, windows = simulated
    cache, memory = windows[-1].cache, group.memory
    for rank in range(group.ranks):
        slots, blocks = float(cache.slots[rank]), float(cache.blocks[rank])
        one = admit(_engine(slots, memory.kda_slots, blocks, memory.mla_blocks), MODEL, context)
        free = memory.mla_blocks - int(cache.blocks[rank])
        taken = 0
        while (taken + 1) * -(-context // MLA_BLOCK_TOKENS) <= free:
            taken += 1
        assert one.by_mla == taken
        assert one.by_kda == memory.kda_slots - int(cache.slots[rank])


def test_what_a_request_holds_is_read_off_the_simulators_windows(simulated):
    _, windows = simulated
    slots = np.array([float(one.cache.slots.sum()) for one in windows])
    running = np.array([float(one.running) for one in windows])
    blocks = np.array([float(one.cache.blocks.sum()) for one in windows])
    started = [one.flow.started for one in windows]
    prompts = np.concatenate([one.prompt for one in started])
    outputs = np.concatenate([one.flow.finished.output for one in windows])
    tokens = tokens_of_a_block(
        *(blocks.mean(), running.mean()), prompt_tokens=prompts.mean(), output_tokens=outputs.mean()
    )
    assert slots_of_a_request(slots, running) == 1
    assert tokens == pytest.approx(MLA_BLOCK_TOKENS, rel=0.35)
