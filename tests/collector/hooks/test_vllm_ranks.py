from types import SimpleNamespace

import pytest

from moescope.collector.hooks.vllm_ranks import Ranks, name_of_model, role_of
from moescope.schemas.attributes import Role

ALONE = {"dp_rank": 0, "dp_size": 1, "pp_rank": 0, "pp_size": 1}


def test_of_tensor_parallel_ranks_that_route_the_same_tokens_the_first_counts():
    counts = [Ranks(**ALONE, tp_rank=r, tp_size=2, ep_rank=0, ep_size=1).counts for r in (0, 1)]

    assert counts == [True, False]


def test_a_rank_that_only_holds_experts_still_reports_where_they_are():
    second = Ranks(**ALONE, tp_rank=1, tp_size=2, ep_rank=1, ep_size=2)

    assert not second.counts
    assert second.reports


def test_a_second_tensor_parallel_rank_without_experts_of_its_own_says_nothing():
    assert not Ranks(**ALONE, tp_rank=1, tp_size=2, ep_rank=0, ep_size=1).reports


def test_sequence_parallel_ranks_each_count_their_share():
    second = Ranks(**ALONE, tp_rank=1, tp_size=4, ep_rank=1, ep_size=4, is_sequence_parallel=True)

    assert second.counts
    assert second.sp_size == 4


def test_each_pipeline_stage_is_an_ep_group_of_its_own():
    stage = Ranks(0, 1, 0, 1, pp_rank=1, pp_size=2, ep_rank=3, ep_size=8).grid("blue")

    assert (stage.ep_group, stage.ep_rank, stage.ep_size) == ("blue-pp1", 3, 8)


@pytest.mark.parametrize(
    ("served", "name"),
    [("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B"), (["k3", "kimi"], "k3"), ("/models/Kimi-K3/", "Kimi-K3")],
)
def test_the_model_goes_by_its_first_served_name(served, name):
    config = SimpleNamespace(model_config=SimpleNamespace(served_model_name=served))

    assert name_of_model(config) == name


@pytest.mark.parametrize(
    ("transfer", "role"),
    [
        (None, Role.MIXED),
        (SimpleNamespace(kv_role="kv_producer"), Role.PREFILL),
        (SimpleNamespace(kv_role="kv_consumer"), Role.DECODE),
        (SimpleNamespace(kv_role="kv_both"), Role.MIXED),
    ],
)
def test_the_kv_transfer_role_says_which_phases_are_served(transfer, role):
    assert role_of(SimpleNamespace(kv_transfer_config=transfer)) is role
