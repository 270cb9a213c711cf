import numpy as np
import pytest

from moescope.collector.expert_load import NumpyExpertCounter, Row
from moescope.collector.expert_load_source import ExpertLoadSource
from moescope.schemas import metrics
from moescope.schemas.attributes import EXCLUDED, PHASE, Phase
from moescope.schemas.errors import ShapeError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import IndexedCounts, Measurement
from moescope.schemas.topology import ModelShape, Placement, RankGrid

SHAPE = ModelShape("tiny", 4, (1, 3), 5, 2)


@pytest.fixture
def source() -> ExpertLoadSource:
    identity = EngineIdentity("svc", SHAPE, RankGrid("0", 1, 2))
    return ExpertLoadSource(identity, NumpyExpertCounter(2, 5), snapshot_every_windows=100)


def expert_tokens(records, phase: Phase) -> list[list[int]]:
    [record] = [
        record
        for record in records
        if record.metric is metrics.EXPERT_TOKENS and record.attributes[PHASE] == phase.value
    ]
    return record.counts_per_row_index.tolist()


def token_rows(records) -> dict[tuple[str, str], int]:
    return {
        (record.attributes.get(PHASE, ""), record.attributes[EXCLUDED]): record.value
        for record in records
        if isinstance(record, Measurement) and record.metric is metrics.TOKENS
    }


def test_window_holds_only_what_came_since_the_last_one(source: ExpertLoadSource):
    source.begin_step((Row.PREFILL, 2))
    source.record_topk(3, np.array([[0, 4], [0, 1]]))
    source.close_window(snapshot=False)

    source.begin_step((Row.DECODE, 1))
    source.record_topk(3, np.array([[4, 2]]))
    records = source.close_window(snapshot=False)

    assert expert_tokens(records, Phase.PREFILL) == [[0] * 5, [0] * 5]
    assert expert_tokens(records, Phase.DECODE) == [[0] * 5, [0, 0, 1, 0, 1]]
    assert token_rows(records)[("decode", "none")] == 1


def test_records_name_the_models_layer_index_and_not_the_ordinal(source: ExpertLoadSource):
    [prefill, *_] = source.close_window(snapshot=False)

    assert isinstance(prefill, IndexedCounts)
    assert prefill.layers.tolist() == [1, 3]


def test_token_rows_are_counted_apart_by_why_they_are_excluded(source: ExpertLoadSource):
    source.begin_step((Row.WARMUP, 13))
    source.begin_step((Row.DUMMY, 3))
    source.begin_step((Row.PREFILL, 23), (Row.DECODE, 7))

    rows = token_rows(source.close_window(snapshot=False))

    assert rows == {
        ("prefill", "none"): 23,
        ("decode", "none"): 7,
        ("", "warmup"): 13,
        ("", "dummy"): 3,
    }


def test_padding_rows_are_known_from_the_device(source: ExpertLoadSource):
    source.begin_step((Row.DECODE, 1))
    source.record_topk(1, np.array([[0, 1], [0, 1], [-1, -1]]))

    assert token_rows(source.close_window(snapshot=False))[("", "padding")] == 2


def test_ids_outside_the_model_are_reported_once(source: ExpertLoadSource, caplog: pytest.LogCaptureFixture):
    for _ in range(2):
        source.begin_step((Row.DECODE, 1))
        source.record_topk(1, np.array([[0, 5]]))
        source.close_window(snapshot=False)

    [said] = [record.message for record in caplog.records]
    assert said.startswith("moescope: 1 selected ids are outside 0 … 4 of tiny")


def test_counts_made_by_the_engine_add_to_those_made_here(source: ExpertLoadSource):
    source.begin_step((Row.DECODE, 1))
    source.record_topk(1, np.array([[0, 1]]))
    source.add_counts(Phase.DECODE, 3, np.array([[1, 2, 3, 0, 0], [6, 0, 0, 0, 0]]))

    records = source.close_window(snapshot=False)

    assert expert_tokens(records, Phase.DECODE) == [[2, 3, 3, 0, 0], [6, 0, 0, 0, 0]]
    assert token_rows(records)[("decode", "none")] == 4


