"""Write what `torch.save` writes, without torch: the format's own instructions, one by one."""

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {"int64": "LongStorage", "int32": "IntStorage", "float32": "FloatStorage", "bool": "BoolStorage"}


class Raw:
    """Instructions as they are, for what no tensor file contains."""

    def __init__(self, code: bytes) -> None:
        self.code = code


class TorchFile:
    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.storages: list[bytes] = []

    def pickle(self, value: Any) -> bytes:
        return b"\x80\x02" + self._code(value) + b"."

    def _code(self, value: Any) -> bytes:  # noqa: PLR0911 - one return per kind
        if isinstance(value, Raw):
            return value.code
        if isinstance(value, np.ndarray):
            return self._tensor(value)
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        if isinstance(value, list | tuple):
            items = b"".join(map(self._code, value))
            return b"](" + items + b"e" if isinstance(value, list) else b"(" + items + b"t"
        if isinstance(value, dict):
            return b"}(" + b"".join(self._code(k) + self._code(v) for k, v in value.items()) + b"u"
        raise TypeError(value)

    def _tensor(self, array: np.ndarray) -> bytes:
        key = str(len(self.storages))
        self.storages.append(np.ascontiguousarray(array).tobytes())
        storage = Raw(b"ctorch\n" + STORAGES[array.dtype.name].encode() + b"\n")
        identity = self._code(("storage", storage, key, self.device, array.size)) + b"Q"
        strides = tuple(step // array.itemsize for step in np.ascontiguousarray(array).strides)
        hooks = Raw(b"ccollections\nOrderedDict\n)R")
        rest = self._code((Raw(identity), 0, array.shape, strides, False, hooks))
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + rest + b"R"


def torch_save(value: Any, path: Path, *, device: str = "cpu", pickle: bytes | None = None) -> Path:
    """Write ``value`` as `torch.save` would, or the pickle that is given."""
    file = TorchFile(device)
    data = file.pickle(value) if pickle is None else pickle
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", data)
        archive.writestr(f"{path.stem}/byteorder", "little")
        for key, content in enumerate(file.storages):
            archive.writestr(f"{path.stem}/data/{key}", content)
        archive.writestr(f"{path.stem}/version", "3\n")
    return path
