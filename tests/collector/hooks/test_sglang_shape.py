from types import SimpleNamespace

import pytest

from moescope.collector.hooks.sglang_shape import has_experts, moe_layers_by_rule, name_of, shape_of
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import MODEL_SHAPES


def config(**fields):
    return SimpleNamespace(num_hidden_layers=12, **fields)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "kimi-k3",
            {
                "num_experts": 896,
                "num_experts_per_token": 16,
                "first_k_dense_replace": 1,
                "moe_layer_freq": 1,
            },
        ),
        (
            "deepseek-v3",
            {"n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
        ),
        ("qwen3-moe", {"num_experts": 128, "num_experts_per_tok": 8, "mlp_only_layers": []}),
        ("gpt-oss", {"num_local_experts": 128, "num_experts_per_tok": 4}),
        ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    ],
)
def test_published_configurations_have_the_published_shapes(name, fields):
    expected = MODEL_SHAPES[name]
    described = SimpleNamespace(num_hidden_layers=expected.num_layers, **fields)

    assert shape_of(name, described) == expected


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({}, range(12)),
        ({"first_k_dense_replace": 2, "moe_layer_freq": 3}, (3, 6, 9)),
        ({"moe_layer_freq": [0, 1] * 6}, (1, 3, 5, 7, 9, 11)),
        ({"mlp_only_layers": [0, 5], "decoder_sparse_step": 2}, (1, 3, 7, 9, 11)),
        ({"interleave_moe_layer_step": 4}, (3, 7, 11)),
        ({"moe_layers_enum": "2,4,7"}, (2, 4, 7)),
        ({"hybrid_override_pattern": "M*EM*E"}, (2, 5)),
    ],
)
def test_each_familys_rule_for_which_layers_route(fields, layers):
    assert moe_layers_by_rule(config(**fields)) == tuple(layers)


def test_layers_that_a_loaded_model_has_win_over_the_rule():
    shape = shape_of("half", config(num_experts=13, num_experts_per_tok=2), layers=[7, 5, 5])

    assert shape.moe_layers == (5, 7)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"num_experts": [13, 13], "num_experts_per_tok": 2},
        {"num_experts": 13},
        {"num_experts": 13, "num_experts_per_tok": 2, "hybrid_override_pattern": "M*"},
    ],
)
def test_a_config_that_is_not_understood_is_refused_by_name(fields):
    with pytest.raises(EngineNotSupportedError, match="odd"):
        shape_of("odd", config(**fields))


def test_a_dense_model_has_no_experts():
    assert not has_experts(config())
    assert not has_experts(config(num_experts=0))
    assert has_experts(config(n_routed_experts=13))


def test_a_model_served_from_a_folder_is_called_by_the_folders_name():
    assert name_of("/models/kimi-k3") == "kimi-k3"
    assert name_of("moonshotai/Kimi-K3") == "moonshotai/Kimi-K3"