def test_first_window_and_changed_placement_carry_a_snapshot(source: ExpertLoadSource):
    def replicas():
        return [
            record.counts_per_row_index.tolist()
            for record in source.close_window(snapshot=False)
            if record.metric is metrics.EXPERT_REPLICAS
        ]

    assert replicas() == [[[0, 0, 0, 1, 1]] * 2], "rank 1 of 2 holds the second block"
    assert replicas() == [[[0, 0, 0, 1, 1]]], "the second layer's turn"
    assert replicas() == []
    source.set_placement(Placement(np.array([[0, 1, 2, 3, 4, 3]] * 2), 2, 5))
    assert replicas() == [[[0, 0, 0, 2, 1]] * 2]


@pytest.mark.parametrize("layer", [0, 2, 4, -1])
def test_layer_without_experts_is_refused_by_its_number(source: ExpertLoadSource, layer: int):
    with pytest.raises(ShapeError, match=f"layer {layer} of tiny"):
        source.record_topk(layer, np.array([[0, 1]]))


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (np.zeros((2, 4), dtype=np.int64), r"\(2, 4\), expected \(2, 5\)"),
        (np.full((2, 5), -1, dtype=np.int64), "negative"),
    ],
)
def test_counts_that_cannot_be_are_refused(source: ExpertLoadSource, counts: np.ndarray, words: str):
    with pytest.raises(ShapeError, match=words):
        source.add_counts(Phase.DECODE, 1, counts)


def test_placement_of_another_group_is_refused(source: ExpertLoadSource):
    with pytest.raises(ShapeError, match="does not fit tiny on 2 ranks"):
        source.set_placement(Placement(np.array([[0, 1, 2, 3, 4]] * 2), 1, 5))


def test_counter_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match="counter has 2 layers × 6 experts"):
        ExpertLoadSource(EngineIdentity("svc", SHAPE), NumpyExpertCounter(2, 6))


def test_placement_is_spread_over_windows_so_that_each_layer_goes_out_once_in_n():
    shape = ModelShape("tiny", 7, (0, 1, 2, 3, 4, 5, 6), 5, 2)
    source = ExpertLoadSource(
        EngineIdentity("svc", shape), NumpyExpertCounter(7, 5), snapshot_every_windows=3
    )

    layers = [
        [
            record.layers.tolist()
            for record in source.close_window(snapshot=False)
            if record.metric is metrics.EXPERT_REPLICAS
        ]
        for _ in range(4)
    ]

    assert layers == [[[0, 1, 2, 3, 4, 5, 6]], [[1, 4]], [[2, 5]], [[0, 3, 6]]]


def test_only_layers_whose_placement_changed_go_out_at_once():
    shape = ModelShape("tiny", 4, (0, 1, 2, 3), 4, 2)
    source = ExpertLoadSource(
        EngineIdentity("svc", shape, RankGrid("0", 0, 2)),
        NumpyExpertCounter(4, 4),
        snapshot_every_windows=100,
    )
    source.close_window(snapshot=False)
    table = np.tile(np.arange(4), (4, 1))
    table[2] = [3, 2, 1, 0]

    source.set_placement(Placement(table, 2, 4))
    [record] = [r for r in source.close_window(snapshot=False) if r.metric is metrics.EXPERT_REPLICAS]

    assert record.layers.tolist() == [1, 2]  # layer 1: its turn; layer 2: changed
    assert record.counts_per_row_index.tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(("row", "name"), [(Row.WARMUP, "warmup"), (Row.DUMMY, "dummy")])
def test_excluded_rows_that_no_step_announces_are_counted_where_they_were_routed(
    source: ExpertLoadSource, row: Row, name: str
):
    source.counter.set_layout([(row, 79)])
    for _ in range(3):
        source.record_topk(1, np.zeros((23, 2), dtype=np.int64))
    source.close_window(snapshot=False)
    source.record_topk(1, np.zeros((13, 2), dtype=np.int64))

    rows = token_rows(source.close_window(snapshot=False))

    assert rows == {("prefill", "none"): 0, ("decode", "none"): 0, ("", name): 13}


def test_excluded_rows_that_are_announced_and_routed_count_once(source: ExpertLoadSource):
    source.begin_step((Row.DUMMY, 13))
    announced = token_rows(source.close_window(snapshot=False))
    source.record_topk(1, np.zeros((13, 2), dtype=np.int64))  # the device was late

    rows = token_rows(source.close_window(snapshot=False))

    assert announced[("", "dummy")] == 13
    assert ("", "dummy") not in rows
