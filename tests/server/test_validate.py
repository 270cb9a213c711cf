"""Points are rejected one by one, with a reason; the rest of the batch is kept."""

import math
import time

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from moescope.schemas import attributes as a
from moescope.schemas.metrics import (
    DISPATCH_DURATION,
    EXPERT_DURATION,
    EXPERT_FAILOVERS,
    EXPERT_GROUP_DURATION,
    EXPERT_REPLICAS,
    EXPERT_TOKENS,
    EXPERT_WEIGHT_SIZE,
    GPU_IO,
    GPU_UTILIZATION,
    KDA_STATE_COPIES,
    MEMORY_USAGE,
    METRICS,
    RANK_IO,
    REQUEST_QUEUE_DURATION,
    STEP_DURATION,
    TELEMETRY_EXPORT_FAILURES,
    TIME_TO_FIRST_TOKEN,
    TOKENS,
    Kind,
)
from moescope.schemas.metrics import Encoding as ByIndex
from moescope.schemas.settings import Settings
from moescope.server.otlp_decode import Encoding, decode
from moescope.server.reasons import SENTENCES, Reason
from moescope.server.validate import Validator
from tests.server.otlp_requests import (
    CUMULATIVE,
    DELTA,
    counter,
    gauge,
    histogram,
    index_point,
    key_values,
    request_of,
    resource_of,
)

SETTINGS = Settings(max_future_seconds=60, max_age_seconds=3600)
NS = 10**9


@pytest.fixture
def judge():
    validator = Validator(SETTINGS)

    def judge_metrics(*metrics: Metric, resource: dict | None = None, now_ns: int | None = None):
        request = request_of(resource_of("svc", "one", experts=4) if resource is None else resource, *metrics)
        blocks = decode(request.SerializeToString(), Encoding.PROTOBUF)
        return validator.judge(blocks, time.time_ns() if now_ns is None else now_ns)

    return judge_metrics


def plain_point(**more) -> dict:
    now = time.time_ns()
    fields = {"start_time_unix_nano": now - NS, "time_unix_nano": now, "count": 36, "sum": 1.5}
    return fields | {"bucket_counts": [13, 23], "explicit_bounds": [0.5]} | more


GOOD = index_point([13, 0, 23, 79])


def test_good_point_is_kept(judge):
    verdict = judge(histogram(GOOD))
    assert (verdict.accepted, verdict.rejected.total()) == (1, 0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"time_unix_nano": 0}, Reason.NO_TIME),
        ({"time_unix_nano": time.time_ns() + 3600 * NS}, Reason.FUTURE),
        ({"time_unix_nano": 2**64 - 1}, Reason.FUTURE),
        ({"time_unix_nano": time.time_ns() - 7200 * NS, "start_time_unix_nano": 1}, Reason.TOO_OLD),
        ({"start_time_unix_nano": GOOD["time_unix_nano"] + 1}, Reason.START_AFTER_END),
        ({"explicit_bounds": [0, 1]}, Reason.BUCKET_MISMATCH),
        ({"bucket_counts": [], "explicit_bounds": [0, 1]}, Reason.BUCKET_MISMATCH),
        ({"explicit_bounds": [1, 2, 3]}, Reason.INDEX_BOUNDS),
        ({"explicit_bounds": [0, 1, 2.5]}, Reason.INDEX_BOUNDS),
        ({"explicit_bounds": [0, 1, math.nan]}, Reason.INDEX_BOUNDS),
        ({"bucket_counts": [], "explicit_bounds": []}, Reason.INDEX_BOUNDS),
        ({"count": 114}, Reason.COUNT_MISMATCH),
        ({"bucket_counts": [2**64 - 1, 1, 0, 0], "count": 0}, Reason.COUNT_OUT_OF_RANGE),
        ({"bucket_counts": [2**63, 2**63, 0, 0], "count": 0}, Reason.COUNT_OUT_OF_RANGE),
        ({"attributes": key_values({a.PHASE: "decode"})}, Reason.NO_LAYER),
        ({"attributes": key_values({a.LAYER: "1", a.PHASE: "decode"})}, Reason.NO_LAYER),
        ({"attributes": key_values({a.LAYER: 5, a.PHASE: "decode"})}, Reason.LAYER_OUT_OF_RANGE),
        ({"attributes": key_values({a.LAYER: -1, a.PHASE: "decode"})}, Reason.LAYER_OUT_OF_RANGE),
        ({"attributes": key_values({a.LAYER: 1})}, Reason.PHASE),
        ({"attributes": key_values({a.LAYER: 1, a.PHASE: "Decode"})}, Reason.PHASE),
        ({"attributes": key_values({a.LAYER: 1, a.PHASE: 13})}, Reason.PHASE),
        ({"sum": math.nan}, Reason.NOT_FINITE),
        ({"max": math.inf}, Reason.NOT_FINITE),
    ],
)
def test_bad_index_encoded_point_is_rejected_and_its_neighbours_are_kept(judge, bad, reason):
    verdict = judge(histogram(GOOD, {**GOOD, **bad}, GOOD))
    assert dict(verdict.rejected) == {reason: 1}
    assert verdict.accepted == 2
    (block,) = verdict.blocks
    assert block.buckets.counts.tolist() == [13, 0, 23, 79] * 2
    assert [point.count for point in block.points] == [115, 115]


