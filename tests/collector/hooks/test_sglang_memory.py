from types import SimpleNamespace

import pytest

from moescope.collector.hooks.sglang_memory import Pools, count_state_copies
from moescope.collector.tally import Tally

GIB = 1 << 30


class Weight:
    """A tensor by its shape, and the one storage that it is a view of."""

    def __init__(self, *shape, nbytes, address):
        self.shape = shape
        self.ndim = len(shape)
        self._storage = SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: nbytes)

    def __len__(self):
        return self.shape[0]

    def untyped_storage(self):
        return self._storage


def experts(layer, *weights, held=4):
    return SimpleNamespace(layer_id=layer, num_local_experts=held, parameters=lambda: iter(weights))


def said(tally):
    return {
        " ".join([record.metric.name, *map(str, record.attributes.values())]): record.value
        for record in tally.close_window(snapshot=True)
    }


def report(pools):
    tally = Tally()
    pools.report(tally)  # type: ignore[arg-type]
    return said(tally)


def test_extra_copies_are_no_part_of_the_weights():
    layers = [
        experts(n, Weight(4, 3, nbytes=GIB, address=2 * n), Weight(4, 5, nbytes=GIB, address=2 * n + 1))
        for n in (1, 2)
    ]
    runner = SimpleNamespace(weight_load_mem_usage=7.0)

    # A quarter of the physical experts is redundant, and so of the bytes of all of them.
    assert report(Pools(runner, layers, redundant_share=0.25)) == {
        "moe.memory.usage weights": 6 * GIB,
        "moe.memory.usage replication": GIB,
        "moe.expert.weight.size": GIB // 2,
    }


def test_layers_with_experts_of_different_sizes_are_named():
    layers = [experts(n, Weight(4, 3, nbytes=1000 * n, address=n)) for n in (1, 2)]

    assert report(Pools(SimpleNamespace(), layers)) == {
        "moe.expert.weight.size 1": 250,
        "moe.expert.weight.size 2": 500,
    }


def test_what_is_no_experts_own_and_what_two_weights_share_is_not_counted_twice():
    shared = Weight(4, 3, nbytes=1000, address=1)
    bias, gate = Weight(4, nbytes=77, address=2), Weight(13, 3, nbytes=99, address=3)

    assert report(Pools(SimpleNamespace(), [experts(1, shared, shared, bias, gate)])) == {
        "moe.expert.weight.size": 250
    }


def test_a_rank_whose_caches_are_not_made_yet_says_nothing_of_them():
    assert report(Pools()) == {}
    assert report(Pools(SimpleNamespace(token_to_kv_pool=None, req_to_token_pool=None))) == {}


@pytest.mark.parametrize(
    ("batch", "copies"),
    [
        ({}, {}),
        ({"mamba_cow_src_indices": [], "mamba_prefill_track_mask_cpu": [False]}, {}),
        (
            {"mamba_cow_src_indices": [7, 13, 23], "mamba_prefill_track_mask_cpu": [True, False, True]},
            {"moe.kda_state.copies copy_on_write": 3, "moe.kda_state.copies checkpoint": 2},
        ),
    ],
)
def test_state_copies_of_a_prefill_are_counted_by_their_reason(batch, copies):
    tally = Tally()

    count_state_copies(tally, SimpleNamespace(**batch))  # type: ignore[arg-type]

    assert said(tally) == copies


def test_what_is_in_use_is_forgotten_once_the_scheduler_tells_no_more():
    kv = SimpleNamespace(size=1600, mem_usage=2.0, page_size=16)
    states = SimpleNamespace(size=32, mem_usage=4.0)
    runner = SimpleNamespace(token_to_kv_pool=kv, req_to_token_pool=SimpleNamespace(mamba_pool=states))
    pools, tally = Pools(runner), Tally()
    pools.take(SimpleNamespace(kv_used_tokens=400, mamba_used_tokens=8))
    pools.report(tally)  # type: ignore[arg-type]
    limits = {
        "moe.memory.limit mla_kv_cache": 2 * GIB,
        "moe.memory.limit kda_state": 4 * GIB,
        "moe.mla_kv_cache.blocks.limit": 100,
        "moe.kda_state.slots.limit": 32,
    }
    assert said(tally) == {
        **limits,
        "moe.memory.usage mla_kv_cache": GIB // 2,
        "moe.memory.usage kda_state": GIB,
        "moe.mla_kv_cache.blocks": 25,
        "moe.kda_state.slots": 8,
    }

    pools.take(None)
    pools.report(tally)  # type: ignore[arg-type]

    assert said(tally) == limits
