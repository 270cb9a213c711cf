"""One viewer of a running dashboard: the browser's side of Streamlit's websocket, without a browser.

What is timed is what a viewer waits for apart from drawing: the script's run, its queries, and every message
with its figures, over the wire.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

_LARGEST_MESSAGE = 512 * 2**20


@dataclass(frozen=True)
class Answer:
    """What one run of a page sent.

    Attributes:
        seconds: from the request to the end of the script.
        messages: how many, and ``size``, their bytes.
        errors: texts of exceptions that the page shows.
        fragments: ids of the parts that refresh by themselves.
    """

    seconds: float
    messages: int
    size: int
    errors: tuple[str, ...]
    fragments: tuple[str, ...]


class PageSession:
    """One open tab. Its widgets keep their state on the server, as those of a browser do."""

    def __init__(self, port: int) -> None:
        self._url = f"ws://127.0.0.1:{port}/_stcore/stream"
        self._socket: ClientConnection | None = None

    async def __aenter__(self) -> Self:
        self._socket = await connect(
            self._url, subprotocols=[Subprotocol("streamlit")], max_size=_LARGEST_MESSAGE, ping_interval=None
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def open(self, page: str, query: str = "") -> Answer:
        """Run a page from its beginning, as its address in the browser does."""
        message = BackMsg()
        message.rerun_script.page_name = page
        message.rerun_script.query_string = query
        return await self._run(message)

    async def refresh(self, page: str, fragment: str, query: str = "") -> Answer:
        """Run one part of the page, as the browser's timer does."""
        message = BackMsg()
        message.rerun_script.page_name = page
        message.rerun_script.query_string = query
        message.rerun_script.fragment_id = fragment
        message.rerun_script.is_auto_rerun = True
        return await self._run(message)

    async def forget(self) -> None:
        """Clear the app's caches, so that the next run reads everything."""
        message = BackMsg()
        message.clear_cache = True
        await self._send(message)

    async def _send(self, message: BackMsg) -> None:
        await self._connection.send(message.SerializeToString())

    @property
    def _connection(self) -> ClientConnection:
        if self._socket is None:
            raise RuntimeError("the session is not open")
        return self._socket

    async def _run(self, message: BackMsg) -> Answer:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._send(message)
        messages, size, errors, fragments = 0, 0, [], []
        while True:
            body = await self._connection.recv(decode=False)
            answer = ForwardMsg.FromString(body)
            messages, size = messages + 1, size + len(body)
            kind = answer.WhichOneof("type")
            if kind == "delta" and answer.delta.new_element.WhichOneof("type") == "exception":
                errors.append(answer.delta.new_element.exception.message)
            elif kind == "auto_rerun":
                fragments.append(answer.auto_rerun.fragment_id)
            elif kind == "script_finished":
                if answer.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                    continue
                return Answer(loop.time() - started, messages, size, tuple(errors), tuple(fragments))
