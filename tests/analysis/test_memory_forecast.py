"""Which pool ends first and when: the planted growth is found, and what does not grow gets no forecast."""

import numpy as np
import pytest

from moescope.analysis.memory_forecast import PoolSeries, Unit, forecast_pool, forecast_pools
from moescope.schemas.attributes import MemoryPool
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.plan import make_plan
from moescope.simulator.scenarios import Scenario

STEP = 10.0
KDA, MLA = MemoryPool.KDA_STATE, MemoryPool.MLA_KV_CACHE


def _series(used, *, limit=1_000.0, pool=KDA, rank=3, step=STEP):
    used = np.asarray(used, dtype=float)
    return PoolSeries((rank,), pool, Unit.SLOTS, 1e9 + np.arange(len(used)) * step, used, limit)


def _noise(seed: int, size: int = 79, scale: float = 7.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, size)


def test_steady_growth_ends_when_the_line_does():
    forecast = forecast_pool(_series(200 + 5 * np.arange(79) + _noise(79)))
    assert forecast is not None
    truth = (1_000 - 200) / 5 * STEP - 78 * STEP
    assert forecast.low_seconds < truth < forecast.high_seconds
    assert forecast.seconds == pytest.approx(truth, rel=0.1)
    assert forecast.per_minute == pytest.approx(30, rel=0.05)
    assert forecast.high_seconds < 2 * forecast.low_seconds


@pytest.mark.parametrize("begun", [23, 41, 59])
def test_growth_that_began_within_the_span_is_followed_from_there(begun: int):
    used = 400 + 13.0 * np.clip(np.arange(79) - begun, 0, None) + _noise(begun)
    forecast = forecast_pool(_series(used, limit=used[-1] + 230))
    assert forecast is not None
    assert forecast.per_minute == pytest.approx(78, rel=0.35)
    assert forecast.stretch_seconds < 78 * STEP


@pytest.mark.parametrize("seed", range(13))
def test_noise_gets_no_forecast(seed: int):
    assert forecast_pool(_series(900 + _noise(seed, scale=23))) is None


@pytest.mark.parametrize("period", [7, 13, 23, 41])
@pytest.mark.parametrize("turn", [0.0, 0.25, 0.5, 0.75])
def test_what_comes_and_goes_gets_no_forecast(period: int, turn: float):
    wave = np.sin(2 * np.pi * (np.arange(79) / period + turn))
    assert forecast_pool(_series(500 + 300 * wave + _noise(period))) is None


def test_growth_that_has_stopped_gets_no_forecast():
    filled = 800 * (1 - np.exp(-np.arange(79) / 13))
    assert forecast_pool(_series(filled + _noise(3))) is None


def test_one_jump_is_no_growth():
    assert forecast_pool(_series(np.where(np.arange(79) < 41, 300, 700) + _noise(7))) is None


def test_growth_that_would_take_far_longer_than_it_was_seen_gets_no_forecast():
    assert forecast_pool(_series(200 + np.arange(79) + _noise(5, scale=1.0), limit=1_000)) is None


@pytest.mark.parametrize("pool", [MemoryPool.WEIGHTS, MemoryPool.RUNTIME, MemoryPool.REPLICATION])
def test_reserved_pools_are_never_forecast(pool: MemoryPool):
    assert forecast_pools([_series(200 + 9 * np.arange(79), pool=pool)]) == ()


def test_full_and_short_series_have_no_forecast():
    assert forecast_pool(_series(np.minimum(200 + 23 * np.arange(79), 1_000))) is None
    assert forecast_pool(_series([1, 2, 3, 4, 5, 6, 7])) is None
    assert forecast_pools([_series(200 + 9 * np.arange(79), limit=0)]) == ()


def test_first_to_end_comes_first_whatever_its_pool():
    slow, fast = 200 + 5.0 * np.arange(79), 200 + 9.0 * np.arange(79)
    found = forecast_pools([_series(slow, rank=0), _series(fast, rank=5, pool=MLA), _series(slow, rank=2)])
    assert [(one.ranks[0], one.pool) for one in found] == [(5, MLA), (0, KDA), (2, KDA)]


# --- against the simulator's own caches ---------------------------------------------------------------------


def _simulate(seed: int, *, ranks: int, tensor_parallel: int, minutes: int, pressure: bool):
    """Windows of one group without a store: slots and blocks ``[windows, engines]``, and their limits."""
    plan = make_plan(
        model="kimi-k3",
        ranks=ranks,
        tensor_parallel=tensor_parallel,
        scenarios=[],
        seed=seed,
        service=None,
    )
    group = SimulatedGroup(plan, 0, "0")
    group.warm_up()
    active = frozenset({Scenario.KDA_PRESSURE} if pressure else ())
    windows = [group.advance(at * STEP, (at + 1) * STEP, active) for at in range(minutes * 6)]
    slots, blocks = (np.array([getattr(one.cache, name) for one in windows]) for name in ("slots", "blocks"))
    return slots, blocks, group.memory


def _all_series(slots, blocks, memory):
    pools = ((KDA, slots, memory.kda_slots), (MLA, blocks, memory.mla_blocks))
    return [
        _series(used[:, engine], limit=limit, pool=pool, rank=engine)
        for pool, used, limit in pools
        for engine in range(used.shape[1])
    ]


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_kda_pressure_is_named_before_it_ends_and_its_end_lies_within_the_interval(seed: int):
    slots, blocks, memory = _simulate(seed, ranks=8, tensor_parallel=4, minutes=12, pressure=True)
    full = int(np.flatnonzero(slots[:, 0] >= memory.kda_slots)[0])
    seen = inside = 0
    for now in range(30, full, 3):
        found = forecast_pools(_all_series(slots[:now], blocks[:now], memory))
        assert {(one.ranks[0], one.pool) for one in found} <= {(0, KDA)}, "the engine of rank 3, and no other"
        for one in found:
            seen += 1
            left = (full - (now - 1)) * STEP
            inside += one.low_seconds - STEP <= left <= one.high_seconds + STEP
    assert seen >= 8, "named for minutes before it ends"
    assert inside >= 0.9 * seen


@pytest.mark.parametrize("seed", range(5))
def test_steady_fleet_gets_no_forecast(seed: int):
    slots, blocks, memory = _simulate(seed, ranks=8, tensor_parallel=4, minutes=15, pressure=False)
    for now in (30, 60, 90):
        assert forecast_pools(_all_series(slots[:now], blocks[:now], memory)) == (), now
