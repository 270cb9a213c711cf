import numpy as np
import pytest

from moescope.analysis.expert_load import list_scopes
from moescope.analysis.expert_weight_size import read_bytes_per_expert
from tests.analysis import known_telemetry
from tests.analysis.known_workloads import KnownFleet


@pytest.fixture(scope="module")
def store(either_store):
    fleet = KnownFleet(num_ranks=4, num_layers=3, minutes=2)
    return either_store(fleet, make=known_telemetry.make_telemetry_store)


def test_a_size_that_ranks_say_for_every_layer_is_that_of_each(store):
    (scope, *_) = list_scopes(store)

    sizes = read_bytes_per_expert(store, scope, np.array([1, 2, 3]), until_ms=scope.end_ms)

    assert sizes.tolist() == [13_000_001] * 3


def test_a_size_that_nobody_said_in_time_is_not_known(store):
    (scope, *_) = list_scopes(store)

    assert read_bytes_per_expert(store, scope, np.array([1]), until_ms=scope.first_ms - 1) is None
