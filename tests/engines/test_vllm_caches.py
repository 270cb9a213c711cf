"""The caches of vLLM's own block manager, without a model: what is lent, to whom, and what it costs."""

import logging
import warnings
from types import SimpleNamespace

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheTensor,
        MambaSpec,
        SlidingWindowSpec,
    )
    from vllm.v1.request import Request

from moescope.collector.hooks import vllm_caches
from moescope.collector.hooks.vllm_caches import CacheWatch, bytes_of_block
from moescope.collector.hooks.vllm_state_copies import StateCopies
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import POOL, REASON

pytestmark = pytest.mark.engine

BLOCK = 16  # tokens
NUM_BLOCKS = 79
FULL = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
SLIDING = SlidingWindowSpec(
    block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.bfloat16, sliding_window=32
)
STATE = MambaSpec(
    block_size=BLOCK,
    shapes=((16, 16),),
    dtypes=(torch.float32,),
    page_size_padded=FULL.page_size_bytes,
    mamba_cache_mode="align",
)


class Meter(Tally):
    """A tally that looks when it is asked for what it has."""

    def poll(self, look):
        self.look = look

    def values(self, metric, key=None):
        self.look()
        return {
            record.attributes.get(key): record.value
            for record in self.close_window(snapshot=True)
            if record.metric is metric
        }

    def value(self, metric):
        (value,) = self.values(metric).values()
        return value


@pytest.fixture(autouse=True)
def hashes():
    init_none_hash(sha256)


def manager_of(*groups, num_blocks=NUM_BLOCKS):
    """A block manager over groups of ``(spec, number of layers)``."""
    specs = [
        KVCacheGroupSpec([f"layer.{index}.{n}" for n in range(layers)], spec)
        for index, (spec, layers) in enumerate(groups)
    ]
    size = num_blocks * max(layers * spec.page_size_bytes for spec, layers in groups)
    tensors = [KVCacheTensor(size, group.layer_names, 0, 0) for group in specs]
    config = KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=tensors, kv_cache_groups=specs)
    return KVCacheManager(config, max_model_len=1024, scheduler_block_size=BLOCK, hash_block_size=BLOCK)


