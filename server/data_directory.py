"""The folder that one server owns: where things lie in it, and the lock that keeps a second server out."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, Final

import platformdirs

from moescope.schemas.errors import DataDirectoryError
from moescope.schemas.settings import Settings

_PATTERN_CHARACTERS: Final = frozenset("*?{}[]")
_ENV: Final = "MOESCOPE_DATA_DIR or --data-dir"


def data_folder(settings: Settings) -> Path:
    """Return the folder that the settings name, or the user's data folder."""
    if settings.data_dir:
        return Path(settings.data_dir).expanduser().absolute()
    return Path(platformdirs.user_data_dir("moescope", appauthor=False))


class DataDirectory:
    """An owned data folder. :meth:`close` gives it up.

    Raises:
        DataDirectoryError: the folder cannot be made, read or written, or another server owns it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _make_usable(folder)
        self._lock = _take_lock(folder / "server.lock", folder)

    @property
    def engine(self) -> Path:
        """What the embedded engine keeps."""
        return self.folder / "engine"

    @property
    def journal(self) -> Path:
        """Batches that are being inserted."""
        return self.folder / "journal"

    @property
    def stored_requests(self) -> Path:
        """Digests of the requests that are stored."""
        return self.folder / "stored_requests.bin"

    def close(self) -> None:
        """Let another server have the folder."""
        self._lock.close()


def _make_usable(folder: Path) -> None:
    if _PATTERN_CHARACTERS & set(str(folder)):
        raise DataDirectoryError(
            f"the data directory {folder} has one of {' '.join(sorted(_PATTERN_CHARACTERS))} in its name, "
            f"which the engine reads as a pattern; name another one with {_ENV}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataDirectoryError(f"{folder} is not a directory; name another one with {_ENV}") from None
    except OSError as error:
        raise DataDirectoryError(
            f"the data directory {folder} cannot be made: {error.strerror}; name another one with {_ENV}"
        ) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise DataDirectoryError(
            f"the data directory {folder} cannot be read and written by this user; "
            f"change its owner (chown) or name another one with {_ENV}"
        )


def _take_lock(path: Path, folder: Path) -> IO[str]:
    try:
        file = path.open("a+", encoding="ascii")
    except OSError as error:
        raise DataDirectoryError(
            f"the data directory {folder} cannot be written: {error.strerror}; name another one with {_ENV}"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise DataDirectoryError(
            f"the data directory {folder} belongs to another moescope server (process {owner}); "
            f"stop that one, or name another directory with {_ENV}"
        ) from None
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
