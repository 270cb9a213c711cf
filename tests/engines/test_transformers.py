import dataclasses
import logging

import numpy as np
import pytest
import torch
import transformers

import moescope
from moescope.collector.hooks.transformers import ROUTER_OF_FAMILY, instrument_model
from moescope.collector.live_recorder import LiveRecorder
from moescope.collector.recorder import NullRecorder
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.records import Attempt
from moescope.schemas.settings import Settings

pytestmark = pytest.mark.engine

VOCABULARY = 97
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 3,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
CONFIGS = {
    "mixtral": {"num_local_experts": 13},
    "qwen3_moe": {"num_experts": 13, "moe_intermediate_size": 16, "head_dim": 8, "mlp_only_layers": [1]},
    "olmoe": {"num_experts": 13},
    "deepseek_v3": {
        "n_routed_experts": 14,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
    },
    "gpt_oss": {"num_local_experts": 13, "head_dim": 8, "layer_types": ["full_attention"] * 3},
}
MOE_LAYERS = {"qwen3_moe": [0, 2], "deepseek_v3": [1, 2]}


def tiny(family, **more):
    torch.manual_seed(23)
    config = transformers.AutoConfig.for_model(family, **{**COMMON, **CONFIGS[family], **more})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for module in model.modules():
        if type(module).__name__ in ROUTER_OF_FAMILY.values():
            # Zeros as they come would choose the same experts for every token.
            torch.nn.init.normal_(module.weight, std=1.0)
    return model


@pytest.fixture(scope="session", params=sorted(CONFIGS))
def family(request):
    return request.param


class InMemoryExporter:
    """Keeps every window."""

    pending_bytes = 0

    def __init__(self):
        self.windows = []

    def export(self, window, timeout_seconds=None):
        self.windows.append(window)
        return Attempt(delivered=True)

    def close(self):
        pass

    def values(self, metric):
        return [r for w in self.windows for r in w.records if r.metric.name == metric]

    def tokens(self):
        totals = {}
        for record in self.values("moe.tokens"):
            key = record.attributes.get("moe.phase") or record.attributes["moe.excluded"]
            totals[key] = totals.get(key, 0) + record.value
        return {key: total for key, total in totals.items() if total}

    def assignments(self):
        totals = {}
        for record in self.values("moe.expert.tokens"):
            phase = record.attributes["moe.phase"]
            totals[phase] = totals.get(phase, 0) + record.counts_per_row_index
        return totals


def watch(model, exporter):
    def make_recorder(identity, counter):
        return LiveRecorder(identity, counter, lambda _: exporter, Settings(interval_seconds=3600))

    return instrument_model(model, make_recorder)


class Recount:
    """The test's own count: what each router returned, and the phase that the test knows."""

    def __init__(self, model):
        self.sums = {}
        self.rows = np.zeros(0, dtype=str)
        for path, module in model.named_modules():
            if type(module).__name__ in ROUTER_OF_FAMILY.values():
                self._listen(module, int(path.split("layers.")[1].split(".")[0]))

    def _listen(self, router, layer):
        forward = router.forward

        def listening(*args, **kwargs):
            output = forward(*args, **kwargs)
            self._note(layer, output[2].numpy(), router.num_experts)
            return output

        router.forward = listening

    def _note(self, layer, ids, experts):
        for phase in set(self.rows) - {"padding"}:
            total = self.sums.setdefault((layer, str(phase)), np.zeros(experts, dtype=np.int64))
            np.add.at(total, ids[self.rows == phase].ravel(), 1)

    def result(self):
        return {key: total.tolist() for key, total in self.sums.items()}


def prompts():
    """A left-padded batch: three prompts of 13, 7 and 5 tokens."""
    ids = torch.randint(1, VOCABULARY, (3, 13), generator=torch.Generator().manual_seed(13))
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    mask[2, :8] = 0
    return ids * mask, mask


def generate_and_forward(model, recount=None):
    """What the equality is tested on: a padded batch generated with a cache, then a plain pass."""
    ids, mask = prompts()

    def announce(_module, _args, kwargs):
        positions = kwargs["input_ids"].shape[1]
        phase = "prefill" if positions > 1 else "decode"
        recount.rows = np.where(kwargs["attention_mask"][:, -positions:].ravel() == 1, phase, "padding")

    handle = recount and model.model.register_forward_pre_hook(announce, with_kwargs=True)
    generated = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=None)
    logits = model(input_ids=ids, attention_mask=mask).logits
    if handle:
        handle.remove()
    return generated, logits


@torch.no_grad()
def test_stored_sums_equal_a_recount_of_what_the_routers_returned(family, store, service, monkeypatch):
    for name, value in store.http_environ.items():
        monkeypatch.setenv(name, value)
    model = tiny(family)
    recount = Recount(model)
    recorder = moescope.instrument(model, service=service)

    generate_and_forward(model, recount)

    assert recorder.close()
    expected = recount.result()
    assert sorted({layer for layer, _ in expected}) == MOE_LAYERS.get(family, [0, 1, 2])
    assert store.sums(service) == expected
    assert store.tokens(service) == {"prefill": 2 * 25, "decode": 3 * 4, "padding": 2 * 14}
    assert store.health(service) == [(62 * 3 * len({layer for layer, _ in expected}), 0, "ok")]


