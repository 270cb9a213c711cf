"""Files of real `torch.save`, read without torch."""

import numpy as np
import pytest
import torch

from moescope.collector.recordings.torch_file import read_torch_file
from moescope.schemas.errors import RecordingError

pytestmark = pytest.mark.engine


def test_tensors_of_every_type_and_view_come_back(tmp_path):
    base = torch.arange(2 * 3 * 13, dtype=torch.int32).reshape(2, 3, 13)
    saved = {
        "view": base[:, 1:, ::2],
        "transposed": base.transpose(0, 2),
        "scalar": torch.tensor(79),
        "empty": torch.empty(0, 3, dtype=torch.int64),
        **{
            str(dtype): torch.ones(3, dtype=dtype)
            for dtype in (
                torch.int8,
                torch.uint8,
                torch.int16,
                torch.int64,
                torch.float16,
                torch.float64,
                torch.bool,
            )
        },
        "nested": [{"a": (1, 2.5, None, True, "é", 2**40, -3)}],
    }
    torch.save(saved, tmp_path / "x.pt")

    read = read_torch_file(tmp_path / "x.pt")

    assert read.keys() == saved.keys()
    assert read["nested"] == saved["nested"]
    for name, tensor in saved.items():
        if name != "nested":
            np.testing.assert_array_equal(read[name], tensor.numpy(), err_msg=name)
            assert read[name].dtype == tensor.numpy().dtype


def test_a_view_that_repeats_its_storage_is_refused(tmp_path):
    torch.save({"x": torch.arange(5).expand(23, 5)}, tmp_path / "expanded.pt")

    with pytest.raises(RecordingError, match="storage"):
        read_torch_file(tmp_path / "expanded.pt")


def test_a_model_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 3), tmp_path / "model.pt")

    with pytest.raises(RecordingError, match="not executed"):
        read_torch_file(tmp_path / "model.pt")


def test_the_old_format_is_refused(tmp_path):
    torch.save({"x": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)

    with pytest.raises(RecordingError, match=r"no file of torch\.save"):
        read_torch_file(tmp_path / "old.pt")
