"""Two data-parallel vLLM engines that share the experts over gloo, on the CPU with a test-only shim.

What moescope says of the exchange is compared with what the shim counted on the wire, with the ids that the
routers returned, and with the arithmetic of the tensors' sizes.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from moescope.schemas import metrics
from moescope.schemas.attributes import (
    COMPONENT,
    DIRECTION,
    EP_RANK,
    EXCLUDED,
    LAYER,
    PHASE,
    POOL,
    STAGE,
    Component,
)
from tests.server_process import free_ports

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SERVICE = "two-ranks"
PATIENCE_SECONDS = 800  # of a busy machine: it takes 40 on an idle one
TOP_K, MOE_LAYERS, HIDDEN = 4, 3, 64
# bfloat16 hidden states; then float32 weights and int32 ids of the selected experts.
COMBINE_ROW_BYTES = 2 * HIDDEN
DISPATCH_ROW_BYTES = COMBINE_ROW_BYTES + TOP_K * (4 + 4)
# Of each rank: [prompt tokens, generated tokens, seed of the prompt]. The second rank idles in the end.
ROUNDS = [
    [[[13, 23, 1], [79, 5, 2], [201, 1, 3]], [[131, 13, 4]]],
    [[[23, 5, 5], [61, 3, 6]], [[5, 2, 7]]],
]


@pytest.fixture(scope="module")
def shim_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim")
    (folder / "cpu_ep_shim.py").symlink_to(HERE / "shim" / "cpu_ep_shim.py")
    distribution = folder / "cpu_ep_shim-0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: cpu_ep_shim\nVersion: 0\n")
    (distribution / "entry_points.txt").write_text("[vllm.general_plugins]\ncpu_ep_shim = cpu_ep_shim:load\n")
    return folder


@pytest.fixture(scope="module")
def ranks(make_run, tmp_path_factory, shim_path, tiny_qwen3_moe):
    """One finished run by rank: what the routers returned, and what went over the wire."""
    (port,) = free_ports(1)
    runs = [make_run(tmp_path_factory.mktemp(f"rank{rank}"), SERVICE) for rank in (0, 1)]
    processes = []
    for rank, run in enumerate(runs):
        run.environ |= {
            "PYTHONPATH": f"{shim_path}{os.pathsep}{run.environ['PYTHONPATH']}",
            "CPU_EP_SHIM_FILE": str(run.folder / "wire.json"),
            "RECOUNT_RANKS": "2",
            "VLLM_DP_RANK": str(rank),
            "VLLM_DP_RANK_LOCAL": str(rank),
            "VLLM_DP_SIZE": "2",
            "VLLM_DP_MASTER_IP": "127.0.0.1",
            "VLLM_DP_MASTER_PORT": str(port),
            "MOESCOPE_TIMING_SAMPLE": "1",
            # Everything of a rank in one process: three less to start.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
        options = {
            "enforce_eager": True,
            "enable_expert_parallel": True,
            "distributed_executor_backend": "uni",
        }
        program = HERE / "programs" / "generate.py"
        processes.append(
            run.start(sys.executable, program, tiny_qwen3_moe, json.dumps(options), json.dumps(ROUNDS[rank]))
        )
    try:
        for process, run in zip(processes, runs, strict=True):
            assert process.wait(PATIENCE_SECONDS) == 0, run.log.read_text()[-5000:]
    finally:
        for process in processes:
            process.kill()
    for run in runs:
        run.wire = json.loads((run.folder / "wire.json").read_text())
    return runs


class Stored:
    """What has arrived, by EP rank and by attributes, straight from the landing tables."""

    def __init__(self, sql):
        self._sql = sql

    def _sums(self, table, value, metric, keys):
        """{(rank, attribute, …): text of the sum}; an attribute that a point lacks is empty."""
        columns = "".join(f", Attributes['{key}']" for key in keys)
        rows = self._sql(
            f"SELECT ResourceAttributes['{EP_RANK}']{columns}, {value} FROM {table} "
            f"WHERE ServiceName = '{SERVICE}' AND MetricName = '{metric.name}' "
            f"AND ResourceAttributes['{COMPONENT}'] = '{Component.RANK.value}' GROUP BY ALL"
        )
        return {(int(rank), *attributes): total for rank, *attributes, total in rows}

    def arrays(self, metric, *keys):
        found = self._sums("otel_metrics_histogram", "sumForEach(BucketCounts)", metric, keys)
        return {key: json.loads(counts) for key, counts in found.items()}

    def counts(self, metric, *keys):
        found = self._sums("otel_metrics_histogram", "sum(Count)", metric, keys)
        return {key: int(count) for key, count in found.items()}

    def seconds(self, metric, *keys):
        found = self._sums("otel_metrics_histogram", "sum(Sum)", metric, keys)
        return {key: float(total) for key, total in found.items()}

    def tokens(self, rank):
        """Rows of this rank, by phase, or by why they are no load."""
        found = self._sums("otel_metrics_sum", "sum(Value)", metrics.TOKENS, (PHASE, EXCLUDED))
        return {
            phase or why: int(float(total))
            for (of_rank, phase, why), total in found.items()
            if of_rank == rank and float(total)
        }

    def states(self, table, metric, *keys):
        found = self._sums(table, "max(Value)", metric, keys)
        return {key: float(value) for key, value in found.items()}


@pytest.fixture
def stored(store):
    return Stored(store.server.sql)


def test_what_one_rank_sends_the_other_receives_to_the_byte(ranks, stored):
    io = stored.arrays(metrics.RANK_IO, DIRECTION)

    assert io[0, "transmit"][1] == io[1, "receive"][0] == ranks[0].wire["sent"]["1"]
    assert io[1, "transmit"][0] == io[0, "receive"][1] == ranks[1].wire["sent"]["0"]
    assert [io[rank, direction][rank] for rank in (0, 1) for direction in ("transmit", "receive")] == [0] * 4
    assert io[0, "transmit"][1] > 0


def test_the_bytes_are_rows_times_the_size_of_a_row_in_every_layer(ranks, stored):
    io = stored.arrays(metrics.RANK_IO, DIRECTION)
    rows = []
    for rank, run in enumerate(ranks):
        tokens = stored.tokens(rank)
        # Batches of one row that keep the other rank company; the recount has those before its last step.
        dummies = tokens.pop("dummy", 0)
        assert tokens == run.recount["tokens"]
        assert dummies >= run.recount["other_rows"]
        rows.append(sum(tokens.values()) + dummies)

    assert rows[0] != rows[1]
    for rank, peer in ((0, 1), (1, 0)):
        per_layer = rows[rank] * DISPATCH_ROW_BYTES + rows[peer] * COMBINE_ROW_BYTES
        assert io[rank, "transmit"][peer] == MOE_LAYERS * per_layer


def test_each_rank_counts_its_own_prompts(ranks, store, stored):
    expected = {}
    for rank, run in enumerate(ranks):
        said = json.loads(run.result_file.read_text())
        tokens = stored.tokens(rank)
        assert tokens["prefill"] == said["prompt_tokens"] - said["cached_tokens"]
        assert tokens["decode"] == said["generated_tokens"] - said["finished"]
        for key, counts in run.expected_sums.items():
            expected[key] = [a + b for a, b in zip(expected.get(key, [0] * 16), counts, strict=True)]
    assert store.sums(SERVICE) == expected


def test_tokens_by_peer_rank_equal_a_recount_of_the_routers_choices(ranks, stored):
    tokens, assignments = (
        stored.arrays(metric, PHASE) for metric in (metrics.RANK_TOKENS, metrics.RANK_ASSIGNMENTS)
    )

    for rank, run in enumerate(ranks):
        for phase in ("prefill", "decode"):
            assert tokens[rank, phase] == run.recount["rank_tokens"][phase]
            assert assignments[rank, phase] == run.recount["rank_assignments"][phase]
            assert tokens[rank, phase] < assignments[rank, phase]


def test_every_exchange_of_a_pass_is_timed(ranks, stored):
    steps = stored.counts(metrics.STEP_DURATION)
    exchanges = stored.counts(metrics.DISPATCH_DURATION, STAGE)
    seconds = stored.seconds(metrics.DISPATCH_DURATION)

    for rank, run in enumerate(ranks):
        passes = sum(run.recount["steps"].values())
        assert steps[(rank,)] == passes
        assert exchanges[rank, "dispatch"] == exchanges[rank, "combine"] == MOE_LAYERS * passes
        assert 0 < seconds[(rank,)] < stored.seconds(metrics.STEP_DURATION)[(rank,)]


def test_expert_time_is_told_by_layer_of_the_model_and_by_phase(ranks, stored):
    durations = stored.arrays(metrics.EXPERT_GROUP_DURATION, PHASE)

    assert set(durations) == {(rank, phase) for rank in (0, 1) for phase in ("prefill", "decode")}
    for by_layer in durations.values():
        assert [layer for layer, ns in enumerate(by_layer) if ns > 0] == [0, 2, 3]


def test_memory_is_told_in_bytes_of_what_was_loaded(ranks, stored):
    expert_bytes = 3 * HIDDEN * 32 * 2  # gate, up and down projection in bfloat16

    sizes = stored.states("otel_metrics_gauge", metrics.EXPERT_WEIGHT_SIZE, LAYER)
    pools = stored.states("otel_metrics_sum", metrics.MEMORY_USAGE, POOL)

    assert sizes == {(0, ""): expert_bytes, (1, ""): expert_bytes}
    assert set(pools) == {(0, "weights"), (1, "weights")}
    assert all(used > 8 * MOE_LAYERS * expert_bytes for used in pools.values())
