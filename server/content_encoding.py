"""Compressed bodies, in and out.

What comes in is bounded while it is unpacked: a few kilobytes that would become gigabytes fail before the
memory is taken.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import lz4.frame
import zstandard

from moescope.schemas.errors import MalformedRequestError, RequestTooLargeError

_STEP: Final = 1 << 20
_MAX_DRAINED_BYTES: Final = 256 << 20
_GZIP_LEVEL: Final = 3
_ZSTD_LEVEL: Final = 1
_ZSTD_MAX_WINDOW: Final = 1 << 27


class _Decompressor(Protocol):
    """Unpacks piece by piece."""

    def feed(self, data: bytes, room: int) -> bytes:
        """Return what ``data`` unpacks to, at most about ``room`` + 1 bytes; more means too large."""

    def finish(self) -> None:
        """Raise ValueError where the end is missing."""


async def read_body(chunks: AsyncIterable[bytes], encoding: str | None, limit: int) -> bytes:
    """Read a body piece by piece and unpack it.

    Args:
        chunks: the body as it arrives.
        encoding: the ``Content-Encoding`` header.
        limit: bytes allowed, packed and unpacked.

    Raises:
        MalformedRequestError: the encoding is unknown, or the body is not written in it.
        RequestTooLargeError: more than ``limit`` bytes.
    """
    body = _Body(encoding, limit)
    rest = _MAX_DRAINED_BYTES
    error: MalformedRequestError | None = None
    async for chunk in chunks:
        if error is None:
            try:
                body.feed(chunk)
            except MalformedRequestError as caught:
                error = caught
        else:
            # A client that is still sending would not read the answer.
            rest -= len(chunk)
            if rest < 0:
                break
    if error is not None:
        raise error
    return body.finish()


class _Body:
    """A body that grows within its limit."""

    def __init__(self, encoding: str | None, limit: int) -> None:
        self._encoding = encoding
        self._limit = limit
        self._decompressor: _Decompressor = _decompressor(encoding)
        self._parts: list[bytes] = []
        self._size = self._packed_size = 0

    def feed(self, chunk: bytes) -> None:
        self._packed_size += len(chunk)
        with self._as_malformed():
            data = self._decompressor.feed(chunk, self._limit - self._size)
        self._parts.append(data)
        self._size += len(data)
        if max(self._size, self._packed_size) > self._limit:
            raise RequestTooLargeError(
                f"the request has more than {self._limit} bytes; send fewer points per request, or raise "
                "max_request_bytes (MOESCOPE_MAX_REQUEST_BYTES)"
            )

    def finish(self) -> bytes:
        with self._as_malformed():
            self._decompressor.finish()
        return b"".join(self._parts)

    @contextmanager
    def _as_malformed(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
            raise MalformedRequestError(f"the body is not {self._encoding}: {error}") from None


def _decompressor(encoding: str | None) -> _Decompressor:
    name = (encoding or "identity").strip().lower()
    make = _DECOMPRESSORS.get(name)
    if make is None:
        raise MalformedRequestError(
            f"Content-Encoding {encoding!r} is unknown here; send one of {', '.join(_DECOMPRESSORS)}"
        )
    return make()


class _Identity:
    def feed(self, data: bytes, room: int) -> bytes:  # noqa: ARG002 - the caller bounds what arrives
        return data

    def finish(self) -> None:
        pass


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inner = zlib.decompressobj(wbits)
        self._has_data = False

    def feed(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        while data and len(out) <= room:
            if self._inner.eof:
                self._inner = zlib.decompressobj(self._wbits)
            self._has_data = True
            out += self._inner.decompress(data, min(_STEP, room + 1 - len(out)))
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
        return bytes(out)

    def finish(self) -> None:
        if self._has_data and not self._inner.eof:
            raise ValueError("its end is missing")


class _Deflate(_Zlib):
    """``deflate`` is zlib by the standard and raw deflate by many clients: the first byte tells."""

    def __init__(self) -> None:
        super().__init__(zlib.MAX_WBITS)

    def feed(self, data: bytes, room: int) -> bytes:
        if data and not self._has_data and data[0] & 0x0F != zlib.DEFLATED:
            super().__init__(-zlib.MAX_WBITS)
        return super().feed(data, room)


class _Zstd:
    def __init__(self) -> None:
        self._sink = _Sink()
        decompressor: Any = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        self._writer = decompressor.stream_writer(self._sink, write_size=_STEP, closefd=False)

    def feed(self, data: bytes, room: int) -> bytes:
        self._sink.room = room
        self._writer.write(data)
        return self._sink.take()

    def finish(self) -> None:
        self._writer.flush()


class _Sink:
    """Takes what zstandard writes, a step at a time, and stops it when the room is used up."""

    def __init__(self) -> None:
        self.room = 0
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size > self.room:
            raise RequestTooLargeError(
                "the request unpacks to more bytes than max_request_bytes (MOESCOPE_MAX_REQUEST_BYTES) allows"
            )
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return data


class _Lz4:
    def __init__(self) -> None:
        self._inner = lz4.frame.LZ4FrameDecompressor()
        self._is_between_frames = True

    def feed(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        while (data or not self._is_between_frames) and len(out) <= room:
            out += self._inner.decompress(data, max_length=min(_STEP, room + 1 - len(out)))
            self._is_between_frames = self._inner.eof
            data = b""
            if self._inner.eof:
                data = self._inner.unused_data or b""
                self._inner = lz4.frame.LZ4FrameDecompressor()
            elif self._inner.needs_input:
                break
        return bytes(out)

    def finish(self) -> None:
        if not self._is_between_frames:
            raise ValueError("its end is missing")


_DECOMPRESSORS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "identity": _Identity,
    "gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "deflate": _Deflate,
    "zstd": _Zstd,
    "lz4": _Lz4,
}


def pick_encoding(accept: str | None) -> str | None:
    """Return the best packing that an ``Accept-Encoding`` header allows; None for none."""
    allowed = set()
    for item in (accept or "").lower().split(","):
        name, _, parameters = item.partition(";")
        if parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            allowed.add(name.strip())
    return next((name for name in COMPRESSORS if name in allowed), None)


def _compress_gzip(data: bytes) -> bytes:
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def _compress_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)


def _compress_lz4(data: bytes) -> bytes:
    packed: Any = lz4.frame.compress(data)
    return bytes(packed)


def _compress_deflate(data: bytes) -> bytes:
    return zlib.compress(data, _GZIP_LEVEL)


COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zstd": _compress_zstd,
    "lz4": _compress_lz4,
    "gzip": _compress_gzip,
    "deflate": _compress_deflate,
}