def test_number_of_experts_must_be_the_resources(judge):
    verdict = judge(histogram(GOOD, index_point([13, 23, 79])))
    assert dict(verdict.rejected) == {Reason.EXPERT_COUNT: 1}


def test_shape_that_changes_mid_run_is_rejected(judge):
    changed = histogram(index_point([13, 23]))
    assert judge(histogram(GOOD)).accepted == 1
    assert dict(judge(changed, resource=resource_of("svc", "one", experts=2)).rejected) == {
        Reason.SHAPE_CHANGED: 1
    }
    assert judge(changed, resource=resource_of("svc", "two", experts=2)).accepted == 1
    assert judge(histogram(GOOD)).accepted == 1


def test_shape_is_learned_from_the_points_where_the_resource_is_silent(judge):
    silent = {a.SERVICE_NAME: "svc", a.SERVICE_INSTANCE_ID: "silent"}
    broken = {**index_point([13, 23]), "explicit_bounds": []}
    first = judge(histogram(broken, GOOD), resource=silent)
    assert dict(first.rejected) == {Reason.BUCKET_MISMATCH: 1}
    later = judge(histogram(GOOD, index_point([13, 23])), resource=silent)
    assert dict(later.rejected) == {Reason.SHAPE_CHANGED: 1}


def by_peer(counts, **attributes) -> dict:
    return index_point(
        counts, attributes=key_values({a.PHASE: "decode", a.DIRECTION: "transmit", **attributes})
    )


def test_peer_rank_metric_needs_no_layer_and_as_many_buckets_as_ranks(judge):
    points = by_peer([13, 23]), by_peer([13, 23, 79]), by_peer([13])
    resource = resource_of("svc", "one", **{a.EP_SIZE: 2})
    verdict = judge(histogram(*points, name=RANK_IO.name, unit="By"), resource=resource)
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.RANK_COUNT: 2})


def test_peer_ranks_are_numbered_in_two_bytes_where_the_resource_says_nothing(judge):
    points = by_peer([1] * 65_536), by_peer([1] * 65_537)
    verdict = judge(histogram(*points, name=RANK_IO.name, unit="By"), resource={a.SERVICE_NAME: "svc"})
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.RANK_COUNT: 1})


def test_layer_is_opt_in_for_peer_ranks_and_must_then_be_one_of_the_models(judge):
    points = [by_peer([13], **{a.LAYER: layer}) for layer in (1, 4, 5, -1, "1")]
    verdict = judge(histogram(*points, name=RANK_IO.name, unit="By"))
    assert (verdict.accepted, dict(verdict.rejected)) == (
        2,
        {Reason.LAYER_OUT_OF_RANGE: 2, Reason.NO_LAYER: 1},
    )


def test_metric_by_layer_has_a_bucket_for_each_layer_of_the_model(judge):
    phase = key_values({a.PHASE: "prefill"})
    points = [index_point(counts, attributes=phase) for counts in ([0, 13, 23, 79, 1], [13, 23, 79, 1])]
    verdict = judge(histogram(*points, name=EXPERT_GROUP_DURATION.name, unit="ns"))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.LAYER_COUNT: 1})


