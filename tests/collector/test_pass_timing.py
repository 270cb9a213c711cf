"""Known durations: a clock that each computation moves on."""

import random

import numpy as np
import pytest

from moescope.collector.device_clock import HostClock, clock_of
from moescope.collector.expert_load import Row
from moescope.collector.forward_pass import NO_LOAD, ForwardPass, pass_of
from moescope.collector.pass_timing import PassTiming, Seam
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import LAYER, PHASE, STAGE, DispatchStage, Phase

NS = 1_000_000_000


class Clock:
    """Its marks are passed as soon as the device is said to be there."""

    def __init__(self):
        self.now = 0
        self.device_is_at = 10**18

    def mark(self):
        return self.now

    def has_passed(self, mark):
        return mark <= self.device_is_at

    def ns_between(self, start, end):
        return end - start


class Kernel:
    def __init__(self, clock):
        self.clock = clock

    def dispatch(self, seconds):
        self.clock.now += int(seconds * NS)
        return "sent"

    def experts(self, seconds):
        self.clock.now += int(seconds * NS)
        return "computed"


class Engine:
    """Two layers, 1 and 2 of three, the first dense."""

    def __init__(self, sample, draws=(0.0,), **options):
        self.clock, self.meter = Clock(), Tally()
        self.kernels = [Kernel(self.clock), Kernel(self.clock)]
        left = iter(draws)
        self.timing = PassTiming(
            self.meter, self.clock, 3, sample=sample, draw=lambda: next(left, 1.0), **options
        )
        self.timing.watch(
            [
                seam
                for layer, kernel in enumerate(self.kernels, start=1)
                for seam in (
                    Seam(kernel, "dispatch", layer, DispatchStage.DISPATCH),
                    Seam(kernel, "experts", layer),
                )
            ]
        )

    def run(self, *segments, dispatch=0.001, experts=0.002):
        start = self.timing.begin()
        self.timing.look_into()
        for kernel in self.kernels:
            assert kernel.dispatch(dispatch) == "sent"
            assert kernel.experts(experts) == "computed"
        self.timing.end(start, pass_of(segments))

    def records(self, metric):
        return [r for r in self.meter.close_window(snapshot=False) if r.metric is metric]


def test_a_pass_is_one_duration_and_its_tokens():
    engine = Engine(sample=0)
    engine.run((Row.DECODE, 23))
    engine.run((Row.PREFILL, 79))

    records = engine.meter.close_window(snapshot=False)

    assert {(r.metric.name, r.attributes[PHASE]): (r.bucket_counts.sum(), r.sum) for r in records} == {
        ("moe.step.duration", "decode"): (1, pytest.approx(0.006)),
        ("moe.step.tokens", "decode"): (1, 23),
        ("moe.step.duration", "prefill"): (1, pytest.approx(0.006)),
        ("moe.step.tokens", "prefill"): (1, 79),
    }


def test_a_mixed_pass_is_one_prefill_pass_whose_expert_time_is_shared_by_rows():
    engine = Engine(sample=1)
    engine.run((Row.DECODE, 1), (Row.PREFILL, 3))

    records = engine.meter.close_window(snapshot=False)

    assert [r.attributes[PHASE] for r in records if r.metric is metrics.STEP_DURATION] == ["prefill"]
    by_phase = {
        r.attributes[PHASE]: r.counts_per_row_index[0].tolist()
        for r in records
        if r.metric is metrics.EXPERT_GROUP_DURATION
    }
    assert by_phase == {"prefill": [0, 1_500_000, 1_500_000], "decode": [0, 500_000, 500_000]}
    (dispatch,) = [r for r in records if r.metric is metrics.DISPATCH_DURATION]
    assert dispatch.attributes == {STAGE: "dispatch", PHASE: "prefill"}
    assert (dispatch.bucket_counts.sum(), dispatch.sum) == (2, pytest.approx(0.002))


def test_expert_time_of_a_sample_stands_for_all_passes():
    engine = Engine(sample=0.25, draws=[0.9, 0.2, 0.5, 0.9])
    for _ in range(4):
        engine.run((Row.DECODE, 13))

    (experts,) = engine.records(metrics.EXPERT_GROUP_DURATION)

    assert experts.counts_per_row_index.tolist() == [[0, 4 * 2_000_000, 4 * 2_000_000]]


