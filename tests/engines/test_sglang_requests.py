"""SGLang's own metric collectors, and what ours says of the same requests."""

import pytest

from moescope.schemas import metrics
from tests.engines.sglang_engine import Engine, KimiLinearConfig, get_context
from tests.engines.sglang_stubs import importing_sglang

with importing_sglang():
    from prometheus_client import REGISTRY
    from sglang.srt.observability import metrics_collector as sglang

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _own_series():
    """SGLang registers its series once per process; here once per test."""
    before = set(REGISTRY._collector_to_names)
    yield
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


@pytest.fixture
def front_end(serve, hooked):
    serve(enable_metrics=True, page_size=16)
    kind = hooked.hook.find_collector(
        sglang.resolve_collector_class, "tokenizer", sglang.TokenizerMetricsCollector
    )
    return kind(server_args=get_context().server_args, labels=sglang.tokenizer_metric_labels())


def finish(collector, e2e, tpot, output, *, prompt=79, cached=0):
    collector.observe_one_finished_request(
        collector.labels, prompt, output, cached, e2e, False, time_per_output_token=tpot
    )


def of_sglang(collector, name, **labels):
    labels = {**collector.labels, **labels}
    return REGISTRY.get_sample_value(f"sglang:{name}", {k: str(v) for k, v in labels.items()})


def distribution(hooked, metric, component="frontend"):
    records = hooked.exporters[component].records(metric)
    return sum(int(r.bucket_counts.sum()) for r in records), sum(r.sum for r in records)


def counters(hooked, metric, key):
    return {r.attributes[key]: r.value for r in hooked.exporters["frontend"].records(metric)}


def test_latencies_equal_sglangs_own(front_end, hooked):
    for seconds in (0.25, 1.5):
        front_end.observe_time_to_first_token(front_end.labels, seconds, stream=False)
    front_end.observe_inter_token_latency(front_end.labels, 0.125, 5)
    front_end.observe_inter_token_latency(front_end.labels, 0.5, 0)
    finish(front_end, 2.5, 0.0625, 17)
    finish(front_end, 0.75, None, 1)

    hooked.close()

    assert distribution(hooked, metrics.TIME_TO_FIRST_TOKEN) == (2, 1.75)
    assert of_sglang(front_end, "time_to_first_token_seconds_sum", is_streaming="false") == 1.75
    assert distribution(hooked, metrics.INTER_TOKEN_LATENCY) == (5, 0.125)
    assert of_sglang(front_end, "inter_token_latency_seconds_sum") == 0.125
    assert distribution(hooked, metrics.REQUEST_DURATION) == (2, 3.25)
    assert of_sglang(front_end, "e2e_request_latency_seconds_sum", is_streaming="false") == 3.25
    # One token has no time per token, here as there.
    assert distribution(hooked, metrics.TIME_PER_OUTPUT_TOKEN) == (1, 0.0625)
    assert of_sglang(front_end, "request_time_per_output_token_seconds_count", is_streaming="false") == 1


def test_goodput_and_prefix_cache_are_counted_request_by_request(front_end, hooked):
    finish(front_end, 1.0 + 0.05 * 22, 0.05, 23, prompt=80, cached=64)
    finish(front_end, 3.0, 0.01, 79, prompt=80, cached=48)  # its first token came too late
    finish(front_end, 0.5, None, 1, prompt=13)
    finish(front_end, 9.0, None, 7, prompt=13)  # aborted

    hooked.close()

    assert counters(hooked, metrics.REQUESTS_FINISHED, "moe.contract") == {"met": 2, "missed": 2}
    assert counters(hooked, metrics.REQUEST_OUTPUT_TOKENS, "moe.contract") == {"met": 24, "missed": 86}
    assert counters(hooked, metrics.PREFIX_CACHE_TOKENS, "moe.result") == {
        "hit": 64,
        "partial_hit": 48,
        "miss": 16 + 32 + 13 + 13,
    }


def test_a_prefill_engines_requests_end_elsewhere(serve, hooked):
    serve(enable_metrics=True, disaggregation_mode="prefill")
    kind = hooked.hook.find_collector(
        sglang.resolve_collector_class, "tokenizer", sglang.TokenizerMetricsCollector
    )
    collector = kind(server_args=get_context().server_args, labels=sglang.tokenizer_metric_labels())

    finish(collector, 1.0, None, 1, prompt=23)

    hooked.close()
    assert hooked.exporters["frontend"].records(metrics.REQUESTS_FINISHED) == []
    assert counters(hooked, metrics.PREFIX_CACHE_TOKENS, "moe.result")["miss"] == 23


def test_after_a_switch_of_roles_a_front_end_counts_by_the_new_one(serve, hooked):
    serve(enable_metrics=True, disaggregation_mode="prefill")
    kind = hooked.hook.find_collector(
        sglang.resolve_collector_class, "tokenizer", sglang.TokenizerMetricsCollector
    )
    collector = kind(server_args=get_context().server_args, labels=sglang.tokenizer_metric_labels())
    finish(collector, 1.0, None, 1, prompt=13)

    # As SGLang's front end does once its schedulers have switched.
    get_context().override("tokenizer.pd_role_switch", disaggregation_mode="decode")
    finish(collector, 1.0, 0.01, 23, prompt=79)

    hooked.close()
    assert counters(hooked, metrics.REQUEST_OUTPUT_TOKENS, "moe.contract") == {"met": 23}
    assert counters(hooked, metrics.PREFIX_CACHE_TOKENS, "moe.result")["miss"] == 13


