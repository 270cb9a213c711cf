"""Writing that survives a power cut: data first, then the name, then the folder that holds the name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_durably(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file that is there whole or not at all, even if the machine stops in the middle."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
