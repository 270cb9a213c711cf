"""SGLang's own loader of ``--init-expert-location`` reads what the exporter writes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from moescope.exporters.placement_files import read_placement_document, render_placement
from moescope.schemas.errors import PlacementError
from moescope.schemas.topology import Placement
from tests.engines.sglang_stubs import importing_sglang

with importing_sglang():
    from sglang.srt import model_loader
    from sglang.srt.eplb import expert_location
    from sglang.srt.eplb.expert_location import ModelConfigForExpertLocation

pytestmark = pytest.mark.engine

LAYERS, EXPERTS, REDUNDANT, RANKS = 4, 13, 3, 4
SLOTS = EXPERTS + REDUNDANT


class TinyModel:
    """A model's class as SGLang asks it: four decoder layers, the first dense."""

    @staticmethod
    def get_model_config_for_expert_location(_config):
        return ModelConfigForExpertLocation(num_layers=LAYERS, num_logical_experts=EXPERTS, num_groups=None)


@pytest.fixture
def load(serve, monkeypatch):
    """Start from a file as SGLang does, on one rank; its model's class is the tiny one above."""
    # Stood in for: which class serves a model, and the device that the maps go to.
    monkeypatch.setattr(model_loader, "get_model_architecture", lambda _: (TinyModel, "TinyModel"))
    monkeypatch.setattr(expert_location, "get_device", lambda: SimpleNamespace(device="cpu"))

    def start(file, rank=0):
        serve(
            model_path="tiny",
            tp_size=RANKS,
            ep_size=RANKS,
            ep_num_redundant_experts=REDUNDANT,
            init_expert_location=str(file),
        )
        config = SimpleNamespace(hf_config=None)
        return expert_location.compute_initial_expert_location_metadata(config, rank)

    return start


def plan(seed):
    random = np.random.default_rng(seed)
    rows = [random.permutation(EXPERTS)[np.arange(SLOTS) % EXPERTS] for _ in range(LAYERS - 1)]
    return Placement(np.array(rows), RANKS, EXPERTS)


@pytest.mark.parametrize("seed", [13, 23, 79])
def test_sglang_starts_with_every_expert_where_the_plan_has_it(load, tmp_path, seed):
    placement = plan(seed)
    file = tmp_path / "plan.json"
    file.write_text(render_placement(placement, "sglang", [1, 2, 3]))

    metadata = load(file)

    assert (metadata.num_layers, metadata.num_logical_experts) == (LAYERS, EXPERTS)
    assert metadata.num_local_physical_experts == SLOTS // RANKS
    assert metadata.physical_to_logical_map_cpu[1:].tolist() == placement.physical_to_logical_map.tolist()
    copies = metadata.logical_to_all_physical_map_num_valid[1:]
    assert copies.tolist() == placement.replicas_per_layer_expert().tolist()


def test_sglang_stops_at_a_second_key_and_the_reader_says_so_before(load, tmp_path):
    file = tmp_path / "extra.json"
    rows = [list(np.arange(SLOTS) % EXPERTS)] * LAYERS
    file.write_text(json.dumps({"physical_to_logical_map": np.array(rows).tolist(), "note": "mine"}))

    with pytest.raises(TypeError, match="note"):
        load(file)
    assert "SGLang would not start" in read_placement_document(file, ep_size=RANKS).remarks[0]


def test_sglang_loads_a_map_without_an_expert_and_we_do_not(load, tmp_path):
    file = tmp_path / "hole.json"
    rows = np.tile(np.arange(SLOTS) % EXPERTS, (LAYERS, 1))
    rows[2, rows[2] == 7] = 0
    file.write_text(json.dumps({"physical_to_logical_map": rows.tolist()}))

    assert int(load(file).logical_to_all_physical_map_num_valid[2, 7]) == 0
    with pytest.raises(PlacementError, match="expert 7"):
        read_placement_document(file, ep_size=RANKS)