@pytest.mark.parametrize("metric", [STEP_DURATION, DISPATCH_DURATION], ids=lambda metric: metric.name)
def test_phase_is_required_where_the_registry_lists_it(judge, metric):
    stage = {a.STAGE: "combine"}
    phases = ({a.PHASE: "decode"}, {a.PHASE: ""}, {})
    points = [plain_point(attributes=key_values(stage | said)) for said in phases]
    verdict = judge(histogram(*points, name=metric.name, unit="s"))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.PHASE: 2})


def test_state_below_zero_or_sent_as_a_change_is_rejected(judge):
    def state(value, temporality=CUMULATIVE):
        pool = key_values({a.POOL: "weights"})
        fields = {"is_monotonic": False, "temporality": temporality, "attributes": pool}
        return counter(value, name=MEMORY_USAGE.name, unit="By", **fields)

    verdict = judge(state(13), state(0), state(-1), state(23, temporality=DELTA))
    assert (verdict.accepted, dict(verdict.rejected)) == (
        2,
        {Reason.NEGATIVE_STATE: 1, Reason.NOT_A_STATE: 1},
    )
    assert dict(judge(gauge(-0.5, name=GPU_UTILIZATION.name, unit="1")).rejected) == {
        Reason.NEGATIVE_STATE: 1
    }


def test_metrics_of_the_conventions_may_be_cumulative(judge):
    latency = histogram(plain_point(), name=TIME_TO_FIRST_TOKEN.name, unit="s", temporality=CUMULATIVE)
    moved = counter(13, name=GPU_IO.name, unit="By", temporality=CUMULATIVE)
    ours = histogram(plain_point(), name=REQUEST_QUEUE_DURATION.name, unit="s", temporality=CUMULATIVE)
    verdict = judge(latency, moved, ours)
    assert (verdict.accepted, dict(verdict.rejected)) == (2, {Reason.NOT_DELTA: 1})


def test_point_of_an_unknown_metric_may_call_itself_index_encoded(judge):
    wrong = {**GOOD, "explicit_bounds": [0, 1, 3]}
    verdict = judge(histogram(GOOD, wrong, name="private.counts"))
    assert dict(verdict.rejected) == {Reason.INDEX_BOUNDS: 1}


def test_snapshot_of_replicas_is_an_expert_metric(judge):
    verdict = judge(histogram(GOOD, index_point([1, 1]), name=EXPERT_REPLICAS.name, temporality=2))
    assert dict(verdict.rejected) == {Reason.EXPERT_COUNT: 1}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"explicit_bounds": [0.5, 0.5], "bucket_counts": [13, 23, 0]}, Reason.BOUNDS_NOT_INCREASING),
        ({"explicit_bounds": [1, 0.5], "bucket_counts": [13, 23, 0]}, Reason.BOUNDS_NOT_INCREASING),
        ({"explicit_bounds": [math.nan]}, Reason.BOUNDS_NOT_INCREASING),
        ({"explicit_bounds": [math.inf]}, Reason.BOUNDS_NOT_INCREASING),
        ({"sum": -0.5}, Reason.NEGATIVE_DURATION),
        ({"min": -0.5}, Reason.NEGATIVE_DURATION),
    ],
)
def test_bad_plain_histogram_is_rejected(judge, bad, reason):
    verdict = judge(histogram(plain_point(), plain_point(**bad), name="wait", unit="s"))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {reason: 1})


def test_first_bound_of_a_point_may_lie_below_the_last_of_its_neighbour(judge):
    assert judge(histogram(plain_point(), plain_point(explicit_bounds=[0.1]), name="wait")).accepted == 2


def test_negative_sum_of_something_that_is_no_duration_is_kept(judge):
    assert judge(histogram(plain_point(sum=-4.0), name="drift", unit="Cel")).accepted == 1


def test_histogram_without_buckets_is_kept(judge):
    point = plain_point(bucket_counts=[], explicit_bounds=[])
    assert judge(histogram(point, name="wait")).accepted == 1


def test_unspecified_temporality_is_rejected(judge):
    verdict = judge(histogram(GOOD, temporality=0), counter(13, temporality=0))
    assert dict(verdict.rejected) == {Reason.NO_TEMPORALITY: 2}