def request(name, tokens):
    return Request(
        name,
        list(tokens),
        SamplingParams(max_tokens=5),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


def schedule(manager, one, tokens):
    """Give a request the blocks for so many more tokens, as the scheduler does, and compute them."""
    manager.new_step_starts()
    if one.num_computed_tokens == 0:
        blocks, found, _ = manager.get_computed_blocks(one)
        assert manager.allocate_slots(one, tokens - found, found, blocks) is not None
    else:
        assert manager.allocate_slots(one, tokens) is not None
    manager.take_kv_cache_block_copies()
    one.num_computed_tokens += tokens


def watch(manager):
    meter = Meter()
    CacheWatch(meter, manager)
    return meter


def test_blocks_of_one_pool_are_not_those_of_the_other():
    manager = manager_of((STATE, 3), (STATE, 3), (FULL, 3))
    meter = watch(manager)

    schedule(manager, request("a", range(48)), 48)
    schedule(manager, request("b", range(100, 113)), 13)

    # Three blocks and one of keys and values; of each request the last state in each group.
    assert meter.value(metrics.MLA_KV_CACHE_BLOCKS) == 4
    assert meter.value(metrics.KDA_STATE_SLOTS) == 2 * 2


def test_used_free_and_null_blocks_are_all_at_every_step():
    manager = manager_of((STATE, 3), (STATE, 2), (FULL, 3), (SLIDING, 3))
    meter = watch(manager)
    running = [request(str(n), range(1000 * n, 1000 * n + tokens)) for n, tokens in enumerate((131, 23, 79))]

    for one in running:
        for start in range(0, one.num_prompt_tokens, 32):
            schedule(manager, one, min(32, one.num_prompt_tokens - start))
            used = meter.value(metrics.KDA_STATE_SLOTS) + meter.value(metrics.MLA_KV_CACHE_BLOCKS)
            assert used + manager.block_pool.get_num_free_blocks() + 1 == NUM_BLOCKS
    for one in running:
        manager.free(one)

    assert meter.value(metrics.KDA_STATE_SLOTS) == meter.value(metrics.MLA_KV_CACHE_BLOCKS) == 0
    assert manager.block_pool.get_num_free_blocks() == NUM_BLOCKS - 1


def test_a_block_that_two_requests_share_is_one():
    manager = manager_of((FULL, 1))
    meter = watch(manager)

    schedule(manager, request("a", range(40)), 40)
    schedule(manager, request("b", range(40)), 40)

    # Two whole blocks are found, so the second request adds its third only.
    assert meter.value(metrics.MLA_KV_CACHE_BLOCKS) == 3 + 1


def test_a_model_with_one_kind_of_cache_says_nothing_of_the_other():
    managers = manager_of((FULL, 1)), manager_of((STATE, 1))
    attention, states = map(watch, managers)

    assert attention.values(metrics.KDA_STATE_SLOTS) == attention.values(metrics.KDA_STATE_SLOTS_LIMIT) == {}
    assert states.values(metrics.MLA_KV_CACHE_BLOCKS) == {}
    assert set(attention.values(metrics.MEMORY_LIMIT, POOL)) == {"mla_kv_cache"}
    assert set(states.values(metrics.MEMORY_LIMIT, POOL)) == {"kda_state"}


def test_a_block_costs_the_pages_of_the_largest_group_whoever_has_it():
    manager = manager_of((STATE, 3), (STATE, 2), (FULL, 3))
    meter = watch(manager)
    schedule(manager, request("a", range(13)), 13)

    block_bytes = 3 * FULL.page_size_bytes
    assert bytes_of_block(manager.kv_cache_config) == block_bytes
    assert meter.values(metrics.MEMORY_USAGE, POOL) == {
        "kda_state": 2 * block_bytes,
        "mla_kv_cache": block_bytes,
    }
    assert set(meter.values(metrics.MEMORY_LIMIT, POOL).values()) == {(NUM_BLOCKS - 1) * block_bytes}


def test_a_manager_that_is_gone_is_not_kept_alive_and_nothing_is_said_of_it():
    manager = manager_of((FULL, 1))
    meter = watch(manager)
    assert meter.value(metrics.MLA_KV_CACHE_BLOCKS_LIMIT) == NUM_BLOCKS - 1

    del manager

    meter.look()
    assert meter.close_window(snapshot=True) == ()


def test_a_table_that_changes_while_it_is_read_leaves_the_state_as_it_was():
    class Changing(dict):
        def values(self):
            raise RuntimeError("dictionary changed size during iteration")

    manager = manager_of((FULL, 1))
    meter = watch(manager)
    schedule(manager, request("a", range(13)), 13)
    assert meter.value(metrics.MLA_KV_CACHE_BLOCKS) == 1

    (group,) = manager.coordinator.single_type_managers
    group.req_to_blocks = Changing(group.req_to_blocks)

    assert meter.value(metrics.MLA_KV_CACHE_BLOCKS) == 1


def test_a_state_that_is_left_behind_at_a_boundary_is_a_checkpoint():
    manager = manager_of((STATE, 1), (FULL, 1))
    meter = watch(manager)
    one = request("a", range(20))

    schedule(manager, one, 16)
    assert meter.values(metrics.KDA_STATE_COPIES, REASON) == {}
    schedule(manager, one, 4)
    assert meter.values(metrics.KDA_STATE_COPIES, REASON) == {"checkpoint": 1}
    schedule(manager, one, 1)
    assert meter.values(metrics.KDA_STATE_COPIES, REASON) == {}


def test_a_state_that_is_found_is_copied_on_write_once_per_group():
    manager = manager_of((STATE, 2), (STATE, 2), (FULL, 2))
    meter = watch(manager)
    first = request("a", range(40))
    schedule(manager, first, 32)
    schedule(manager, first, 8)
    assert meter.values(metrics.KDA_STATE_COPIES, REASON) == {"checkpoint": 2}

    schedule(manager, request("b", range(40)), 40)

    assert meter.values(metrics.KDA_STATE_COPIES, REASON) == {"copy_on_write": 2}


def test_without_checkpoints_no_copies_are_counted():
    in_place = MambaSpec(block_size=BLOCK, shapes=((16, 16),), dtypes=(torch.float32,))
    manager = manager_of((in_place, 1))
    watch(manager)

    (group,) = manager.coordinator.single_type_managers

    assert not StateCopies.can_count(group)
    assert StateCopies.of(group) is None


def test_a_manager_of_another_make_is_left_alone():
    strange = SimpleNamespace(mamba_cache_mode="align", last_state_block_idx={})

    assert not StateCopies.can_count(strange)


class TestInstall:
    @pytest.fixture(autouse=True)
    def unpatched(self):
        before = Scheduler.__init__
        yield before
        vllm_caches.uninstall()
        assert Scheduler.__init__ is before

    def test_twice_patches_once(self):
        vllm_caches.install(lambda *_, **__: None)
        once = Scheduler.__init__
        vllm_caches.install(lambda *_, **__: None)

        assert Scheduler.__init__ is once

    def test_a_scheduler_that_cannot_be_watched_schedules_all_the_same(self, monkeypatch, caplog):
        monkeypatch.setattr(Scheduler, "__init__", lambda self: setattr(self, "is_made", True))
        made_by = Scheduler.__init__
        vllm_caches.install(lambda *_, **__: None)

        with caplog.at_level(logging.ERROR, "moescope"):
            scheduler = Scheduler()

        assert scheduler.is_made
        assert "serving goes on" in caplog.text
        vllm_caches.uninstall()
        assert Scheduler.__init__ is made_by
        monkeypatch.undo()

    def test_the_last_window_is_handed_over_before_the_engine_core_waits_for_its_workers(self):
        ended = []
        scheduler = SimpleNamespace(
            structured_output_manager=SimpleNamespace(clear_backend=lambda: ended.append("backend")),
            shutdown=lambda: ended.append("scheduler"),
        )

        vllm_caches._close_when_it_ends(scheduler, SimpleNamespace(close=lambda _: ended.append("recorder")))
        scheduler.structured_output_manager.clear_backend()
        scheduler.shutdown()

        assert ended == ["recorder", "backend", "recorder", "scheduler"]  # closing twice is closing once

    def test_a_window_that_cannot_be_handed_over_keeps_nobody_from_ending(self, caplog):
        ended = []

        def close(_):
            raise RuntimeError("on purpose")

        scheduler = SimpleNamespace(
            structured_output_manager=SimpleNamespace(clear_backend=lambda: None),
            shutdown=lambda: ended.append("scheduler"),
        )
        vllm_caches._close_when_it_ends(scheduler, SimpleNamespace(close=close))
        with caplog.at_level(logging.ERROR, "moescope"):
            scheduler.shutdown()

        assert ended == ["scheduler"]
        assert "last window is lost" in caplog.text