@pytest.mark.parametrize(
    ("deployment", "group", "ep_size"),
    [
        ({}, "0", 1),
        ({"tp_size": 4, "ep_size": 4}, "0", 4),
        ({"tp_size": 4, "ep_size": 2}, "0-moe-tp0", 2),
        ({"tp_size": 2, "attn_dp_size": 2}, "0-attn-dp0", 1),
        ({"pp_size": 2}, "0-pp0", 1),
        ({"dp_size": 2}, "0-dp0", 1),
    ],
)
def test_a_front_end_names_the_group_of_the_first_rank(serve, hooked, deployment, group, ep_size):
    serve(enable_metrics=True, **deployment)
    Engine(hooked, KimiLinearConfig(num_hidden_layers=3, num_experts=12, num_experts_per_token=2)).start()
    kind = hooked.hook.find_collector(
        sglang.resolve_collector_class, "tokenizer", sglang.TokenizerMetricsCollector
    )
    kind(server_args=get_context().server_args, labels=sglang.tokenizer_metric_labels())

    rank, front_end = (recorder.identity.grid for recorder in hooked.recorders)

    assert front_end == rank
    assert (front_end.ep_group, front_end.ep_rank, front_end.ep_size) == (group, 0, ep_size)


class Pool:
    """A memory pool by the three names that are read of it."""

    def __init__(self, size, mem_usage, page_size=1):
        self.size = size
        self.mem_usage = mem_usage  # GiB
        self.page_size = page_size


def test_a_scheduler_reports_its_load_and_the_rank_beside_it_its_two_caches(serve, hooked, monkeypatch):
    serve(enable_metrics=True)
    monkeypatch.setattr(sglang, "resolve_collector_class", _around(hooked, sglang.resolve_collector_class))
    engine = Engine(
        hooked, KimiLinearConfig(num_hidden_layers=3, num_experts=13, num_experts_per_token=2)
    ).start()
    engine.weight_load_mem_usage = 3.0
    engine.graph_memory_usage = {"decode": 0.5, "prefill": 0.25}
    engine.token_to_kv_pool = Pool(1600, 2.0, page_size=16)
    engine.req_to_token_pool = type("Requests", (), {"mamba_pool": Pool(32, 4.0)})()
    collector = sglang.SchedulerMetricsCollector.init_new(
        server_args=get_context().server_args,
        enable_priority_scheduling=False,
        enable_lora=False,
        enable_hierarchical_cache=False,
    ).collector
    stats = sglang.SchedulerStats(
        num_running_reqs=sglang.QueueCount(7),
        num_queue_reqs=sglang.QueueCount(3),
        kv_used_tokens=400,
        mamba_used_tokens=8,
    )

    collector.log_stats(stats)
    collector.observe_queue_time(0.25)
    hooked.close()

    assert of_sglang(collector, "num_running_reqs") == 7
    assert states(hooked, "scheduler") == {"moe.requests.running": 7, "moe.requests.waiting": 3}
    assert distribution(hooked, metrics.REQUEST_QUEUE_DURATION, "scheduler") == (1, 0.25)
    gib = 1 << 30
    said = states(hooked, "rank")
    assert {key: said[key] / gib for key in said if key.startswith("moe.memory")} == {
        "moe.memory.usage weights": 3.0,
        "moe.memory.usage runtime": 0.75,
        "moe.memory.usage mla_kv_cache": 0.5,
        "moe.memory.usage kda_state": 1.0,
        "moe.memory.limit mla_kv_cache": 2.0,
        "moe.memory.limit kda_state": 4.0,
    }
    assert (said["moe.mla_kv_cache.blocks"], said["moe.mla_kv_cache.blocks.limit"]) == (25, 100)
    assert (said["moe.kda_state.slots"], said["moe.kda_state.slots.limit"]) == (8, 32)


def _around(hooked, original):
    return lambda role, default: hooked.hook.find_collector(original, role, default)


def states(hooked, component):
    wanted = ("moe.requests", "moe.memory", "moe.kda", "moe.mla")
    return {
        " ".join([record.metric.name, *record.attributes.values()]): record.value
        for window in hooked.exporters[component].windows
        for record in window.records
        if record.metric.name.startswith(wanted)
    }


def test_a_listener_that_fails_is_forgotten_and_sglang_goes_on(front_end, hooked, caplog):
    front_end.moescope = object()

    for _ in range(3):
        front_end.observe_time_to_first_token(front_end.labels, 0.5, stream=False)

    assert of_sglang(front_end, "time_to_first_token_seconds_count", is_streaming="false") == 3
    assert caplog.text.count("requests are not measured any more") == 1


def test_a_deployments_own_collector_is_still_its_own(serve, hooked):
    class Own(sglang.TokenizerMetricsCollector):
        pass

    serve(enable_metrics=True, stat_loggers={"tokenizer": Own})

    kind = hooked.hook.find_collector(
        sglang.resolve_collector_class, "tokenizer", sglang.TokenizerMetricsCollector
    )
    other = hooked.hook.find_collector(sglang.resolve_collector_class, "storage", Own)

    assert issubclass(kind, Own)
    assert other is Own
