"""Stand-ins for what SGLang imports and the engines' environment lacks. None of it is called by the tests.

``torchvision``: SGLang's configurations of vision models take its constants when they are imported; the one
    that fits this torch cannot be installed beside it. Stubbed: ``transforms``, ``transforms.functional``,
    ``transforms.v2.functional``, ``io`` and ``InterpolationMode``.
``IPython``: SGLang's tools for notebooks import ``display`` and ``HTML``.

They are there only while SGLang is imported: others look for torchvision to see what they can do.
"""

import contextlib
import importlib.machinery
import sys
import types
import warnings
from enum import Enum


class InterpolationMode(Enum):
    """The names that torchvision has."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


STUBS = {
    "torchvision": {},
    "torchvision.io": {},
    "torchvision.transforms": {"InterpolationMode": InterpolationMode},
    "torchvision.transforms.functional": {"InterpolationMode": InterpolationMode},
    "torchvision.transforms.v2": {},
    "torchvision.transforms.v2.functional": {},
    "IPython": {},
    "IPython.display": {"display": print, "HTML": str},
}


@contextlib.contextmanager
def importing_sglang():
    """Let SGLang be imported, and keep what it says of itself out of the test's warnings."""
    from transformers.utils import import_utils

    # Remembered from here on, and true: there is none.
    import_utils.is_torchvision_available()
    import_utils.is_torchvision_v2_available()
    missing = [name for name in STUBS if name.partition(".")[0] not in sys.modules]
    for name in missing:
        sys.modules[name] = _module(name)
    for name in missing:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in missing:
            del sys.modules[name]


def _module(name):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    vars(module).update(STUBS[name])
    return module
