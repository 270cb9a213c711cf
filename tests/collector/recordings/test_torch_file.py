import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from moescope.collector.recordings.torch_file import read_torch_file
from moescope.schemas.errors import RecordingError
from tests.torch_files import Raw, TorchFile, torch_save

DUMPS = Path(__file__).parent / "dumps"


def test_a_file_of_torch_itself_is_read():
    [path] = (DUMPS / "stat").iterdir()

    content = read_torch_file(path)

    assert set(content) == {"rank", "logical_count", "average_utilization_rate_over_window"}
    counts = content["logical_count"]
    assert (counts.shape, counts.dtype, int(counts.sum())) == ((10, 4, 32), np.int32, 1248)
    assert content["average_utilization_rate_over_window"] is None


def test_numbers_text_lists_and_tensors_come_back(tmp_path: Path):
    value = {
        "a": [13, -1, 2**31 - 1, 0.5, True, None, "é"],
        "counts": np.arange(79, dtype=np.int64).reshape(1, 79),
        "flags": np.array([True, False]),
        "none": np.zeros((0, 3), dtype=np.int32),
    }

    read = read_torch_file(torch_save(value, tmp_path / "x.pt"))

    assert read["a"] == value["a"]
    for name in ("counts", "flags", "none"):
        np.testing.assert_array_equal(read[name], value[name])


def test_a_tensor_that_was_on_a_gpu_is_read_like_any_other(tmp_path: Path):
    read = read_torch_file(torch_save({"x": np.arange(13)}, tmp_path / "x.pt", device="cuda:3"))

    assert read["x"].sum() == 78


def test_what_is_to_be_dropped_is_not_there(tmp_path: Path):
    path = torch_save({"input_ids": [13, 23], "records": [{"input_ids": [79], "rank": 0}]}, tmp_path / "x.pt")

    assert read_torch_file(path, {"input_ids"}) == {"records": [{"rank": 0}]}


class Malicious:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(tmp_path: Path, protocol: int):
    trace = tmp_path / "was_here"
    data = pickle.dumps({"records": Malicious(f"touch {trace}")}, protocol)
    path = torch_save(None, tmp_path / "x.pt", pickle=data)

    with pytest.raises(RecordingError, match="it is not executed"):
        read_torch_file(path)

    assert not trace.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cbuiltins\neval\n(X\x03\x00\x00\x001+1tR",  # a name that no recording needs
        b"ctorch\nIntStorage\n)R",  # a storage that is called
        b"X\x03\x00\x00\x00abc)R",  # text that is called
        b"}}b",  # a state that is set
        b"(lp0\n",  # instructions of another protocol
        b"ccollections\nOrderedDict\n(]tR",  # hooks
    ],
)
def test_anything_but_plain_data_and_tensors_is_refused(tmp_path: Path, code: bytes):
    path = torch_save({"x": Raw(code)}, tmp_path / "x.pt")

    with pytest.raises(RecordingError, match=r"x\.pt"):
        read_torch_file(path)


def tensor(size: tuple, stride: tuple, offset: int = 0) -> bytes:
    file = TorchFile()
    code = file._tensor(np.arange(4))
    head, _, _ = code.partition(b"Q")
    rest = b"".join(map(file._code, (offset, size, stride, False)))
    return b"\x80\x02" + head + b"Q" + rest + b"ccollections\nOrderedDict\n)RtR."


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((5,), (1,), 0),
        ((4,), (1,), 1),
        ((2, 2), (4, 1), 0),
        ((2,), (-1,), 1),
        ((2**20, 2**20), (0, 0), 0),
        ((2, 2), (1,), 0),
        ((5,), (0,), 0),
        ((1, 2**30), (1, 0), 3),
        ((0, 2**30, 2**30), (0, 0, 0), 0),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(tmp_path: Path, size, stride, offset):
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", tensor(size, stride, offset))
        archive.writestr("x/data/0", np.arange(4).tobytes())

    with pytest.raises(RecordingError, match="tensor"):
        read_torch_file(path)


def test_a_storage_that_is_too_short_or_missing_is_refused(tmp_path: Path):
    for data, words in ((b"\0" * 24, "shorter than it says"), (None, "missing")):
        path = tmp_path / "x.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/data.pkl", tensor((4,), (1,)))
            if data is not None:
                archive.writestr("x/data/0", data)

        with pytest.raises(RecordingError, match=words):
            read_torch_file(path)


def test_a_file_that_was_cut_is_refused_wherever_it_was_cut(tmp_path: Path):
    whole = torch_save({"x": np.arange(79)}, tmp_path / "whole.pt").read_bytes()
    path = tmp_path / "cut.pt"
    for length in range(0, len(whole), 23):
        path.write_bytes(whole[:length])

        with pytest.raises(RecordingError, match=r"cut\.pt"):
            read_torch_file(path)


def test_a_packed_archive_is_refused(tmp_path: Path):
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", b"\0" * 2**20)

    with pytest.raises(RecordingError, match="never does"):
        read_torch_file(path)
