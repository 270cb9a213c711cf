import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from moescope.collector.hooks.vllm_placement import EplbWatch, find_eplb_state, placement_by_rule
from moescope.schemas.topology import every_layer_from

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map

pytestmark = pytest.mark.engine

SHAPE = every_layer_from("tiny", 1, 3, num_experts=13, top_k=3)


@pytest.mark.parametrize("strategy", ["linear", "round_robin"])
@pytest.mark.parametrize("ep_size", [1, 2, 4, 13])
def test_each_rank_holds_the_experts_that_vllm_gives_it(strategy, ep_size):
    layer = SimpleNamespace(expert_map_manager=SimpleNamespace(placement_strategy=strategy))

    placement = placement_by_rule(SHAPE, ep_size, [layer])

    for rank, held in enumerate(placement.replicas_per_rank_layer_expert()):
        _, expert_map, _ = determine_expert_map(ep_size, rank, 13, strategy)
        theirs = np.ones(13) if expert_map is None else (expert_map.numpy() >= 0)
        assert held.tolist() == [theirs.astype(int).tolist()] * 2


def test_layers_that_do_not_say_are_placed_contiguously():
    placement = placement_by_rule(SHAPE, 2, [SimpleNamespace()])

    assert placement.physical_to_logical_map[0].tolist() == [*range(7), *range(7, 13), -1]


class Watching:
    def __init__(self, table):
        self.state = SimpleNamespace(physical_to_logical_map=torch.tensor(table))
        self.published = []
        self.now = 0.0
        self.watch = EplbWatch(self.state, SHAPE, 2, self.published.append, clock=lambda: self.now)

    def look_for_seconds(self, seconds):
        for _ in range(seconds):
            self.watch.look()
            self.now += 1.0
        return [placement.physical_to_logical_map[0].tolist() for placement in self.published]


IDENTITY = [*range(13), 0]  # 14 slots: expert 0 twice


def test_the_map_is_published_once_and_again_when_it_changed():
    watching = Watching([IDENTITY, IDENTITY])
    assert watching.look_for_seconds(50) == [IDENTITY]

    moved = [*range(13), 7]
    watching.state.physical_to_logical_map = torch.tensor([moved, IDENTITY])

    assert watching.look_for_seconds(50) == [IDENTITY, moved]


def test_a_map_caught_while_experts_move_waits_for_the_next_look():
    lost = [1, *range(1, 13), 1]  # nobody holds expert 0
    watching = Watching([lost, IDENTITY])
    assert watching.look_for_seconds(23) == []

    watching.state.physical_to_logical_map = torch.tensor([IDENTITY, IDENTITY])

    assert watching.look_for_seconds(23) == [IDENTITY]


def test_the_state_of_the_watched_model_is_found_among_others():
    target, draft = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    states = {"draft": SimpleNamespace(model=draft), "target": SimpleNamespace(model=target)}
    runner = SimpleNamespace(eplb_state=SimpleNamespace(model_states=states))

    assert find_eplb_state(runner, torch.nn.Sequential(target)) is states["target"]
    assert find_eplb_state(SimpleNamespace(eplb_state=None), target) is None
    assert find_eplb_state(SimpleNamespace(), target) is None