def test_cumulative_load_is_rejected_with_the_way_out(judge):
    verdict = judge(
        histogram(GOOD, GOOD, temporality=CUMULATIVE),
        histogram(GOOD, name=EXPERT_DURATION.name, unit="ns", temporality=CUMULATIVE),
        counter(13, temporality=CUMULATIVE),
        histogram(GOOD),
        counter(13),
    )
    assert (verdict.accepted, dict(verdict.rejected)) == (2, {Reason.NOT_DELTA: 4})
    named = [str(error).partition(" ")[0] for error in verdict.errors]
    assert named == [EXPERT_TOKENS.name, EXPERT_DURATION.name, TOKENS.name]
    assert all("TEMPORALITY_PREFERENCE=delta" in str(error) for error in verdict.errors)


def test_cumulative_points_of_what_is_no_load_are_kept(judge):
    requests = counter(23, name="requests", temporality=CUMULATIVE)
    waits = histogram(plain_point(), name="wait", temporality=CUMULATIVE)
    copies = histogram(GOOD, name=EXPERT_REPLICAS.name, temporality=CUMULATIVE)
    assert judge(requests, waits, copies).accepted == 3


def tokens(**attributes: str) -> Metric:
    return counter(13, attributes=key_values({f"moe.{key}": value for key, value in attributes.items()}))


def test_tokens_of_the_load_need_a_phase_and_the_others_do_not(judge):
    verdict = judge(
        tokens(excluded="none"),
        tokens(excluded="none", phase="mixed"),
        tokens(excluded="none", phase="prefill"),
        tokens(excluded="padding"),
    )
    assert (verdict.accepted, dict(verdict.rejected)) == (2, {Reason.PHASE: 2})
    assert "moe.phase must be one of prefill, decode" in str(verdict.errors[0])


VOCABULARIES = {
    a.EXCLUDED: a.Excluded,
    a.SOURCE: a.DurationSource,
    a.STAGE: a.DispatchStage,
    a.POOL: a.MemoryPool,
    a.RESULT: a.CacheResult,
    a.CONTRACT: a.Contract,
    a.DIRECTION: a.Direction,
}
OPEN_ATTRIBUTES = {a.LAYER, a.PHASE, a.HW_ID, a.OPERATION, a.PROVIDER, a.REQUEST_MODEL}
REASONS = {EXPERT_FAILOVERS.name: a.FailoverReason, KDA_STATE_COPIES.name: a.CopyReason}
CLOSED = [
    (metric, key, REASONS[metric.name] if key == a.REASON else VOCABULARIES[key])
    for metric in METRICS
    for key in metric.attributes
    if key not in OPEN_ATTRIBUTES and (key != a.REASON or metric.name in REASONS)
]


def point_of(metric, attributes: dict) -> Metric:
    """A point that is right but for what ``attributes`` say."""
    said = {a.LAYER: 1, a.PHASE: "decode", a.HW_ID: "GPU-13"}
    said = {key: said[key] for key in metric.attributes if key in said}
    for key in metric.attributes:
        if key in VOCABULARIES:
            said[key] = next(iter(VOCABULARIES[key])).value
        elif key == a.REASON and metric.name in REASONS:
            said[key] = next(iter(REASONS[metric.name])).value
    said = key_values({key: word for key, word in (said | attributes).items() if word is not None})
    if metric.kind is not Kind.HISTOGRAM:
        is_change = metric.kind is Kind.COUNTER
        temporality = DELTA if is_change else CUMULATIVE
        more = {"attributes": said, "temporality": temporality, "is_monotonic": is_change}
        return counter(13, name=metric.name, unit=metric.unit, **more)
    if not metric.is_index_encoded:
        return histogram(plain_point(attributes=said), name=metric.name, unit=metric.unit)
    widths = {ByIndex.BY_PEER_RANK: 1, ByIndex.BY_LAYER: 5}
    counts = [13] + [23] * (widths.get(metric.encoding, 4) - 1)
    return histogram(index_point(counts, attributes=said), name=metric.name, unit=metric.unit)


@pytest.mark.parametrize(
    ("metric", "key", "vocabulary"), CLOSED, ids=lambda part: part.name if hasattr(part, "kind") else None
)
def test_word_that_is_none_of_its_vocabulary_is_rejected(judge, metric, key, vocabulary):
    known = [point_of(metric, {key: word.value}) for word in vocabulary]
    assert judge(*known).accepted == len(vocabulary)

    unknown = [point_of(metric, {key: word}) for word in ("novel", "x" * 10_000, 13)]
    verdict = judge(*known, *unknown)
    assert (verdict.accepted, verdict.rejected.total()) == (len(vocabulary), 3)
    assert f"{key} must be one of {', '.join(vocabulary)}" in str(verdict.errors[0])

    is_own = metric.name.startswith("moe.")
    assert judge(point_of(metric, {key: None})).rejected.total() == is_own, "stock senders may leave it out"


