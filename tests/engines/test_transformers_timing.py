import itertools

import numpy as np
import pytest
import torch

from moescope.collector.expert_load import Row
from moescope.collector.hooks.transformers import ROUTER_OF_FAMILY, instrument_model
from moescope.collector.hooks.transformers_timing import ForwardTiming
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.tally import Tally
from moescope.schemas.settings import Settings
from moescope.schemas.topology import ModelShape
from tests.engines.test_transformers import CONFIGS, InMemoryExporter, tiny

pytestmark = pytest.mark.engine

PROMPT = torch.arange(1, 24).reshape(1, 23)


@pytest.fixture(params=["eager", "grouped_mm"])
def implementation(request):
    return request.param


@pytest.fixture(autouse=True)
def time_every_pass(monkeypatch):
    monkeypatch.setenv("MOESCOPE_TIMING_SAMPLE", "1")


def watched(model):
    exporter = InMemoryExporter()
    recorder = instrument_model(
        model,
        lambda identity, counter: LiveRecorder(
            identity, counter, lambda _: exporter, Settings(interval_seconds=3600)
        ),
    )
    return recorder, exporter


def run(model):
    with torch.no_grad():
        return model(PROMPT).logits


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_outputs_are_the_same_to_the_bit_while_every_pass_is_timed(family, implementation):
    model = tiny(family, experts_implementation=implementation)
    model.config._experts_implementation = implementation
    before = run(model)

    recorder, _ = watched(model)
    during = run(model)
    recorder.close()

    assert torch.equal(before, during)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_an_expert_that_is_computed_alone_has_a_time_of_its_own(family):
    model = tiny(family)
    model.config._experts_implementation = "eager"
    recorder, exporter = watched(model)
    run(model)
    recorder.close()

    [duration] = exporter.values("moe.expert.duration")
    tokens = exporter.assignments()["prefill"]
    assert duration.attributes == {"moe.phase": "prefill", "moe.source": "measured"}
    np.testing.assert_array_equal(duration.counts_per_row_index > 0, tokens > 0)
    assert exporter.values("moe.expert.group.duration") == []


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_grouped_kernel_has_one_time_per_layer(family):
    model = tiny(family)
    model.config._experts_implementation = "grouped_mm"
    recorder, exporter = watched(model)
    run(model)
    recorder.close()

    [duration] = exporter.values("moe.expert.group.duration")
    layers = recorder._recorder.identity.shape.moe_layers
    assert np.flatnonzero(duration.counts_per_row_index[0]).tolist() == list(layers)
    assert exporter.values("moe.expert.duration") == []


def test_each_forward_pass_is_a_step_of_its_phase():
    model = tiny("mixtral")
    recorder, exporter = watched(model)
    model.generate(PROMPT, max_new_tokens=7, do_sample=False)
    recorder.close()

    steps = {r.attributes["moe.phase"]: r.bucket_counts.sum() for r in exporter.values("moe.step.duration")}
    tokens = {r.attributes["moe.phase"]: r.sum for r in exporter.values("moe.step.tokens")}
    assert steps == {"prefill": 1, "decode": 6}
    assert tokens == {"prefill": 23, "decode": 6}


def test_times_of_a_share_of_the_passes_are_scaled_up_to_all():
    model, tally = tiny("mixtral"), Tally()
    numbers, ticks = iter([0.9, 0.1, 0.9, 0.9]), itertools.count(0, 1000)
    shape = ModelShape("mixtral", 3, (0, 1, 2), 13, 3)
    timing = ForwardTiming(tally, shape, 0.25, choose=lambda: next(numbers), clock_ns=lambda: next(ticks))
    timing.attach([module for name, module in model.named_modules() if name.endswith("experts")])

    for _ in range(4):
        timing.begin([(Row.PREFILL, 23)])
        run(model)
        timing.end()

    records = {record.metric.name: record for record in tally.close_window(snapshot=False)}
    assert records["moe.expert.group.duration"].counts_per_row_index.tolist() == [[4000, 4000, 4000]]
    assert records["moe.step.duration"].bucket_counts.sum() == 4


def test_weights_are_said_once_for_all_layers():
    model = tiny("mixtral")
    recorder, exporter = watched(model)
    recorder.close()

    [weights] = exporter.values("moe.memory.usage")
    [expert] = exporter.values("moe.expert.weight.size")
    assert weights.value == sum(p.numel() * p.element_size() for p in model.parameters()) + sum(
        b.numel() * b.element_size() for b in model.buffers()
    )
    assert (expert.value, expert.attributes) == (3 * 24 * 32 * 4, {})


def test_closing_takes_the_timing_off_too():
    model = tiny("qwen3_moe")
    recorder, _ = watched(model)
    recorder.close()

    hooked = [
        name for name, module in model.named_modules() if module._forward_hooks or module._forward_pre_hooks
    ]
    assert hooked == []
    assert any(type(module).__name__ in ROUTER_OF_FAMILY.values() for module in model.modules())


class Wrapped(torch.nn.Module):
    """What an adapter library puts around the experts: it has no ``config``."""

    def __init__(self, experts):
        super().__init__()
        self.inner = experts

    def forward(self, *args):
        return self.inner(*args)


def test_experts_that_cannot_be_timed_end_the_timing_and_not_the_model(caplog):
    model = tiny("mixtral")
    before = run(model)
    for layer in model.model.layers:
        layer.mlp.experts = Wrapped(layer.mlp.experts)
    recorder, exporter = watched(model)
    during = run(model)
    recorder.close()

    assert torch.equal(before, during)
    assert exporter.assignments()["prefill"].sum() == 23 * 3 * 3
    assert [record.message for record in caplog.records] == [
        "moescope: experts are not timed any more; the model goes on"
    ]
