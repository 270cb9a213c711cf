"""What an answer means for what was posted: taken, worth another try, or refused for good."""

import http.server
import json
from collections.abc import Iterator

import pytest

from moescope.alerting.post import NotTakenError, RefusedError, post_json
from tests.alert_endpoint import running


class _Listener(http.server.ThreadingHTTPServer):
    """Answers with a status, and keeps what it was sent."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[object] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.status)
        self.send_header("content-length", "3")
        self.send_header("location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"why")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def listener() -> Iterator[_Listener]:
    server = _Listener()
    with running(server):
        yield server


@pytest.mark.parametrize("status", [200, 202])
def test_what_was_taken_is_taken(listener, status):
    listener.status = status

    post_json(listener.url, [13, 23])

    assert listener.bodies == [[13, 23]]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_is_refused_for_its_content_is_not_tried_again(listener, status):
    listener.status = status
    with pytest.raises(RefusedError, match=f"{status} .*: why"):
        post_json(listener.url, [13])


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 405, 407, 408, 425, 429, 500, 502, 503])
def test_what_people_can_put_right_is_tried_again(listener, status):
    listener.status = status
    with pytest.raises(NotTakenError, match=str(status)):
        post_json(listener.url, [13])
    assert listener.bodies == [[13]], "a redirection is not followed"


def test_nobody_there_is_tried_again(listener):
    listener.shutdown()
    listener.server_close()
    with pytest.raises(NotTakenError, match="refused"):
        post_json(listener.url, [13])