@torch.no_grad()
def test_outputs_are_the_same_to_the_bit_with_the_hook_on(family):
    model = tiny(family)
    ids_off, logits_off = generate_and_forward(model)
    recorder = watch(model, InMemoryExporter())

    ids_on, logits_on = generate_and_forward(model)

    recorder.close()
    assert torch.equal(ids_on, ids_off)
    assert torch.equal(logits_on, logits_off)


def hooks_of(model):
    return [
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._forward_hooks_always_called)
        for module in model.modules()
    ]


def test_close_leaves_the_model_as_it_was(family):
    model = tiny(family)
    before = hooks_of(model), set(vars(model))
    recorder = watch(model, InMemoryExporter())
    assert hooks_of(model) != before[0]

    recorder.close()

    assert (hooks_of(model), set(vars(model))) == before
    assert recorder.close()


@torch.no_grad()
def test_a_static_cache_counts_the_same():
    model, exporter = tiny("mixtral"), InMemoryExporter()
    ids, mask = prompts()
    with_static = {"cache_implementation": "static", "disable_compile": True}
    recorder = watch(model, exporter)

    model.generate(
        ids, attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=None, **with_static
    )

    recorder.close()
    assert exporter.tokens() == {"prefill": 25, "decode": 12, "padding": 14}
    assert exporter.assignments()["prefill"].sum(axis=1).tolist() == [25 * 3] * 3
    assert exporter.assignments()["decode"].sum(axis=1).tolist() == [12 * 3] * 3


def test_training_with_gradient_checkpointing_counts_a_token_once():
    model, exporter = tiny("qwen3_moe").train(), InMemoryExporter()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids, mask = prompts()
    recorder = watch(model, exporter)

    model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()

    recorder.close()
    assert exporter.assignments()["prefill"].sum(axis=1).tolist() == [25 * 3] * 2
    assert exporter.tokens()["prefill"] == 25


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_compiled_model_counts_the_same():
    model, exporter = tiny("mixtral"), InMemoryExporter()
    ids, mask = prompts()
    recorder = watch(model, exporter)

    torch.compile(model, backend="aot_eager")(input_ids=ids, attention_mask=mask)

    recorder.close()
    assert exporter.assignments()["prefill"].sum(axis=1).tolist() == [25 * 3] * 3


@torch.no_grad()
def test_a_base_model_called_with_positional_arguments_is_watched_too():
    model, exporter = tiny("olmoe").model, InMemoryExporter()
    recorder = watch(model, exporter)

    model(*prompts())

    recorder.close()
    assert exporter.tokens() == {"prefill": 25, "padding": 14}


def test_inputs_that_cannot_be_understood_end_the_counting_and_not_the_model(caplog):
    model, exporter = tiny("olmoe"), InMemoryExporter()
    ids, mask = prompts()
    recorder = watch(model, exporter)
    cache = dataclasses.make_dataclass("Strange", [])()

    with caplog.at_level(logging.ERROR, "moescope"), pytest.raises(AttributeError, match="get_seq_length"):
        model(input_ids=ids[:, :1], past_key_values=cache)

    assert "expert load is not counted any more" in caplog.text
    model(input_ids=ids, attention_mask=mask)
    recorder.close()
    assert exporter.tokens() == {}


def test_router_that_hands_out_something_else_ends_the_counting_and_not_the_model(caplog):
    model, exporter = tiny("olmoe"), InMemoryExporter()
    ids, mask = prompts()
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits
    recorder = watch(model, exporter)
    router = next(m for m in model.modules() if type(m).__name__ in ROUTER_OF_FAMILY.values())
    with caplog.at_level(logging.ERROR, "moescope"), torch.no_grad():
        # What a later Transformers might do: two values where there are three.
        recorder._hand_over(_NoCounter(), 0)(router, (), ("logits", "weights"))
        found = model(input_ids=ids, attention_mask=mask).logits

    assert "expert load is not counted any more" in caplog.text
    assert torch.equal(found, expected)
    recorder.close()
    assert exporter.tokens() == {}


class _NoCounter:
    device = torch.device("cpu")


def test_the_identity_is_read_off_the_model():
    model = tiny("deepseek_v3")
    seen = []

    recorder = instrument_model(model, lambda identity, counter: seen.append(identity) or NullRecorder())

    recorder.close()
    (identity,) = seen
    assert (identity.service, identity.engine) == ("deepseek_v3", "transformers")
    assert identity.engine_version == transformers.__version__
    assert identity.shape == moescope.ModelShape("deepseek_v3", 3, (1, 2), num_experts=14, top_k=3)


def test_switched_off_nothing_is_hooked():
    model = tiny("mixtral")
    before = hooks_of(model)

    recorder = instrument_model(model, lambda *_: NullRecorder())

    assert hooks_of(model) == before
    assert recorder.flush()


def test_an_unknown_family_is_refused_with_the_ones_that_are_known():
    config = transformers.AutoConfig.for_model("llama", **COMMON)
    model = transformers.AutoModelForCausalLM.from_config(config)

    with pytest.raises(
        EngineNotSupportedError, match=r"llama .*deepseek_v3, gpt_oss, mixtral, olmoe, qwen3_moe"
    ):
        instrument_model(model, lambda *_: NullRecorder())


def test_a_model_without_any_router_is_refused():
    model = tiny("qwen3_moe", mlp_only_layers=[0, 1, 2])

    with pytest.raises(EngineNotSupportedError, match="no Qwen3MoeTopKRouter in its layers"):
        instrument_model(model, lambda *_: NullRecorder())
