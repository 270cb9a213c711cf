"""All HTTP of the process: one thread with one event loop, and one uvicorn server per port on it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import uvicorn

KEEP_ALIVE_SECONDS: Final = 30
_START_SECONDS: Final = 30.0
_GRACE_SECONDS: Final = 10


class _Quiet(uvicorn.Server):
    """A uvicorn server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves applications on sockets that are already bound.

    Args:
        apps: ASGI application by socket.
    """

    def __init__(self, apps: Mapping[socket.socket, Any]) -> None:
        self._servers = [(_Quiet(_config(app)), listener) for listener, app in apps.items()]
        self._thread = threading.Thread(target=self._run, name="moescope-http", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start and return once every port answers."""
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(_START_SECONDS / 0.01)):
            if self._error is not None:
                raise self._error
            if all(server.started for server, _ in self._servers):
                return
            waited.wait(0.01)
        raise TimeoutError("the HTTP servers did not start")

    def stop(self) -> None:
        """Finish what is under way and close the ports."""
        for server, _ in self._servers:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error

    async def _serve(self) -> None:
        await asyncio.gather(*(server.serve(sockets=[listener]) for server, listener in self._servers))


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        log_config=None,
    )
