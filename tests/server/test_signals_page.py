"""GET /v1/signals on a running server: over the wire, with a source that a test decides."""

import json
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from moescope.schemas.errors import MissingExtraError, StoreUnavailableError
from moescope.schemas.signals import Endpoint, Evidence, FleetSignals, make_signal


def _endpoint(service: str) -> Endpoint:
    free = make_signal(79, "{slot}", age_seconds=7, observations=6, evidence=Evidence.WINDOWS)
    return Endpoint(service, "0", "mixed", "node-0", "front", None, {"kda_slots_free": free}, {}, {})


class Source:
    """Answers at once, or when the test lets it."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.reads = 0
        self.dsns: list[str] = []
        self.closed = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def open(self, dsn: str) -> "Source":
        self.dsns.append(dsn)
        return self

    def read(self) -> FleetSignals:
        self.reads += 1
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return FleetSignals(79_000, (_endpoint("one"), _endpoint("two")))

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def source() -> Source:
    return Source()


def get(server, path: str = "/v1/signals", **headers: str) -> tuple[int, dict, bytes]:
    request = urllib.request.Request(server.url("metrics", path), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_every_endpoint_is_told_or_those_of_one_deployment(make_server, source):
    server = make_server(open_signals=source.open)

    status, headers, body = get(server)
    told = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert headers["cache-control"] == "private, max-age=1"
    assert told["computed_at"] == "1970-01-01T00:01:19+00:00"
    assert [one["service"] for one in told["endpoints"]] == ["one", "two"]
    assert told["endpoints"][0]["load"]["kda_slots_free"] == {
        "value": 79,
        "unit": "{slot}",
        "age_seconds": 7,
        "observations": 6,
        "evidence": "windows",
        "confidence": "high",
    }
    assert [one["service"] for one in json.loads(get(server, "/v1/signals?service=two")[2])["endpoints"]] == [
        "two"
    ]
    assert source.dsns == [f"http://127.0.0.1:{server.ports.sql}/moescope"]
    server.stop()
    assert source.closed.wait(30)


def test_answer_that_is_known_is_not_sent_again(make_server, source):
    server = make_server(open_signals=source.open)
    tag = get(server)[1]["etag"]

    assert get(server, **{"If-None-Match": f'"other", {tag}'})[0] == 304
    assert get(server, **{"If-None-Match": f"W/{tag}"})[0] == 304
    assert get(server, **{"If-None-Match": "*"})[0] == 304
    assert get(server, **{"If-None-Match": '"other"'})[0] == 200


def test_hundreds_who_ask_at_once_are_one_reading(make_server, source):
    server = make_server(open_signals=source.open, signals_interval_seconds=60)
    source.gate.clear()
    with ThreadPoolExecutor(32) as pool:
        answers = [pool.submit(get, server) for _ in range(300)]
        time.sleep(0.2)
        source.gate.set()
        statuses = {answer.result()[0] for answer in answers}

    assert statuses == {200}
    assert source.reads == 1


def test_store_is_read_again_when_the_interval_is_over(make_server, source):
    server = make_server(open_signals=source.open, signals_interval_seconds=0.1)
    get(server)
    time.sleep(0.3)
    get(server)

    assert source.reads == 2


def test_nothing_waits_for_a_store_that_does_not_answer(make_server, source):
    server = make_server(open_signals=source.open)
    source.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, server)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert get(server, path)[0] == 200
        assert server.sql("SELECT 79") == [[79]]
        assert not waiting.done()
        source.gate.set()
        assert waiting.result()[0] == 200


def test_reason_is_said_while_nothing_can_be_read_and_the_store_is_spared(make_server, source):
    server = make_server(open_signals=source.open, signals_interval_seconds=60)
    source.error = StoreUnavailableError("nobody answers at the store")

    answers = [get(server) for _ in range(3)]

    assert {status for status, _, _ in answers} == {503}
    assert json.loads(answers[0][2]) == {"error": "nobody answers at the store"}
    assert answers[0][1]["retry-after"] == "60"
    assert source.reads == 1


def test_store_that_came_back_is_read_again(make_server, source):
    server = make_server(open_signals=source.open, signals_interval_seconds=0.1)
    source.error = StoreUnavailableError("nobody answers")
    assert get(server)[0] == 503
    source.error = None
    time.sleep(0.3)

    assert get(server)[0] == 200


def test_fault_of_ours_is_told_without_its_inside(make_server, source):
    server = make_server(open_signals=source.open)
    source.error = ValueError("secret path /home/somebody")

    status, _, body = get(server)

    assert (status, json.loads(body)) == (503, {"error": "the analysis failed: ValueError"})


def test_server_without_the_analysis_says_so(make_server, server):
    def open_signals(dsn: str):
        raise MissingExtraError("the analysis", "server")

    status, _, body = get(make_server(open_signals=open_signals))
    assert status == 503
    assert "pip install 'moescope[server]'" in json.loads(body)["error"]


def test_unknown_parameter_is_refused_and_only_reading_is_allowed(make_server, source):
    server = make_server(open_signals=source.open)

    assert get(server, "/v1/signals?servise=one")[0] == 400
    request = urllib.request.Request(server.url("metrics", "/v1/signals"), data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(request, timeout=30)
    refused.value.close()


def test_token_is_asked_for(make_server, source, tmp_path):
    token = tmp_path / "token"
    token.write_text("a token of thirteen and more")
    server = make_server(open_signals=source.open, token_file=str(token))

    assert get(server)[0] == 401
    assert get(server, Authorization="Bearer a token of thirteen and more")[0] == 200