def test_a_random_sample_estimates_an_alternating_workload_without_bias():
    draw = random.Random(23).random
    engine = Engine(sample=0.2)
    engine.timing._draw = draw
    for step in range(5000):
        engine.run((Row.DECODE, 13), experts=0.001 if step % 5 else 0.011)

    (experts,) = engine.records(metrics.EXPERT_GROUP_DURATION)

    truth = 5000 * 0.003 * NS
    assert experts.counts_per_row_index[0, 1] == pytest.approx(truth, rel=0.1)


def test_passes_that_are_not_drawn_leave_no_trace_on_the_engine():
    engine = Engine(sample=0.5, draws=[0.9, 0.1])
    start = engine.timing.begin()
    engine.timing.look_into()
    assert "dispatch" not in vars(engine.kernels[0])
    engine.timing.end(start, ForwardPass(decode_rows=1))

    engine.timing.look_into()
    assert "dispatch" in vars(engine.kernels[0])
    engine.timing.end(start, ForwardPass(decode_rows=1))

    assert "dispatch" not in vars(engine.kernels[0])


def test_what_somebody_else_put_on_the_object_stays_there():
    engine = Engine(sample=1)
    kernel = engine.kernels[0]
    theirs = kernel.dispatch = lambda _: "theirs"
    engine.timing.watch([Seam(kernel, "dispatch", 1, DispatchStage.DISPATCH)])

    start = engine.timing.begin()
    engine.timing.look_into()
    assert kernel.dispatch(0) == "theirs"
    engine.timing.end(start, ForwardPass(decode_rows=1))

    assert kernel.dispatch is theirs
    assert len(engine.records(metrics.DISPATCH_DURATION)) == 1


def test_a_pass_that_failed_half_way_takes_its_seams_out_with_the_next():
    engine = Engine(sample=0.5, draws=[0.1, 0.9])
    engine.timing.look_into()  # and then an exception

    engine.run((Row.DECODE, 13))

    assert "dispatch" not in vars(engine.kernels[0])
    assert engine.records(metrics.DISPATCH_DURATION) == []


def test_layers_are_named_where_they_were_asked_for():
    engine = Engine(sample=1, by_layer=True)
    engine.run((Row.DECODE, 13))

    assert [r.attributes[LAYER] for r in engine.records(metrics.DISPATCH_DURATION)] == [1, 2]


def test_passes_without_load_are_no_steps():
    engine = Engine(sample=1)
    engine.run((Row.DUMMY, 13))
    engine.run((Row.WARMUP, 13))

    assert engine.meter.close_window(snapshot=False) == ()


def test_what_the_device_has_not_reached_is_reported_later_and_never_waited_for():
    engine = Engine(sample=1)
    engine.clock.device_is_at = 0
    for _ in range(3):
        engine.run((Row.DECODE, 13))
    assert engine.records(metrics.STEP_DURATION) == []

    engine.clock.device_is_at = engine.clock.now
    engine.timing.report()

    (steps,) = engine.records(metrics.STEP_DURATION)
    assert steps.bucket_counts.sum() == 3


def test_a_device_that_never_gets_there_costs_no_memory():
    engine = Engine(sample=1)
    engine.clock.device_is_at = 0
    for _ in range(79):
        engine.run((Row.DECODE, 13))
    engine.clock.device_is_at = engine.clock.now

    engine.timing.report()

    (steps,) = engine.records(metrics.STEP_DURATION)
    assert steps.bucket_counts.sum() == 8


def test_layers_that_are_replayed_are_said_once_and_not_reported(caplog):
    engine = Engine(sample=1, draws=[0.0, 0.0])
    caplog.set_level("INFO", "moescope")
    for _ in range(2):
        start = engine.timing.begin()
        engine.timing.look_into()
        engine.timing.end(start, ForwardPass(decode_rows=1))

    assert engine.records(metrics.EXPERT_GROUP_DURATION) == []
    (message,) = caplog.messages
    assert "replayed from a graph" in message


def test_sharing_loses_nothing():
    amounts = np.array([13, 0, 79], dtype=np.int64)
    for what in (ForwardPass(3, 5), ForwardPass(3, 0), ForwardPass(0, 5), NO_LOAD):
        assert sum(what.share(amounts).values()).tolist() == amounts.tolist()
    assert ForwardPass(3, 5).share(amounts)[Phase.PREFILL].tolist() == [4, 0, 29]


def test_the_hosts_clock_goes_forward_and_other_devices_have_none():
    clock = clock_of("cpu")
    assert isinstance(clock, HostClock)
    start = clock.mark()
    assert clock.has_passed(start)
    assert clock.ns_between(start, clock.mark()) >= 0
    assert clock_of("xpu") is None
