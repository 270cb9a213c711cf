import re

import pytest

from moescope.schemas import metrics
from moescope.schemas.errors import UnknownMetricError
from moescope.schemas.metrics import METRICS, Kind, Metric


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_name_follows_opentelemetry_naming(metric: Metric):
    assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", metric.name)
    assert not metric.name.endswith("_total")
    assert not re.search(r"(seconds|bytes|_ms|_ns)$", metric.name)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_description_is_a_sentence(metric: Metric):
    assert metric.description.endswith(".")
    assert metric.description[0].isupper() or metric.description.startswith("(")


def test_names_are_unique_on_both_spellings():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len({metric.prometheus_name for metric in METRICS}) == len(METRICS)


def test_every_declared_metric_is_in_the_registry():
    declared = [value for value in vars(metrics).values() if isinstance(value, Metric)]

    assert set(declared) == set(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_only_plain_histograms_have_bounds_and_they_increase(metric: Metric):
    is_plain_histogram = metric.kind is Kind.HISTOGRAM and not metric.is_index_encoded

    assert bool(metric.bounds) == is_plain_histogram
    assert list(metric.bounds) == sorted(set(metric.bounds))


def test_index_encoded_metrics_are_histograms_of_whole_units():
    indexed = [metric for metric in METRICS if metric.is_index_encoded]

    assert len(indexed) == 9
    for metric in indexed:
        assert metric.kind is Kind.HISTOGRAM
        assert metric.unit != "s", "bucket counts are integers; a duration travels in nanoseconds"


def test_only_replicas_are_a_snapshot():
    assert [metric.name for metric in METRICS if metric.snapshot] == ["moe.expert.replicas"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("moe.tokens", "moe_tokens_total"),
        ("moe.memory.usage", "moe_memory_usage_bytes"),
        ("gen_ai.server.time_to_first_token", "gen_ai_server_time_to_first_token_seconds"),
        ("hw.gpu.utilization", "hw_gpu_utilization_ratio"),
        ("hw.gpu.io", "hw_gpu_io_bytes_total"),
        ("moe.requests.running", "moe_requests_running"),
    ],
)
def test_prometheus_name_is_derived(name: str, expected: str):
    assert metrics.get_metric(name).prometheus_name == expected


def test_unknown_name_says_where_the_known_ones_are():
    with pytest.raises(UnknownMetricError, match=r"'moe\.expert\.tokenz'.*docs/metrics\.md"):
        metrics.get_metric("moe.expert.tokenz")
