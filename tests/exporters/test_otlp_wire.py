import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from moescope.exporters.otlp_wire import MAX_REQUEST_BYTES, OtlpPacker
from moescope.schemas import metrics
from moescope.schemas.errors import ShapeError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import Distribution, IndexedCounts, Measurement, Window
from moescope.schemas.topology import MODEL_SHAPES

RESOURCE = {"service.name": "svc", "moe.ep.rank": 3}


def unpack(requests: list[bytes]) -> list[pb.Metric]:
    found = []
    for request in requests:
        assert len(request) < 4 * 2**20
        [resource_metrics] = ExportMetricsServiceRequest.FromString(request).resource_metrics
        [scope_metrics] = resource_metrics.scope_metrics
        found += scope_metrics.metrics
    return found


def attributes_of(point) -> dict:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in point.attributes}


def pack_counts(counts, layers=(1, 2), metric=metrics.EXPERT_TOKENS, **attributes) -> list[pb.Metric]:
    record = IndexedCounts(metric, np.asarray(layers, dtype=np.int64), np.asarray(counts), attributes)
    return unpack(OtlpPacker(RESOURCE).pack(Window(10, 20, (record,))))


def test_bucket_counts_keep_expert_order():
    [metric] = pack_counts([[13, 0, 23, 79], [1, 2, 3, 5]], **{"moe.phase": "decode"})

    first, second = metric.histogram.data_points
    assert list(first.bucket_counts) == [13, 0, 23, 79]
    assert list(second.bucket_counts) == [1, 2, 3, 5]
    assert list(first.explicit_bounds) == [0, 1, 2]


def test_point_is_valid_otlp_without_sum_min_or_max():
    [metric] = pack_counts([[13, 0, 23, 79], [1, 2, 3, 5]], **{"moe.phase": "decode"})

    point = metric.histogram.data_points[0]
    assert point.count == 115
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert [name for name in ("sum", "min", "max") if point.HasField(name)] == []
    assert (point.start_time_unix_nano, point.time_unix_nano) == (10, 20)
    assert metric.histogram.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_DELTA
    assert (metric.name, metric.unit) == ("moe.expert.tokens", "{token}")


def test_point_and_metric_say_that_the_bucket_is_an_index():
    [metric] = pack_counts([[1, 2], [3, 4]], **{"moe.phase": "decode"})

    assert attributes_of(metric.histogram.data_points[1]) == {
        "moe.phase": "decode",
        "moe.encoding": "index",
        "moe.layer": 2,
    }
    assert [(a.key, a.value.string_value) for a in metric.metadata] == [("moe.encoding", "index")]


def test_layer_that_counted_nothing_is_left_out():
    [metric] = pack_counts([[0, 0, 0], [0, 13, 0]])

    [point] = metric.histogram.data_points
    assert attributes_of(point)["moe.layer"] == 2


def test_window_without_counts_has_no_request():
    assert pack_counts([[0, 0], [0, 0]]) == []


def test_peer_ranks_that_were_sent_nothing_are_left_out():
    record = IndexedCounts(
        metrics.RANK_TOKENS, np.empty(0, dtype=np.int64), np.zeros((1, 13), dtype=np.int64)
    )

    assert OtlpPacker({}).pack(Window(1, 2, (record,))) == []


def test_snapshot_says_so_is_cumulative_and_keeps_empty_layers():
    [metric] = pack_counts([[0, 0], [1, 0]], metric=metrics.EXPERT_REPLICAS)

    assert len(metric.histogram.data_points) == 2
    assert attributes_of(metric.histogram.data_points[0])["moe.snapshot"] is True
    assert metric.histogram.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_model_with_one_expert_has_no_bounds():
    [metric] = pack_counts([[13], [23]])

    point = metric.histogram.data_points[0]
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([13], [])


def test_peer_rank_counts_need_no_layer():
    [metric] = pack_counts([[5, 0, 7]], layers=(), metric=metrics.RANK_TOKENS, **{"moe.phase": "prefill"})

    [point] = metric.histogram.data_points
    assert list(point.bucket_counts) == [5, 0, 7]
    assert "moe.layer" not in attributes_of(point)


def test_peer_ranks_that_got_nothing_are_left_out_and_stop_nothing_else():
    records = [
        IndexedCounts(metrics.RANK_TOKENS, np.empty(0, np.int64), np.array([counts]), {"moe.phase": phase})
        for phase, counts in (("decode", [0, 0]), ("prefill", [13, 0]))
    ]

    [metric] = unpack(OtlpPacker(RESOURCE).pack(Window(10, 20, tuple(records))))

    [point] = metric.histogram.data_points
    assert list(point.bucket_counts) == [13, 0]


