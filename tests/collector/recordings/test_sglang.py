import json
from pathlib import Path

import numpy as np
import pytest

from moescope.collector.recordings.sglang import read_sglang
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import RecordingError
from tests.torch_files import torch_save

DUMPS = Path(__file__).parent / "dumps"

LAYERS, SLOTS = 4, 36
TABLE = np.tile(np.arange(SLOTS) % 32, (LAYERS, 1))  # four redundant experts


def rank_file(folder: Path, rank: int, passes: dict, *, table: np.ndarray = TABLE, **more) -> Path:
    records = [
        {
            "forward_pass_id": number,
            "rank": rank,
            "gatherer_key": "primary",
            "global_physical_count": counts,
            **more,
        }
        for number, counts in passes.items()
    ]
    return torch_save(
        {"records": records, "last_physical_to_logical_map": table}, folder / f"expert_{rank}.pt"
    )


def counts(seed: int, scale: int = 13) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, scale, (LAYERS, SLOTS)).astype(np.int32)


def test_the_kinds_of_one_run_agree_on_what_it_counted():
    totals = {
        kind: sum(one.tokens_per_layer_expert.astype(np.int64) for one in read_sglang([DUMPS / kind]).passes)
        for kind in ("stat", "per_pass", "per_token")
    }

    np.testing.assert_array_equal(totals["per_pass"], totals["stat"])
    np.testing.assert_array_equal(totals["per_token"], totals["stat"])
    assert totals["stat"].sum() == 1248