def test_reason_of_a_failed_export_is_any_short_word(judge):
    words = ("unavailable", "a new one", "x" * 64, "x" * 65)
    verdict = judge(*(point_of(TELEMETRY_EXPORT_FAILURES, {a.REASON: word}) for word in words))
    assert (verdict.accepted, dict(verdict.rejected)) == (3, {Reason.LONG_REASON: 1})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_process_of_an_unknown_kind_is_rejected_with_all_it_says(judge, metric):
    point = point_of(metric, {})
    for component in (None, *a.Component):
        said = {} if component is None else {a.COMPONENT: component.value}
        assert judge(point, resource=resource_of("svc", "one", experts=4, **said)).accepted == 1
    verdict = judge(point, resource=resource_of("svc", "one", experts=4, **{a.COMPONENT: "router"}))
    assert dict(verdict.rejected) == {Reason.COMPONENT: 1}


def test_row_that_is_no_load_may_lack_a_phase_and_have_no_unknown_one(judge):
    verdict = judge(tokens(excluded="dummy", phase=""), tokens(excluded="dummy", phase="mixed"))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.PHASE: 1})


def test_own_gauge_sent_as_a_change_is_no_state(judge):
    weight = {"name": EXPERT_WEIGHT_SIZE.name, "unit": "By", "is_monotonic": False}
    verdict = judge(*(counter(13, temporality=temporality, **weight) for temporality in (DELTA, CUMULATIVE)))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.NOT_A_STATE: 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_is_none_is_rejected(judge, value):
    verdict = judge(gauge(value), counter(value), gauge(23))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.NOT_FINITE: 2})


def test_negative_change_of_a_counter_is_rejected(judge):
    level = counter(-13, name="level", is_monotonic=False)
    verdict = judge(counter(-13), level, counter(-1, is_monotonic=False))
    # moe.tokens is a counter by the registry, whatever the sender calls it.
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.NEGATIVE_COUNTER: 2})


def test_point_without_value_is_rejected_unless_it_says_so(judge):
    verdict = judge(gauge(None), gauge(None, flags=1))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.NO_VALUE: 1})


def exponential(**more) -> Metric:
    metric = Metric(name="latency", unit="s")
    metric.exponential_histogram.aggregation_temporality = 1
    fields = {"time_unix_nano": time.time_ns(), "count": 36, "zero_count": 13, "sum": 2.0, **more}
    point = metric.exponential_histogram.data_points.add(**fields)
    point.positive.bucket_counts.extend([20, 3])
    return metric


def test_exponential_histogram_must_add_up(judge):
    verdict = judge(exponential(), exponential(count=35))
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.COUNT_MISMATCH: 1})


def test_summary_with_an_infinite_quantile_is_rejected(judge):
    metric = Metric(name="summary")
    for value in (0.5, math.inf):
        point = metric.summary.data_points.add(time_unix_nano=time.time_ns(), count=13, sum=7)
        point.quantile_values.add(quantile=0.99, value=value)
    verdict = judge(metric)
    assert (verdict.accepted, dict(verdict.rejected)) == (1, {Reason.NOT_FINITE: 1})


def test_block_without_good_points_is_gone(judge):
    verdict = judge(gauge(math.nan))
    assert verdict.blocks == ()
    assert verdict.accepted == 0


def test_error_names_metric_instance_count_and_way_out(judge):
    (error,) = judge(histogram({**GOOD, "count": 1}, {**GOOD, "count": 2})).errors
    assert error.reason == Reason.COUNT_MISMATCH
    assert str(error) == "moe.expert.tokens of one: 2 point(s) rejected, count is not the sum of the buckets"


def test_every_reason_has_a_sentence():
    assert set(SENTENCES) == set(Reason)


def test_one_clock_reading_decides(judge):
    now = time.time_ns()
    edge = index_point([13, 0, 23, 79], end_ns=now + 60 * NS)
    assert judge(histogram(edge), now_ns=now).accepted == 1
    assert judge(histogram(edge), now_ns=now - 1).accepted == 0
