import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moescope.collector.recordings.torch_file import read_torch_file
from moescope.exporters.placement_files import (
    EngineFormat,
    describe_start,
    read_placement_document,
    read_placement_file,
    render_placement,
)
from moescope.exporters.placement_slots import fill_empty_slots
from moescope.schemas.errors import PlacementError
from moescope.schemas.topology import Placement

SHARED = Path(__file__).parents[1] / "collector" / "recordings" / "dumps"
SUFFIX = {EngineFormat.VLLM: ".json", EngineFormat.SGLANG: ".json", EngineFormat.TRTLLM: ".yaml"}


@st.composite
def placements(draw):
    """Every expert placed, slots filled, no expert twice on a rank: what a planner hands over."""
    ranks, slots = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    experts = draw(st.integers(slots, ranks * slots))
    layers = draw(st.integers(1, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Consecutive slots hold different experts as long as a rank has no more slots than there are experts.
    rows = [random.permutation(experts)[np.arange(ranks * slots) % experts] for _ in range(layers)]
    first = draw(st.integers(0, 3))
    return Placement(np.array(rows, dtype=np.int64), ranks, experts), list(range(first, first + layers))


@pytest.mark.parametrize("engine", EngineFormat)
@given(case=placements())
@settings(max_examples=30)
def test_what_is_written_is_read_back_as_it_was(tmp_path_factory, engine, case):
    placement, layers = case
    file = tmp_path_factory.mktemp("placement") / f"plan{SUFFIX[engine]}"
    file.write_text(render_placement(placement, engine, layers))

    read = read_placement_file(
        file, ep_size=placement.ep_size, num_experts=placement.num_experts, layers=layers
    )

    assert np.array_equal(read.physical_to_logical_map, placement.physical_to_logical_map)
    assert (read.ep_size, read.num_experts) == (placement.ep_size, placement.num_experts)


GOOD = Placement(np.array([[0, 1, 2, 0], [2, 0, 0, 1]]), 2, 3)


def test_sglang_gets_one_key_and_a_row_for_the_dense_layer_too():
    content = json.loads(render_placement(GOOD, "sglang", [1, 2]))

    assert content == {"physical_to_logical_map": [[0, 1, 2, 0], [0, 1, 2, 0], [2, 0, 0, 1]]}


def test_tensorrt_llm_gets_the_models_layer_indices_and_a_static_placement():
    content = yaml.safe_load(render_placement(GOOD, "trtllm", [3, 5]))

    assert content == {
        "num_slots": 4,
        "layer_updates_per_iter": 0,
        "initial_global_assignments": {3: [0, 1, 2, 0], 5: [2, 0, 0, 1]},
    }


def test_vllm_gets_the_layers_the_ranks_and_the_experts_beside_the_map():
    content = json.loads(render_placement(GOOD, "vllm", [3, 5]))

    assert content["physical_to_logical_map"] == [[0, 1, 2, 0], [2, 0, 0, 1]]
    assert (content["ep_size"], content["experts"], content["layers"]) == (2, 3, [3, 5])


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("sglang", ("--ep-size 2", "--ep-num-redundant-experts 1", "--init-expert-location plan.json")),
        ("vllm", ("MOESCOPE_PLACEMENT_FILE=plan.json", "--enable-eplb", '"num_redundant_experts": 1')),
        ("trtllm", ("--ep_size 2", "load_balancer: plan.json")),
    ],
)
def test_the_start_command_has_the_options_that_fit_the_file(engine, words):
    command = describe_start(GOOD, engine, "plan.json")

    assert [word for word in words if word not in command] == []


@pytest.mark.parametrize("engine", EngineFormat)
@pytest.mark.parametrize(
    ("table", "layers", "words"),
    [
        ([[0, 1, 2, -1]], [0], "1 slots are empty"),
        ([[0, 0, 1, 2]], [0], "share a rank"),
        ([[0, 1, 2, 0]], [0, 1], "rising order"),
        ([[0, 1, 2, 0], [0, 1, 2, 0]], [2, 1], "rising order"),
        ([[0, 1, 2, 0], [0, 1, 2, 0]], [1, 1], "rising order"),
    ],
)
def test_nothing_leaves_that_an_engine_would_serve_badly(engine, table, layers, words):
    with pytest.raises(PlacementError, match=words):
        render_placement(Placement(np.array(table), 2, 3), engine, layers)


