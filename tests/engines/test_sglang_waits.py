"""DeepEP's waits, and what it says it sends: against stand-ins for its buffer, which needs several GPUs."""

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from moescope.collector.hooks.sglang_waits import watch_low_latency_waits
from moescope.schemas import metrics
from tests.engines.sglang_engine import Engine, ForwardMode, Hooked, KimiLinearConfig, batch_of, distinct_ids

pytestmark = pytest.mark.engine


class StandInBuffer:
    """``deep_ep.Buffer`` of sgl-deep-ep 0.1.2: the signatures, and waits that a test makes up."""

    def __init__(self, group_size=4):
        self.group_size = group_size
        self.seen = []

    def low_latency_dispatch(  # noqa: PLR0917 - DeepEP's signature
        self,
        x,
        topk_idx,
        num_max_dispatch_tokens_per_rank,
        num_experts,
        cumulative_local_expert_recv_stats=None,
        dispatch_wait_recv_cost_stats=None,
        x_global_scale=None,
        use_fp8=True,
        async_finish=False,
        return_recv_hook=False,
    ):
        self.seen.append(dispatch_wait_recv_cost_stats)
        if dispatch_wait_recv_cost_stats is not None:
            dispatch_wait_recv_cost_stats += torch.tensor([0, 13, 23, 79])
        return x, topk_idx

    def low_latency_combine(  # noqa: PLR0917 - DeepEP's signature
        self,
        x,
        topk_idx,
        topk_weights,
        handle,
        use_logfmt=False,
        zero_copy=False,
        async_finish=False,
        return_recv_hook=False,
        out=None,
        combine_wait_recv_cost_stats=None,
    ):
        self.seen.append(combine_wait_recv_cost_stats)
        if combine_wait_recv_cost_stats is not None:
            combine_wait_recv_cost_stats += torch.tensor([0, 7, 5, 3])
        return x


class MeterOf:
    """What was added, by stage."""

    def __init__(self):
        self.added = {}

    def add_indexed(self, metric, counts, attributes):
        assert metric is metrics.DISPATCH_WAIT
        stage = attributes["moe.stage"]
        self.added[stage] = self.added.get(stage, 0) + np.asarray(counts)


@pytest.fixture
def buffer_class(monkeypatch):
    kind = type("Buffer", (StandInBuffer,), dict(vars(StandInBuffer)))
    monkeypatch.setitem(sys.modules, "deep_ep", SimpleNamespace(Buffer=kind))
    return kind


def test_waits_are_handed_in_and_read_as_differences_between_windows(buffer_class):
    watch = watch_low_latency_waits(4, "cpu")
    buffer, meter = buffer_class(), MeterOf()

    for _ in range(2):
        for _ in range(3):
            buffer.low_latency_dispatch("x", "ids", 128, 16, use_fp8=False)
            buffer.low_latency_combine("x", "ids", "weights", ())
        watch.report(meter)

    # Where no clock is known a cycle is a nanosecond.
    assert meter.added["dispatch"].tolist() == [0, 6 * 13, 6 * 23, 6 * 79]
    assert meter.added["combine"].tolist() == [0, 6 * 7, 6 * 5, 6 * 3]
    assert buffer.seen[0].data_ptr() == buffer.seen[2].data_ptr()  # graphs keep the address


def test_a_caller_that_measures_for_itself_keeps_its_tensor(buffer_class):
    watch_low_latency_waits(4, "cpu")
    buffer, own = buffer_class(), torch.zeros(4, dtype=torch.int64)

    buffer.low_latency_dispatch("x", "ids", 128, 16, dispatch_wait_recv_cost_stats=own)
    buffer.low_latency_dispatch("x", "ids", 128, 16, None, own)

    assert own.tolist() == [0, 26, 46, 158]


def test_a_buffer_of_another_group_is_left_alone(buffer_class):
    watch_low_latency_waits(4, "cpu")
    buffer = buffer_class(group_size=2)

    buffer.low_latency_dispatch("x", "ids", 128, 16)

    assert buffer.seen == [None]


