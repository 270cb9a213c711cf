import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from moescope.planning.counts_file import read_counts_file
from moescope.schemas.errors import RecordingError

DUMPS = Path(__file__).parents[1] / "collector" / "recordings" / "dumps"


def write(folder, content, name="counts.json"):
    file = folder / name
    if name.endswith(".npy"):
        np.save(file, content)
    else:
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_counts_without_windows_are_one_window(tmp_path):
    load = read_counts_file(write(tmp_path, {"logical_count": [[13, 23], [79, 0], [5, 5]]}))

    assert load.tokens.tolist() == [[[13, 23], [79, 0], [5, 5]]]
    assert load.layers.tolist() == [0, 1, 2]
    assert load.is_counts


@pytest.mark.parametrize("name", ["counts.json", "counts.npy"])
def test_windows_stay_apart_and_empty_ones_are_left_out_aloud(tmp_path, name):
    counts = [[[13, 23]], [[0, 0]], [[79, 1]]]
    content = {"logical_count": counts} if name.endswith("json") else np.array(counts)

    load = read_counts_file(write(tmp_path, content, name))

    assert load.tokens.tolist() == [[[13, 23]], [[79, 1]]]
    assert load.notes == ("1 of 3 windows of the file are empty and left out.",)


def test_any_finite_number_is_a_load_but_not_every_load_is_a_count(tmp_path):
    load = read_counts_file(write(tmp_path, {"logical_count": [[0.5, 1.25]]}))

    assert load.tokens.tolist() == [[[0.5, 1.25]]]
    assert not load.is_counts


def test_a_file_without_any_load_is_a_load_of_nothing(tmp_path):
    assert read_counts_file(write(tmp_path, {"logical_count": [[0, 0]]})).tokens.tolist() == [[[0, 0]]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"logical_count": [[1, -2]]}, r"expert 1 of layer row 0 in window 0 has the load -2"),
        ('{"logical_count": [[1, NaN]]}', "load nan"),
        ('{"logical_count": [[1, Infinity]]}', "load inf"),
        ({"logical_count": [1, 2]}, r"its axes are \[2\]"),
        ({"logical_count": [[[[1]]]]}, r"its axes are \[1, 1, 1, 1\]"),
        ({"logical_count": []}, "axes"),
        ({"logical_count": [[1, 2], [3]]}, "several lengths"),
        ({"logical_count": [["a"]]}, "expected numbers"),
        ({"logical_count": [[10**30, 1]]}, "beyond 64 bits"),
        ({"logical_count": [[None, 1]]}, "something else"),
        ({"logical_count": [[True, False]]}, "holds bool"),
        ({"physical_to_logical_map": [[0, 1]]}, "give it with --current"),
        ({"expert_popularity": [[1]]}, r'found: expert_popularity.*\{"logical_count"'),
        ([[1, 2]], "found: list"),
        ("{", "no JSON"),
    ],
)
def test_what_is_no_load_is_named_with_the_reason(tmp_path, content, words):
    with pytest.raises(RecordingError, match=words) as raised:
        read_counts_file(write(tmp_path, content))

    assert "counts.json" in str(raised.value)


def test_a_file_that_is_not_there_or_no_array_is_named(tmp_path):
    with pytest.raises(RecordingError, match="there is no file"):
        read_counts_file(tmp_path / "none.json")
    broken = tmp_path / "broken.npy"
    broken.write_text("hello")
    with pytest.raises(RecordingError, match="no array of numpy"):
        read_counts_file(broken)


def test_an_array_of_objects_is_not_unpickled(tmp_path):
    file = tmp_path / "objects.npy"
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)

    with pytest.raises(RecordingError, match="no array of numpy"):
        read_counts_file(file)


@pytest.mark.parametrize("name", ["count2d.json", "count2d.pt"])
def test_sglangs_own_counts_are_read(name):
    assert read_counts_file(DUMPS / name).tokens.shape == (1, 4, 32)


def test_a_dump_of_the_recorder_is_its_passes_in_the_order_of_the_ring():
    (file,) = (DUMPS / "stat").glob("*.pt")

    load = read_counts_file(file)

    assert load.tokens.any(axis=(1, 2)).all()
    assert not load.is_in_order
    assert any("order of the ring" in note for note in load.notes)


def test_dumps_of_every_rank_bring_their_placement_along():
    load = read_counts_file(DUMPS / "per_pass")

    assert load.current is not None
    assert load.current.ep_size == 2
    assert load.current.num_experts == load.experts


def test_a_placement_of_torch_is_no_load():
    with pytest.raises(RecordingError, match="give it with --current"):
        read_counts_file(DUMPS / "p2l.pt")


def test_an_empty_file_or_an_archive_of_numpy_is_named(tmp_path):
    empty, archive = tmp_path / "empty.npy", tmp_path / "archive.npy"
    empty.touch()
    with archive.open("wb") as file:
        np.savez(file, counts=np.ones((1, 4)))

    with pytest.raises(RecordingError, match="no array of numpy"):
        read_counts_file(empty)
    with pytest.raises(RecordingError, match=r"archive of arrays.*numpy\.save"):
        read_counts_file(archive)


def test_a_file_that_takes_more_than_there_is_of_memory_or_depth_is_named(tmp_path):
    endless = tmp_path / "endless.npy"
    with endless.open("wb") as file:
        described = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6, 1000)}
        np.lib.format.write_array_header_1_0(file, described)

    with pytest.raises(RecordingError, match="no array of numpy"):
        read_counts_file(endless)
    with pytest.raises(RecordingError, match="no JSON"):
        read_counts_file(write(tmp_path, "[" * 100_000))


def test_an_array_that_runs_code_when_unpickled_runs_none(tmp_path):
    proof = tmp_path / "proof"

    class Touches:
        def __reduce__(self):
            return Path.touch, (proof,)

    for name, content in (("array.npy", None), ("pickle.npy", pickle.dumps(Touches()))):
        file = tmp_path / name
        if content is None:
            np.save(file, np.array([Touches()], dtype=object), allow_pickle=True)
        else:
            file.write_bytes(content)
        with pytest.raises(RecordingError, match="no array of numpy"):
            read_counts_file(file)

    assert not proof.exists()


@pytest.mark.parametrize("load", ["1e300", "5e-324", "1e-301"])
def test_loads_that_do_not_add_up_are_refused_with_the_range(tmp_path, load):
    with pytest.raises(RecordingError, match=r"0, or from 1e-300 to 1e\+250"):
        read_counts_file(write(tmp_path, f'{{"logical_count": [[1, {load}]]}}'))


@pytest.mark.parametrize(("count", "is_counts"), [(2**52, True), (2**62, False)])
def test_numbers_that_leave_64_bits_together_are_loads_and_no_counts(tmp_path, count, is_counts):
    load = read_counts_file(write(tmp_path, {"logical_count": [[[count, 3]], [[count - 3, 0]]]}))

    assert load.is_counts == is_counts