def test_vllm_takes_no_more_redundant_experts_than_it_has_room_for():
    wide = Placement(np.arange(2048).reshape(1, -1) % 1024, 2, 1024)

    with pytest.raises(PlacementError, match="1023 of vLLM"):
        render_placement(wide, "vllm", [0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"logical_count": [[1, 2]]}', "--from-counts"),
        ('{"something": 1}', "no physical_to_logical_map"),
        ("[1]", "no physical_to_logical_map"),
        ('{"physical_to_logical_map": [[0, 1], [0]]}', "the same slots in each layer"),
        ('{"physical_to_logical_map": [0, 1]}', "the same slots in each layer"),
        ('{"physical_to_logical_map": [[0, 0.5]]}', "expected ids of experts"),
        ('{"physical_to_logical_map": [[0, 1, 2]]}', "do not divide"),
        ('{"physical_to_logical_map": [[0, 0, 2, 3]]}', "expert 1 .* has no copy"),
        ('{"physical_to_logical_map": [[0, -2]]}', "outside"),
        ('{"physical_to_logical_map": [[0, 1]], "ep_size": 4}', "for 4 ranks, and there are 2"),
        ('{"physical_to_logical_map": [[0, 1]], "ep_size": "2"}', "whole number"),
        ('{"physical_to_logical_map": [[0, 1]], "layers": [1, 2]}', "do not name"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"physical_to_logical_map": 5}', "no rows of slots"),
        ('{"physical_to_logical_map": null}', "no rows of slots"),
        ('{"physical_to_logical_map": []}', "no rows of slots"),
        ('{"physical_to_logical_map": [[0, 18446744073709551615]]}', "expected ids of experts"),
        ('{"physical_to_logical_map": [[0, 36893488147419103232]]}', "expected ids of experts"),
    ],
)
def test_a_file_that_nobody_could_serve_from_is_named_with_the_reason(tmp_path, text, words):
    file = tmp_path / "broken.json"
    file.write_text(text)

    with pytest.raises(PlacementError, match=f"broken.json: .*{words}"):
        read_placement_file(file, ep_size=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_slots: 5\ninitial_global_assignments: {1: [0, 1]}", "num_slots is 5"),
        ("initial_global_assignments: [0, 1]", "for each layer index"),
        ("a: [", "no YAML"),
    ],
)
def test_a_broken_yaml_is_named_with_the_reason(tmp_path, text, words):
    file = tmp_path / "broken.yaml"
    file.write_text(text)

    with pytest.raises(PlacementError, match=f"broken.yaml: .*{words}"):
        read_placement_file(file, ep_size=2)


def test_a_map_that_leaves_an_expert_of_the_model_out_is_refused_where_the_model_is_known(tmp_path):
    file = tmp_path / "short.json"
    file.write_text('{"physical_to_logical_map": [[0, 1, 2, 0]]}')

    assert read_placement_file(file, ep_size=2).num_experts == 3
    with pytest.raises(PlacementError, match=r"expert 3 .* has no copy"):
        read_placement_file(file, ep_size=2, num_experts=4)


def test_ranks_must_be_said_by_somebody(tmp_path):
    file = tmp_path / "map.json"
    file.write_text('{"physical_to_logical_map": [[0, 1]]}')

    with pytest.raises(PlacementError, match="--ranks"):
        read_placement_file(file)


def test_layers_are_found_by_name_by_number_or_by_their_position_in_the_model(tmp_path):
    named, plain = tmp_path / "named.yaml", tmp_path / "plain.json"
    named.write_text("initial_global_assignments: {3: [1, 0], 1: [0, 1]}")
    plain.write_text('{"physical_to_logical_map": [[0, 1], [1, 0], [0, 1]]}')

    def rows(file, layers):
        return read_placement_file(file, ep_size=2, layers=layers).physical_to_logical_map.tolist()

    assert rows(named, [3]) == [[1, 0]]
    assert rows(plain, [1, 2]) == [[1, 0], [0, 1]]  # of three decoder layers, the last two
    assert rows(plain, [5, 6, 7]) == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(PlacementError, match=r"not layer 2"):
        rows(named, [1, 2])
    with pytest.raises(PlacementError, match=r"has 3 layers, and the counts have 2"):
        rows(plain, [1, 7])


def test_sglangs_torch_files_are_read_too():
    document = read_placement_document(SHARED / "p2l.pt", ep_size=4, read_torch=read_torch_file)

    assert document.placement.physical_to_logical_map.shape == (4, 36)
    assert document.placement.num_experts == 32
    with pytest.raises(PlacementError, match="--from-counts"):
        read_placement_document(SHARED / "count2d.pt", ep_size=4, read_torch=read_torch_file)


def test_a_second_key_is_read_but_not_without_saying_that_sglang_would_not(tmp_path):
    file = tmp_path / "extra.json"
    file.write_text('{"physical_to_logical_map": [[0, 1]], "note": "mine"}')

    document = read_placement_document(file, ep_size=2)

    assert len(document.remarks) == 1
    assert "it has note" in document.remarks[0]


def test_empty_slots_take_the_coldest_expert_that_their_rank_lacks():
    placement = Placement(np.array([[0, 1, -1, 2, 3, -1]]), 2, 4)
    tokens = np.array([[79, 13, 23, 5]])

    filled = fill_empty_slots(placement, tokens)

    # Expert 3 would carry least; rank 1 has it already, and one more copy of 1 is the next coldest there.
    assert filled.physical_to_logical_map.tolist() == [[0, 1, 3, 2, 3, 1]]


@given(case=placements(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_filling_keeps_what_was_there_and_duplicates_nothing(case, seed):
    placement, _ = case
    random = np.random.default_rng(seed)
    table = placement.physical_to_logical_map.copy()
    for row in table:  # empty some of the copies that are not the last of their expert
        for slot in random.permutation(len(row))[:3]:
            if (row == row[slot]).sum() > 1:
                row[slot] = -1
    with_holes = Placement(table, placement.ep_size, placement.num_experts)

    filled = fill_empty_slots(with_holes, random.integers(0, 79, (len(table), placement.num_experts)))

    kept = table >= 0
    assert (filled.physical_to_logical_map[kept] == table[kept]).all()
    assert (filled.physical_to_logical_map >= 0).all()
    assert filled.same_rank_duplicates() == 0


def test_a_rank_with_more_slots_than_experts_cannot_be_filled():
    with pytest.raises(PlacementError, match="fewer redundant experts"):
        fill_empty_slots(Placement(np.array([[0, 1, -1, 0, 1, -1]]), 2, 2), np.ones((1, 2)))
