"""An engine's /metrics page on loopback whose answers a test decides."""

import gzip
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class PageServer:
    """Answers with ``body``; everything else is an attribute that a test sets."""

    def __init__(self, port: int = 0) -> None:
        self.body: bytes | str = ""
        self.status = 200
        self.content_type = "text/plain; version=0.0.4; charset=utf-8"
        self.encoding = ""
        self.date: str | None = None
        self.delay_seconds = 0.0
        self.cut_bytes = 0
        self.drip_seconds = 0.0
        self.location = ""
        self.requests: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append({**self.headers, "path": self.path})
                outer.answer(self)

            def log_message(self, *args) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        time.sleep(self.delay_seconds)
        body = self.body.encode() if isinstance(self.body, str) else self.body
        if self.encoding == "gzip":
            body = gzip.compress(body)
        request.send_response_only(self.status)
        request.send_header("Date", self.date or formatdate(usegmt=True))
        request.send_header("Content-Type", self.content_type)
        if self.location:
            request.send_header("Location", self.location)
        if self.encoding:
            request.send_header("Content-Encoding", self.encoding)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        try:
            if self.drip_seconds:
                for byte in body:
                    request.wfile.write(bytes([byte]))
                    time.sleep(self.drip_seconds)
            else:
                request.wfile.write(body[: len(body) - self.cut_bytes])
        except OSError:
            pass  # whoever asked has gone

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def page_server() -> Iterator[PageServer]:
    made = PageServer()
    yield made
    made.stop()
