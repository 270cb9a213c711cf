"""Bytes that are added up while nobody asks for them: an outage, in which no window is closed."""

import pytest

from moescope.collector.forward_pass import ForwardPass
from moescope.collector.hooks import vllm_traffic
from moescope.collector.hooks.vllm_traffic import Traffic
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import DIRECTION, PHASE, DispatchStage
from moescope.schemas.topology import every_layer_from

SHAPE = every_layer_from("tiny", 1, 3, num_experts=13, top_k=3)
PASSES = 79


def bytes_of(meter):
    return {
        (r.attributes[DIRECTION], r.attributes[PHASE]): r.counts_per_row_index.tolist()
        for r in meter.close_window(snapshot=False)
        if r.metric is metrics.RANK_IO
    }


def run(traffic):
    """Passes of which no two are alike, on rank 1 of two; two layers each."""
    for rows in range(1, PASSES + 1):
        traffic.begin(ForwardPass(decode_rows=rows))
        for row_bytes in (40, 16):
            traffic.count(DispatchStage.DISPATCH, row_bytes, (13, rows), (0, 1), own=1)


@pytest.mark.parametrize("kept", [1, 23, 4096])
@pytest.mark.parametrize("by_layer", [False, True])
def test_exchanges_that_nobody_asks_for_take_no_more_room_and_lose_no_byte(monkeypatch, kept, by_layer):
    monkeypatch.setattr(vllm_traffic, "_EXCHANGES_TO_KEEP", kept)
    meter = Tally()
    traffic = Traffic(meter, SHAPE, 2, by_layer=by_layer)

    run(traffic)

    assert len(traffic._exchanges) == min(kept, 2 * PASSES)
    traffic.report()
    own_rows = PASSES * (PASSES + 1) // 2
    sizes = (40, 16) if by_layer else (56,)
    assert bytes_of(meter) == {
        ("transmit", "decode"): [[own_rows * size, 0] for size in sizes],
        ("receive", "decode"): [[PASSES * 13 * size, 0] for size in sizes],
    }
    traffic.report()
    assert bytes_of(meter) == {}


def test_equal_exchanges_are_one_that_is_counted():
    traffic = Traffic(Tally(), SHAPE, 2, by_layer=False)
    traffic.begin(ForwardPass(decode_rows=13))
    for _ in range(23):
        traffic.count(DispatchStage.COMBINE, 16, (13, 13), (0, 1), own=1)

    assert list(traffic._exchanges.values()) == [23]