@given(
    counts=arrays(np.int64, (4, 5), elements=st.integers(0, 2**62)),
    layers=st.lists(st.integers(0, 20_000), min_size=4, max_size=4, unique=True).map(sorted),
)
def test_any_counts_of_any_layers_come_back(counts: np.ndarray, layers: list[int]):
    counts = counts // 5  # their sum is the point's count, which is 64 bits wide
    found = {
        attributes_of(point)["moe.layer"]: list(point.bucket_counts)
        for metric in pack_counts(counts, layers)
        for point in metric.histogram.data_points
    }

    assert found == {layer: row.tolist() for layer, row in zip(layers, counts, strict=True) if row.any()}


def test_packer_used_again_carries_nothing_over():
    packer = OtlpPacker(RESOURCE)
    layers = np.array([1, 2])

    def pack(counts, start):
        record = IndexedCounts(metrics.EXPERT_TOKENS, layers, np.array(counts))
        return unpack(packer.pack(Window(start, start + 10, (record,))))

    pack([[13, 13], [13, 13]], 0)
    [metric] = pack([[1, 0], [0, 0]], 10)
    [again] = pack([[0, 0], [0, 7]], 20)

    assert [list(p.bucket_counts) for p in metric.histogram.data_points] == [[1, 0]]
    assert [list(p.bucket_counts) for p in again.histogram.data_points] == [[0, 7]]
    assert attributes_of(again.histogram.data_points[0])["moe.layer"] == 2
    assert again.histogram.data_points[0].start_time_unix_nano == 20


def test_kimi_k3_window_fits_one_request_and_a_larger_model_is_split():
    def requests(layers: int, experts: int) -> list[bytes]:
        counts = np.arange(layers * experts, dtype=np.int64).reshape(layers, experts) + 1
        records = tuple(
            IndexedCounts(metrics.EXPERT_TOKENS, np.arange(layers), counts, {"moe.phase": phase})
            for phase in ("prefill", "decode")
        )
        return OtlpPacker(RESOURCE).pack(Window(1, 2, records))

    assert [len(request) for request in requests(92, 896)] == [pytest.approx(2_660_000, rel=0.01)]
    split = requests(200, 4096)
    assert all(len(request) < MAX_REQUEST_BYTES + 2**16 for request in split)
    points = [p for metric in unpack(split) for p in metric.histogram.data_points]
    assert len(points) == 400
    assert sum(p.count for p in points) == 2 * sum(range(1, 200 * 4096 + 1))


def test_plain_metrics_keep_their_kind_and_whole_numbers_stay_whole():
    records = (
        Measurement(metrics.TOKENS, np.int64(13), {"moe.phase": "decode"}),
        Measurement(metrics.REQUESTS_RUNNING, 23),
        Measurement(metrics.GPU_UTILIZATION, 0.5),
        Distribution(metrics.STEP_DURATION, np.arange(13), 7.5, {"moe.phase": "decode"}),
    )

    tokens, running, utilization, duration = unpack(OtlpPacker(RESOURCE).pack(Window(10, 20, records)))

    assert tokens.sum.is_monotonic
    assert tokens.sum.data_points[0].as_int == 13
    assert tokens.sum.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_DELTA
    assert not running.sum.is_monotonic
    assert running.sum.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert utilization.gauge.data_points[0].as_double == 0.5
    [point] = duration.histogram.data_points
    assert (point.count, point.sum) == (sum(range(13)), 7.5)
    assert tuple(point.explicit_bounds) == metrics.STEP_DURATION.bounds


def test_number_for_a_histogram_is_refused():
    with pytest.raises(ShapeError, match=r"moe\.step\.duration is a histogram"):
        OtlpPacker(RESOURCE).pack(Window(1, 2, (Measurement(metrics.STEP_DURATION, 1),)))


def test_resource_says_who_reports_and_of_what_shape():
    identity = EngineIdentity("svc", MODEL_SHAPES["kimi-k3"])
    [request] = OtlpPacker(identity.resource_attributes()).pack(
        Window(1, 2, (Measurement(metrics.TOKENS, 1),))
    )

    [resource_metrics] = ExportMetricsServiceRequest.FromString(request).resource_metrics
    found = attributes_of(resource_metrics.resource)
    assert found["service.name"] == "svc"
    assert (found["moe.model.experts"], found["moe.model.top_k"]) == (896, 16)
    assert (found["moe.model.layers"], found["moe.model.moe_layers"]) == (93, 92)
    assert found["service.instance.id"] == identity.instance
