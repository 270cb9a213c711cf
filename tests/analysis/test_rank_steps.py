"""How long each rank's passes, dispatches and combines take over time."""

import numpy as np
import pyarrow as pa
import pytest

from moescope.analysis.rank_steps import arrange_rank_steps, read_rank_steps
from moescope.analysis.span import cover, list_deployments
from moescope.analysis.store import open_store
from moescope.analysis.straggler_windows import StragglerWindows
from moescope.schemas.attributes import DispatchStage, Phase
from tests.analysis.known_telemetry import make_telemetry_store
from tests.analysis.known_workloads import KnownFleet

WINDOWS = StragglerWindows(0, 120_000, 60, 120_000)


def _table(rows, *names):
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})


def _passes(*rows):
    return _table(rows, "time_ms", "phase", "ep_rank", "steps", "tokens", "total_seconds")


def _calls(*rows):
    return _table(rows, "time_ms", "phase", "stage", "ep_rank", "calls", "total_seconds")


NO_CALLS = _calls((0, "prefill", "dispatch", 5, 13, 1.3))


def test_pass_is_the_mean_of_its_window_and_rank():
    passes = _passes((0, "decode", 3, 13, 79, 0.26), (60_000, "decode", 3, 23, 230, 0.69))
    steps = arrange_rank_steps(WINDOWS, passes, NO_CALLS)[Phase.DECODE]
    assert steps.ranks.tolist() == [3]
    np.testing.assert_allclose(steps.pass_seconds[:, 0], [0.02, 0.03])
    np.testing.assert_allclose(steps.pass_tokens[:, 0], [79 / 13, 10])
    assert steps.typical_pass_seconds[0] == pytest.approx(0.025)


def test_rank_that_says_nothing_is_unknown():
    passes = _passes((0, "decode", 0, 13, 79, 0.26), (60_000, "decode", 1, 23, 230, 0.69))
    steps = arrange_rank_steps(WINDOWS, passes, NO_CALLS)[Phase.DECODE]
    assert np.isnan(steps.pass_seconds[0, 1])
    assert steps.median_of(steps.pass_seconds)[0] == pytest.approx(0.02)
    assert steps.position(1) == 1
    assert steps.position(2) is None


def test_stages_and_phases_stay_apart():
    calls = _calls((0, "decode", "dispatch", 0, 13, 1.3), (0, "decode", "combine", 0, 23, 4.6))
    found = arrange_rank_steps(WINDOWS, _passes((0, "prefill", 7, 13, 79, 1.3)), calls)
    assert found[Phase.DECODE].call_seconds[DispatchStage.DISPATCH][0, 0] == pytest.approx(0.1)
    assert found[Phase.DECODE].call_seconds[DispatchStage.COMBINE][0, 0] == pytest.approx(0.2)
    assert np.isnan(found[Phase.DECODE].pass_seconds).all()
    assert not found[Phase.PREFILL].call_seconds
    assert found[Phase.PREFILL].ranks.tolist() == [7]


def test_row_outside_the_windows_is_left_out():
    passes = _passes((0, "decode", 0, 13, 79, 0.26), (180_000, "decode", 0, 13, 79, 79.0))
    steps = arrange_rank_steps(WINDOWS, passes, NO_CALLS)[Phase.DECODE]
    assert np.isnan(steps.pass_seconds[1, 0])


def test_steps_of_a_store_are_read(tmp_path):
    fleet = KnownFleet(num_ranks=3, num_layers=2, minutes=3)
    store = open_store(make_telemetry_store(tmp_path / "store", fleet))
    try:
        span = cover(list_deployments(store)[0], 900, ep_group="0")
        steps = read_rank_steps(store, span)[Phase.DECODE]
    finally:
        store.close()
    assert steps.ranks.tolist() == [0, 1, 2]
    known = steps.pass_seconds[~np.isnan(steps.pass_seconds)]
    np.testing.assert_allclose(known, 0.03)
    assert len(known) == 9
    assert set(steps.call_seconds) == set(DispatchStage)