def test_a_deepep_without_wait_statistics_is_left_alone(monkeypatch):
    class ElasticBuffer:
        def low_latency_dispatch(self, x):
            return x

    before = ElasticBuffer.low_latency_dispatch
    monkeypatch.setitem(sys.modules, "deep_ep", SimpleNamespace(Buffer=ElasticBuffer))

    assert watch_low_latency_waits(4, "cpu") is None
    assert ElasticBuffer.low_latency_dispatch is before


def test_where_deepep_is_not_loaded_nothing_is_watched(monkeypatch):
    monkeypatch.delitem(sys.modules, "deep_ep", raising=False)

    assert watch_low_latency_waits(4, "cpu") is None


class Capturing(Engine):
    """Captures graphs as SGLang's model runner does, and notes whether another thread could read."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.could_read = []
        self.updater = self.recapture_decode_cuda_graph  # handed out before the model is loaded

    def init_decode_cuda_graph(self):
        setup = self.hooked.hook.rank._setup
        copies = [*setup.counter._copies(), *(counter._copy for counter in setup.waits._counters)]
        assert len(copies) == 3
        with ThreadPoolExecutor(1) as other:
            free = [other.submit(copy._lock.acquire, blocking=False).result() for copy in copies]
        self.could_read.append(any(free))

    def init_prefill_cuda_graph(self):
        Capturing.init_decode_cuda_graph(self)

    def recapture_decode_cuda_graph(self):
        self.init_decode_cuda_graph()

    def _recapture_elastic_cuda_graphs(self):
        self.init_decode_cuda_graph()


def test_no_other_thread_reads_the_device_while_sglang_captures_graphs(buffer_class, serve, hooked):
    serve()
    config = KimiLinearConfig(num_hidden_layers=3, num_experts=13, num_experts_per_token=2)
    engine = Capturing(hooked, config).start()
    draft = Capturing(hooked, config, is_draft=True).start()

    for runner in (engine, draft):
        runner.updater()
        runner.init_decode_cuda_graph()
        runner.init_prefill_cuda_graph()
        runner._recapture_elastic_cuda_graphs()

    assert engine.could_read == draft.could_read == [False] * 4
    with ThreadPoolExecutor(1) as other:  # and afterwards it may
        reads = [counter.take_ns for counter in hooked.hook.rank._setup.waits._counters]
        assert [other.submit(read).result().tolist() for read in reads] == [[0], [0]]


def dispatch_layout(topk_idx, num_experts, num_ranks):
    """What ``deep_ep.Buffer.get_dispatch_layout`` says of the ranks that a token goes to, each once."""
    ranks = topk_idx // (num_experts // num_ranks)
    return torch.stack([(ranks == rank).any(dim=1) for rank in range(num_ranks)], dim=1).sum(dim=0)


def test_ranks_that_share_a_batch_count_its_rows_once_and_send_what_deepep_would(serve):
    """Four ranks, attention TP over all of them, an all-to-all: 10 rows padded to 12, three for each rank."""
    config = KimiLinearConfig(
        num_hidden_layers=3, num_experts=24, num_experts_per_token=4, first_k_dense_replace=1
    )
    ids = {layer: distinct_ids(12, 24, 4, torch.Generator().manual_seed(layer)) for layer in (1, 2)}
    counted, sent, expected_sent = np.zeros(24, dtype=np.int64), [], []
    for rank in range(4):
        serve(rank=rank, tp_size=4, ep_size=4, moe_a2a_backend="deepep", a2a="deepep")
        hooked = Hooked()
        engine = Engine(hooked, config).start()
        own = {layer: chosen[rank * 3 : rank * 3 + 3] for layer, chosen in ids.items()}
        engine.forward(batch_of(ForwardMode.EXTEND, [7, 3]), own.get)
        hooked.close()
        exporter = hooked.exporters["rank"]
        for record in exporter.records(metrics.EXPERT_TOKENS):
            counted += record.counts_per_row_index.sum(axis=0)
        sent.append(sum(r.counts_per_row_index[0] for r in exporter.records(metrics.RANK_TOKENS)).tolist())
        live = slice(0, max(min(10 - rank * 3, 3), 0))
        expected_sent.append(sum(dispatch_layout(own[layer][live], 24, 4) for layer in (1, 2)).tolist())

    assert counted.tolist() == sum(np.bincount(ids[n][:10].flatten(), minlength=24) for n in (1, 2)).tolist()
    assert sent == expected_sent
