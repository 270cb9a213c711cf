"""Real vLLM with a hybrid model: two pools that compete for one, copies of states, and requests offline."""

import pytest

from moescope.schemas import metrics
from moescope.schemas.attributes import CONTRACT, POOL, REASON, RESULT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

# [prompt tokens, generated tokens, seed of the prompt]
ROUNDS = [
    # Of 300 tokens the first two blocks are computed, then the rest; 79 + 61 tokens end in a second block.
    [[13, 23, 1], [79, 61, 2], [300, 1, 3]],
    # The two blocks are found again; nothing of a prompt within its first block is.
    [[300, 5, 3], [79, 1, 2]],
]


@pytest.fixture(scope="module")
def engine(make_run, tmp_path_factory, tiny_qwen3_next):
    """One run of the engine in its program's own process."""
    run = make_run(tmp_path_factory.mktemp("hybrid"), "hybrid-model")
    run.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    run.said = run.generate(
        tiny_qwen3_next,
        ROUNDS,
        program="look_inside.py",
        enforce_eager=True,
        distributed_executor_backend="uni",
    )
    return run


@pytest.fixture
def said(engine):
    """What the engine says of itself."""
    return engine.said


@pytest.fixture
def stored(store, engine):
    """What has arrived of a state, window by window, or of a counter."""

    class Stored:
        def state(self, metric, key=""):
            return store.states("hybrid-model", metric.name, POOL if key else "")[key]

        def counter(self, metric, attribute):
            return store.counters("hybrid-model", metric.name, attribute)

        def distribution(self, metric):
            return store.distributions("hybrid-model").get(metric.name, (0, 0.0))

    return Stored()


def test_the_model_is_hybrid(said):
    assert said["groups"] == [["MambaSpec", 1]] * 3 + [["FullAttentionSpec", 1]]
    assert said["block_size"] == 128
    assert all(said["flushed"])


def test_used_and_free_blocks_and_the_null_block_are_all_that_exist(said, stored):
    slots, blocks = stored.state(metrics.KDA_STATE_SLOTS)[0], stored.state(metrics.MLA_KV_CACHE_BLOCKS)[0]

    assert slots + blocks + said["free_blocks"] + 1 == said["num_blocks"]
    # The request of one token is done by then; the two others hold a block each of 23 and 89 tokens, and a
    # state in each of the three groups.
    assert blocks == 2
    assert slots == 3 * 2


def test_when_nothing_runs_both_pools_are_empty(stored):
    assert stored.state(metrics.KDA_STATE_SLOTS)[-1] == 0
    assert stored.state(metrics.MLA_KV_CACHE_BLOCKS)[-1] == 0


def test_the_pools_compete_for_all_blocks_but_one(said, stored):
    assert set(stored.state(metrics.KDA_STATE_SLOTS_LIMIT)) == {said["num_blocks"] - 1}
    assert set(stored.state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT)) == {said["num_blocks"] - 1}


def test_bytes_are_those_that_blocks_cost_in_the_one_allocation(said, stored):
    block_bytes = said["pool_bytes"] / said["num_blocks"]

    assert stored.state(metrics.MEMORY_USAGE, "kda_state")[0] == 6 * block_bytes
    assert stored.state(metrics.MEMORY_USAGE, "mla_kv_cache")[0] == 2 * block_bytes
    assert stored.state(metrics.MEMORY_LIMIT, "kda_state")[0] == said["pool_bytes"] - block_bytes
    assert stored.state(metrics.MEMORY_LIMIT, "mla_kv_cache")[0] == said["pool_bytes"] - block_bytes


def test_copies_of_states_are_those_that_the_worker_makes(said, stored):
    copies = stored.counter(metrics.KDA_STATE_COPIES, REASON)

    assert sum(copies.values()) == said["copies"]
    # Round 1: at token 256 of 300 and at token 128 of 140. Round 2: from the state that was found.
    assert copies == {"checkpoint": 3 * 2, "copy_on_write": 3}


def test_the_prefix_cache_is_reconciled_with_vllms_own_counters(said, stored):
    found = stored.counter(metrics.PREFIX_CACHE_TOKENS, RESULT)

    assert found == {"hit": 256, "miss": 13 + 79 + 300 + 44 + 79}
    assert found["hit"] == said["metrics"]["vllm:prefix_cache_hits"] == sum(said["cached_tokens"])
    assert sum(found.values()) == said["metrics"]["vllm:prefix_cache_queries"] == sum(said["prompt_tokens"])
    assert found["miss"] == said["metrics"]["vllm:prompt_tokens_by_source[local_compute]"]


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [
        (metrics.TIME_TO_FIRST_TOKEN, "vllm:time_to_first_token_seconds"),
        (metrics.INTER_TOKEN_LATENCY, "vllm:inter_token_latency_seconds"),
        (metrics.REQUEST_QUEUE_DURATION, "vllm:request_queue_time_seconds"),
        (metrics.REQUEST_DURATION, "vllm:e2e_request_latency_seconds"),
    ],
)
def test_latencies_of_the_offline_engine_are_vllms_own(said, stored, metric, theirs):
    count, total = said["metrics"][theirs]

    assert stored.distribution(metric) == (count, pytest.approx(total))
    assert count > 0


def test_only_the_time_per_output_token_of_single_tokens_differs(said, stored):
    count, total = said["metrics"]["vllm:request_time_per_output_token_seconds"]

    assert count == 5  # of them two of one token, for which vLLM says 0
    assert stored.distribution(metrics.TIME_PER_OUTPUT_TOKEN) == (3, pytest.approx(total))


def test_every_request_and_output_token_met_or_missed_the_contract(said, stored):
    assert sum(stored.counter(metrics.REQUESTS_FINISHED, CONTRACT).values()) == 5
    tokens = sum(stored.counter(metrics.REQUEST_OUTPUT_TOKENS, CONTRACT).values())
    assert tokens == sum(said["generated_tokens"]) == said["metrics"]["vllm:generation_tokens"]


def test_two_requests_were_running_and_at_last_none(stored):
    running, waiting = stored.state(metrics.REQUESTS_RUNNING), stored.state(metrics.REQUESTS_WAITING)

    assert (running[0], running[-1]) == (2, 0)
    assert (waiting[0], waiting[-1]) == (0, 0)


def test_each_process_says_what_it_is(store, engine):
    for component in ("frontend", "scheduler"):
        (resource,) = store.resources("hybrid-model", component)
        assert resource["moe.engine"] == "vllm"
        assert (resource["moe.ep.rank"], resource["moe.ep.size"]) == ("0", "1")
        assert resource["moe.model.name"] == "tiny-qwen3-next"


def test_nothing_is_printed_that_was_not_asked_for(engine):
    assert "throughput" not in engine.log.read_text()
    assert engine.said_by_moescope() == []
