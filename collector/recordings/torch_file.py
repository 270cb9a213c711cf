"""Read what ``torch.save`` wrote, without torch and without executing any of it.

The format: a zip archive, nothing in it packed, with ``data.pkl`` (the object), ``data/0``, ``data/1`` … (the
bytes of each storage) and ``byteorder``. A tensor is a view of a storage, wherever that was: on a GPU or not.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moescope.collector.recordings.plain_pickle import PlainPickle
from moescope.schemas.errors import RecordingError

_STORAGE_DTYPES: Final[Mapping[str, str]] = {
    "BoolStorage": "?",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
}
_MOST_ELEMENTS: Final = 2**31


def read_torch_file(path: Path, drop: Collection[str] = ()) -> Any:
    """Return the object in a file of ``torch.save``; its tensors as arrays, read-only.

    Args:
        path: the file.
        drop: dictionary keys whose values are let go of as soon as they are read.

    Raises:
        RecordingError: it is no such file, is damaged, or asks for more than plain data and tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Archive(archive).load(drop)
    except zipfile.BadZipFile:
        raise RecordingError(
            f"{path} is no file of torch.save, or it was cut short. Copy it again, or dump it again"
        ) from None
    except RecordingError as error:
        raise RecordingError(f"{path}: {error}") from None
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from None


class _Archive:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        names = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1:
            raise RecordingError("it is a zip archive, and not one of torch.save")
        self._root = names[0].removesuffix("data.pkl")
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise RecordingError("its parts are packed, which torch.save never does")
        order = self._read("byteorder") if self._root + "byteorder" in archive.namelist() else b"little"
        self._order = ">" if order == b"big" else "<"
        self._storages: dict[str, npt.NDArray[Any]] = {}

    def load(self, drop: Collection[str]) -> Any:
        storages = {f"torch.{name}": _Refusing(name) for name in _STORAGE_DTYPES}
        callables: dict[str, Callable[..., Any]] = {
            **storages,
            "torch._utils._rebuild_tensor_v2": _as_tensor,
            "collections.OrderedDict": _no_hooks,
        }
        return PlainPickle(callables, self._storage, drop).load(self._read("data.pkl"))

    def _storage(self, identity: Any) -> npt.NDArray[Any]:
        """The elements of ``("storage", kind, key, device, elements)``; the device does not matter."""
        word, kind, key, _device, elements = identity
        if word != "storage" or not isinstance(kind, _Refusing) or not isinstance(key, str):
            raise RecordingError("it has a part of an unknown kind")
        if key not in self._storages:
            dtype = np.dtype(self._order + _STORAGE_DTYPES[kind.name])
            data = self._read(f"data/{key}")
            if len(data) < elements * dtype.itemsize:
                raise RecordingError(f"its part data/{key} is shorter than it says")
            self._storages[key] = np.frombuffer(data, dtype=dtype, count=elements)
        return self._storages[key]

    def _read(self, name: str) -> bytes:
        try:
            return self._archive.read(self._root + name)
        except KeyError:
            raise RecordingError(f"its part {name} is missing") from None


class _Refusing:
    """The type of a storage: it is named, and never called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_arguments: object) -> None:
        raise RecordingError("it calls what may not be called; it is not executed")


def _no_hooks(*arguments: object) -> None:
    """An ``OrderedDict`` of backward hooks, which a tensor without gradients has none of."""
    if arguments:
        raise RecordingError("it has a part of an unknown kind")


def _as_tensor(
    storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> npt.NDArray[Any]:
    """A view of a storage, inside its bounds."""
    if not isinstance(storage, np.ndarray) or len(size) != len(stride):
        raise RecordingError("it has a tensor without a storage")
    numbers = (offset, *size, *stride)
    is_possible = all(type(number) is int and number >= 0 for number in numbers)
    if not is_possible or math.prod(length or 1 for length in size) > _MOST_ELEMENTS:
        raise RecordingError("it has a tensor of an impossible shape")
    if math.prod(size) > len(storage):  # a stride of 0 would make gigabytes of one element
        raise RecordingError("it has a tensor of more elements than its storage")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if math.prod(size) and last >= len(storage):
        raise RecordingError("it has a tensor that reaches beyond its storage")
    if not math.prod(size):
        return np.empty(size, dtype=storage.dtype)
    strides = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, strides, writeable=False)