def test_per_token_says_phase_and_top_k():
    recording = read_sglang([DUMPS / "per_token"])

    assert [one.phase for one in recording.passes] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]
    assert [int(one.tokens_per_layer_expert[0].sum()) // 8 for one in recording.passes] == [11, 13, 15]
    assert (recording.top_k, recording.ranks, recording.kind) == (8, (0, 1), "per_token")


def test_ids_of_the_prompts_tokens_are_nowhere_in_a_recording():
    assert "input_ids" not in repr(read_sglang([DUMPS / "per_token"]))


def test_unused_rows_of_the_ring_are_left_out_wherever_it_stood(tmp_path: Path):
    ring = np.zeros((13, LAYERS, 32), dtype=np.int32)
    ring[[0, 1, 12]] = 5  # the newest passes came round to the beginning
    recording = read_sglang(
        [
            torch_save(
                {"rank": 0, "logical_count": ring}, tmp_path / "expert_distribution_recorder_1795951421.8.pt"
            )
        ]
    )

    assert len(recording.passes) == 3
    assert recording.left_out["empty rows of the ring"] == 10
    assert recording.made_seconds == 1795951421.8


@pytest.mark.parametrize("name", ["count2d.pt", "count2d.json", "count3d.json"])
def test_counts_are_read_with_and_without_passes_from_either_format(name: str):
    recording = read_sglang([DUMPS / name])

    assert (recording.kind, recording.num_layers, recording.num_experts) == ("logical_count", 4, 32)
    assert sum(int(one.tokens_per_layer_expert.sum()) for one in recording.passes) == 65708


def test_ranks_are_added_up_and_copies_of_an_expert_are_one_expert(tmp_path: Path):
    ranks = [counts(rank) for rank in range(3)]
    files = [rank_file(tmp_path, rank, {7: ranks[rank]}) for rank in range(3)]

    [one] = read_sglang(files).passes

    total = sum(ranks)
    expected = total[:, :32].copy()
    expected[:, :4] += total[:, 32:]
    np.testing.assert_array_equal(one.tokens_per_layer_expert, expected)


def test_a_rank_without_a_file_and_passes_without_a_rank_are_named(tmp_path: Path):
    files = [
        rank_file(tmp_path, 0, {7: counts(0), 8: counts(1)}),
        rank_file(tmp_path, 3, {7: counts(2)}),
    ]

    remarks = " ".join(read_sglang(files).remarks)

    assert "no file of rank 1, 2" in remarks
    assert "1 passes, the first with the id 8" in remarks


def test_ranks_that_saw_the_same_tokens_are_suspected(tmp_path: Path):
    same = [rank_file(tmp_path, rank, {7: counts(0), 8: counts(1)}) for rank in range(2)]

    [remark] = read_sglang(same).remarks

    assert "import the file of one of them" in remark
    assert read_sglang(same[:1]).remarks == ()


def per_token(folder: Path, ids: np.ndarray, mode: int, rank: int = 0) -> Path:
    physical = np.stack([np.bincount(layer[layer >= 0], minlength=SLOTS) for layer in ids]).astype(np.int32)
    return rank_file(
        folder,
        rank,
        {100: physical},
        topk_ids_of_layer=ids.astype(np.int32),
        forward_mode=mode,
        input_ids=[1, 2],
    )


def random_ids(tokens: int) -> np.ndarray:
    ids = np.argsort(np.random.default_rng(79).random((LAYERS, tokens, SLOTS)), axis=2)[:, :, :8]
    ids[0] = -1  # a dense layer
    ids[:, :, 6:] = -1  # top-6 in the recorder's eight columns
    return ids


def test_a_block_of_dummy_tokens_is_counted_apart(tmp_path: Path):
    ids = random_ids(79)
    ids[:, 10:33] = ids[:, 10:11]
    [one] = read_sglang([per_token(tmp_path, ids, mode=1)]).passes
    [with_all] = read_sglang([tmp_path], keeps_identical=True).passes

    assert one.warmup_tokens == 23
    assert one.tokens_per_layer_expert.sum(axis=1).tolist() == [0, *[(79 - 23) * 6] * 3]
    assert with_all.warmup_tokens == 0
    assert with_all.tokens_per_layer_expert[1].sum() == 79 * 6


@pytest.mark.parametrize(
    ("mode", "phase"), [(1, Phase.PREFILL), (2, Phase.DECODE), (3, Phase.PREFILL), (5, Phase.DECODE)]
)
def test_forward_modes_are_phases(tmp_path: Path, mode: int, phase: Phase):
    recording = read_sglang([per_token(tmp_path, random_ids(13), mode)])

    assert recording.passes[0].phase is phase
    assert recording.top_k == 6
    assert bool(recording.remarks) == (mode == 3)


def test_an_idle_pass_is_left_out_and_counted(tmp_path: Path):
    recording = read_sglang([per_token(tmp_path, random_ids(13), mode=4)])

    assert recording.passes == []
    assert recording.left_out == {"idle passes": 1}


def test_ranks_in_different_phases_of_one_pass_stay_apart(tmp_path: Path):
    per_token(tmp_path, random_ids(13), mode=1, rank=0)
    per_token(tmp_path, random_ids(23), mode=2, rank=1)

    recording = read_sglang([tmp_path])

    tokens = {one.phase: int(one.tokens_per_layer_expert[1].sum()) // 6 for one in recording.passes}
    assert tokens == {Phase.PREFILL: 13, Phase.DECODE: 23}
    assert recording.remarks == ()


def refusal(*paths: Path) -> str:
    with pytest.raises(RecordingError) as error:
        read_sglang(paths)
    assert error.value.exit_code == 2
    return str(error.value)


def test_each_kind_of_nonsense_names_its_file_and_the_way_out(tmp_path: Path):
    good = rank_file(tmp_path, 0, {7: counts(0)})
    other = tmp_path / "other"
    other.mkdir()
    cases = {
        "placement, not a recording": DUMPS / "p2l.pt",
        "is no recording of SGLang: it has weights": torch_save({"weights": 1}, tmp_path / "model.pt"),
        "holds no dictionary": torch_save([13], tmp_path / "list.pt"),
        "is there twice": [good, rank_file(other, 0, {7: counts(1)})],
        "no forward pass": torch_save(
            {"records": [], "last_physical_to_logical_map": TABLE}, tmp_path / "none.pt"
        ),
        "whole numbers": torch_save({"logical_count": np.ones((2, 3), np.float32)}, tmp_path / "float.pt"),
        "expected 0 or more": torch_save({"logical_count": np.full((2, 3), -1)}, tmp_path / "minus.pt"),
        "[passes, layers, experts]": torch_save(
            {"logical_count": np.ones(3, np.int64)}, tmp_path / "flat.pt"
        ),
        "several kinds": [good, *(DUMPS / "stat").iterdir()],
        "not of one run": [good, *(DUMPS / "per_pass").glob("*_1.pt")],
        "different placements": [good, rank_file(tmp_path, 1, {7: counts(1)}, table=TABLE[:, ::-1].copy())],
        "one at a time": [DUMPS / f"count{n}.json" for n in ("2d", "3d")],
        "forward mode 99": rank_file(tmp_path, 5, {7: counts(0)}, forward_mode=99),
        "the placement is": rank_file(tmp_path, 6, {7: counts(0)[:, :32]}),
        "there is no file": tmp_path / "nowhere.pt",
    }
    for words, paths in cases.items():
        message = refusal(*(paths if isinstance(paths, list) else [paths]))
        assert words in message, words
        assert ".pt" in message or ".json" in message, message


def test_json_that_is_none_and_an_empty_folder_are_named(tmp_path: Path):
    (tmp_path / "x.json").write_text("{")
    (tmp_path / "ragged.json").write_text(json.dumps({"logical_count": [[1, 2], [3]]}))
    (tmp_path / "empty").mkdir()

    assert "no JSON that can be read" in refusal(tmp_path / "x.json")
    assert "several lengths" in refusal(tmp_path / "ragged.json")
    assert "has no .pt or .json in it" in refusal(tmp_path / "empty")
