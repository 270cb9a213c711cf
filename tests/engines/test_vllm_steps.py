"""The steps of a model runner: what is optional may fail, and the expert load goes on."""

import logging
from types import SimpleNamespace

import pytest

from moescope.collector.expert_load import Row
from moescope.collector.hooks.vllm_ranks import Ranks
from moescope.collector.hooks.vllm_steps import StepWatch
from moescope.collector.hooks.vllm_worker import WorkerHook
from moescope.collector.pass_timing import PassTiming, Seam
from moescope.collector.recorder import NullRecorder
from moescope.collector.tally import Tally
from moescope.schemas import metrics

pytestmark = pytest.mark.engine

ALONE = Ranks(dp_rank=0, dp_size=1, tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, ep_rank=0, ep_size=1)


class Runner:
    """Model Runner V1 as far as it is watched: requests of one token each are decoded."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.input_batch = SimpleNamespace(num_computed_tokens_cpu=None)

    def _dummy_run(self, num_tokens):
        pass

    def _prepare_inputs(self, scheduler_output, num_scheduled_tokens):
        pass

    def execute_model(self):
        self._prepare_inputs(None, None)
        return self.kernel.experts()


class Kernel:
    def experts(self):
        return "computed"


class Clock:
    """A device that is where it is said to be."""

    def __init__(self):
        self.now = 0
        self.device_is_at = 10**18
        self.is_broken = set()

    def mark(self):
        if "mark" in self.is_broken:
            raise RuntimeError("on purpose")
        self.now += 1_000_000
        return self.now

    def has_passed(self, mark):
        if "has_passed" in self.is_broken:
            raise RuntimeError("on purpose")
        return mark <= self.device_is_at

    def ns_between(self, start, end):
        return end - start


class Recorder(NullRecorder):
    def __init__(self):
        self.steps = []

    def begin_step(self, *segments):
        self.steps.append(segments)


class Watched:
    def __init__(self, monkeypatch):
        decoding = ((Row.DECODE, 13),)
        monkeypatch.setattr(
            "moescope.collector.hooks.vllm_batch.segments_of_v1", lambda _runner, _tokens: decoding
        )
        self.meter, self.clock, self.recorder = Tally(), Clock(), Recorder()
        self.kernel = Kernel()
        self.runner = Runner(self.kernel)
        self.steps = StepWatch(self.runner, ALONE, self.recorder, self.attempt)
        self.steps.timing = PassTiming(self.meter, self.clock, 3, sample=1, draw=lambda: 0.0)
        self.steps.timing.watch([Seam(self.kernel, "experts", 1)])
        self.steps.is_warm = True
        self.steps.watch()

    @staticmethod
    def attempt(action, *args):
        """As the worker's, but that nothing may get here."""
        action(*args)

    def timed(self):
        records = self.meter.close_window(snapshot=False)
        return sum(int(r.bucket_counts.sum()) for r in records if r.metric is metrics.STEP_DURATION)


@pytest.fixture
def watched(monkeypatch):
    return Watched(monkeypatch)


@pytest.mark.parametrize("broken", ["mark", "has_passed"])
def test_a_clock_that_fails_is_said_once_and_the_load_is_counted_on(watched, caplog, broken):
    watched.runner.execute_model()
    watched.clock.is_broken.add(broken)

    with caplog.at_level(logging.ERROR, "moescope"):
        for _ in range(3):
            assert watched.runner.execute_model() == "computed"

    assert watched.recorder.steps == [((Row.DECODE, 13),)] * 4
    assert watched.timed() == 1
    assert "experts" not in vars(watched.kernel)
    (message,) = caplog.messages
    assert "expert load is counted on" in message


def test_seams_that_cannot_be_put_in_are_taken_out_and_the_load_is_counted_on(watched, caplog):
    watched.steps.timing._draw = lambda: 1 / 0

    with caplog.at_level(logging.ERROR, "moescope"):
        for _ in range(2):
            assert watched.runner.execute_model() == "computed"

    assert len(watched.recorder.steps) == 2
    assert len(caplog.messages) == 1


def test_a_map_of_experts_that_cannot_be_read_is_said_once_and_the_load_is_counted_on(watched, caplog):
    watched.steps.eplb = SimpleNamespace(look=lambda: 1 / 0)

    with caplog.at_level(logging.ERROR, "moescope"):
        for _ in range(3):
            watched.runner.execute_model()

    assert len(watched.recorder.steps) == 3
    assert watched.timed() == 3
    (message,) = caplog.messages
    assert "not followed" in message


def test_the_last_steps_are_reported_once_the_device_has_come_to_rest(watched):
    watched.clock.device_is_at = 0
    for _ in range(3):
        watched.runner.execute_model()
    watched.steps.drain()
    assert watched.timed() == 0

    watched.clock.device_is_at = watched.clock.now
    watched.steps.drain()

    assert watched.timed() == 3


def test_a_worker_that_ends_waits_for_its_device_then_reports_its_last_steps_then_closes(watched):
    order = []

    def synchronize():
        watched.clock.device_is_at = watched.clock.now
        order.append("the device is at rest")

    hook = WorkerHook(SimpleNamespace(synchronize_device=synchronize), None)
    hook._steps = watched.steps
    hook._recorder = SimpleNamespace(close=lambda _seconds: order.append(watched.timed()))
    watched.clock.device_is_at = 0
    for _ in range(5):
        watched.runner.execute_model()

    hook._end()

    assert order == ["the device is at rest", 5]
