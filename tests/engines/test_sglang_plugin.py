"""SGLang's own plug-in loader finds moescope by its entry point."""

import sys
from types import SimpleNamespace

import pytest
import torch

import moescope.plugin
from moescope import api
from moescope.collector.hooks import sglang_version
from moescope.schemas import metrics
from tests.engines.sglang_engine import (
    Engine,
    ForwardBatch,
    ForwardMode,
    KimiLinearConfig,
    batch_of,
    distinct_ids,
    expert_distribution,
)
from tests.engines.sglang_stubs import importing_sglang

with importing_sglang():
    from sglang.srt import plugins
    from sglang.srt.observability import metrics_collector
    from sglang.srt.plugins.hook_registry import HookRegistry

pytestmark = pytest.mark.engine


@pytest.fixture
def load_plugins(monkeypatch, tmp_path):
    """SGLang's loader in a process that has not loaded any; what it patches is put back."""
    distribution = tmp_path / "moescope_entry-0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: moescope-entry\nVersion: 0\n")
    (distribution / "entry_points.txt").write_text(
        "[sglang.srt.plugins]\nmoescope = moescope.plugin:load_sglang\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_plugins_loaded", False)
    monkeypatch.setattr(HookRegistry, "_hooks", type(HookRegistry._hooks)(list))
    monkeypatch.setattr(HookRegistry, "_patched", set())
    for owner, name in (
        (expert_distribution.ExpertDistributionRecorder, "init_new"),
        (ForwardBatch, "init_new"),
        (metrics_collector, "resolve_collector_class"),
        (expert_distribution, "resolve_collector_class"),
    ):
        monkeypatch.setattr(owner, name, vars(owner)[name])
    return plugins.load_plugins


class StandInModelRunner:
    """In place of SGLang's, which would load a model."""

    def __init__(self, engine):
        self.engine = engine

    def load_model(self):
        return "loaded"

    def __getattr__(self, name):
        return getattr(self.engine, name)


def test_the_recorder_that_sglang_makes_listens_and_counts(load_plugins, serve, hooked, monkeypatch):
    monkeypatch.setattr(moescope.plugin, "_make_recorder", hooked._make_recorder)
    monkeypatch.setattr(moescope.plugin, "_make_process_recorder", hooked._make_process_recorder)
    runner = type("ModelRunner", (StandInModelRunner,), dict(vars(StandInModelRunner)))
    module = SimpleNamespace(ModelRunner=runner)
    monkeypatch.setitem(sys.modules, "sglang.srt.model_executor.model_runner", module)
    load_plugins()
    load_plugins()
    serve()
    recorder = expert_distribution.ExpertDistributionRecorder.init_new(None, rank=0)
    expert_distribution.set_global_expert_distribution_recorder(recorder)
    config = KimiLinearConfig(num_hidden_layers=3, num_experts=13, num_experts_per_token=2)
    engine = Engine(hooked, config)

    assert runner(engine).load_model() == "loaded"
    ids = distinct_ids(7, 13, 2, torch.Generator().manual_seed(5))
    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), lambda _: ids)
    hooked.close()

    records = hooked.exporters["rank"].records(metrics.EXPERT_TOKENS)
    assert sum(int(r.counts_per_row_index.sum()) for r in records) == 3 * 7 * 2
    # What stands in for an empty recorder is one, for whoever asks.
    assert isinstance(recorder, expert_distribution._ExpertDistributionRecorderNoop)
    assert hasattr(vars(ForwardBatch)["init_new"].__func__, "__wrapped__")
    chosen = metrics_collector.resolve_collector_class(
        "tokenizer", metrics_collector.TokenizerMetricsCollector
    )
    assert issubclass(chosen, metrics_collector.TokenizerMetricsCollector)
    assert chosen is not metrics_collector.TokenizerMetricsCollector


def test_from_sglangs_router_to_sql_to_the_token(load_plugins, serve, store, service, monkeypatch):
    for name, value in {**store.environ, "OTEL_SERVICE_NAME": service}.items():
        monkeypatch.setenv(name, value)
    made = []

    def make_recorder(*args, **kwargs):
        made.append(api.make_recorder(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(moescope.plugin, "_make_recorder", make_recorder)
    runner = type("ModelRunner", (StandInModelRunner,), dict(vars(StandInModelRunner)))
    module = SimpleNamespace(ModelRunner=runner)
    monkeypatch.setitem(sys.modules, "sglang.srt.model_executor.model_runner", module)
    load_plugins()
    serve()
    recorder = expert_distribution.ExpertDistributionRecorder.init_new(None, rank=0)
    expert_distribution.set_global_expert_distribution_recorder(recorder)
    config = KimiLinearConfig(num_hidden_layers=3, num_experts=13, num_experts_per_token=2)
    engine = Engine(None, config)
    runner(engine).load_model()
    generator = torch.Generator().manual_seed(23)
    prefill, decode = (distinct_ids(rows, 13, 2, generator) for rows in (36, 8))

    engine.forward(batch_of(ForwardMode.EXTEND, [13, 23]), lambda _: prefill)
    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), lambda _: decode)  # one row is padding
    assert made[0].close()

    expected = {
        "prefill": torch.bincount(prefill.flatten(), minlength=13).tolist(),
        "decode": torch.bincount(decode[:7].flatten(), minlength=13).tolist(),
    }
    assert store.sums(service) == {
        (layer, phase): expected[phase] for layer in range(3) for phase in expected
    }
    assert store.tokens(service) == {"prefill": 36, "decode": 7, "padding": 1}
    assert store.health(service) == [(3 * 2 * 43, 0, "ok")]


@pytest.mark.parametrize("version", ["0.5.22", "0.5.24", "0.6.0.dev1", "1.0.0"])
def test_another_version_is_left_alone_and_told_once(load_plugins, monkeypatch, caplog, version):
    monkeypatch.setattr("sglang.version.__version__", version)
    sglang_version.warn_about.cache_clear()
    before = vars(expert_distribution.ExpertDistributionRecorder)["init_new"]

    load_plugins()
    moescope.plugin.load_sglang()

    assert vars(expert_distribution.ExpertDistributionRecorder)["init_new"] is before
    (said,) = [record for record in caplog.records if record.name == "moescope"]
    assert f"leaves SGLang {version} alone" in said.message


def test_loaded_twice_it_listens_once(load_plugins):
    load_plugins()
    moescope.plugin.load_sglang()

    assert {len(hooks) for hooks in HookRegistry._hooks.values()} == {1}
    assert len(HookRegistry._hooks) == 3


def test_a_post_release_is_the_same_version(monkeypatch):
    monkeypatch.setattr("sglang.version.__version__", "0.5.23.post1")

    assert sglang_version.is_supported_version()


def test_switched_off_it_hooks_nothing(load_plugins, monkeypatch):
    monkeypatch.setenv("MOESCOPE_ENABLED", "0")

    load_plugins()

    assert not HookRegistry._hooks
