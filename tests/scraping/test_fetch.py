import base64
import threading
import time

import pytest

from moescope.schemas.errors import PageError, UsageError
from moescope.scraping.fetch import Address, fetch, parse_address
from tests.page_server import PageServer
from tests.server_process import free_ports


def refusal(address: Address, timeout_seconds: float = 5) -> PageError:
    with pytest.raises(PageError) as error:
        fetch(address, timeout_seconds)
    return error.value


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host:8000", "http://host:8000/metrics"),
        ("http://host:8000/", "http://host:8000/metrics"),
        ("https://host/engine/metrics", "https://host/engine/metrics"),
        ("http://host:8000/metrics?x=1", "http://host:8000/metrics?x=1"),
        ("[::1]:8000", "http://[::1]:8000/metrics"),
    ],
)
def test_an_address_may_be_short(text: str, url: str):
    assert parse_address(text).url == url


@pytest.mark.parametrize("text", ["", "ftp://host/metrics", "http://", "file:///etc/passwd", "host:port"])
def test_what_is_no_http_address_is_refused(text: str):
    with pytest.raises(UsageError, match=r"http://host:8000/metrics"):
        parse_address(text)


def test_user_and_password_are_sent_and_never_shown(page_server: PageServer):
    page_server.body = "a 1\n"
    address = parse_address(f"http://me:s%20cret@127.0.0.1:{page_server.port}/metrics")

    fetch(address, 5)

    assert page_server.requests[0]["Authorization"] == "Basic " + base64.b64encode(b"me:s cret").decode()
    assert "cret" not in repr(address)
    assert "Authorization" not in repr(address)
    assert address.url == page_server.url


def test_a_packed_page_is_unpacked(page_server: PageServer):
    page_server.body, page_server.encoding = "a 13\n", "gzip"

    assert fetch(parse_address(page_server.url), 5).text == "a 13\n"


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "--bearer-token-file"), (403, "may not read"), (404, "--enable-metrics"), (503, "HTTP 503")],
)
def test_a_status_says_what_to_do(page_server: PageServer, status: int, words: str):
    page_server.status = status

    error = refusal(parse_address(page_server.url))

    assert error.reason == f"http_{status}"
    assert words in str(error)


def test_credentials_do_not_follow_a_redirection(page_server: PageServer):
    page_server.status, page_server.location = 302, page_server.url + "/elsewhere"
    address = parse_address(page_server.url, bearer_token="s3cret")

    error = refusal(address)

    assert f"the page is at {page_server.url}/elsewhere" in str(error)
    assert len(page_server.requests) == 1


def test_a_page_that_comes_late_is_not_waited_for(page_server: PageServer):
    page_server.delay_seconds = 1

    assert refusal(parse_address(page_server.url), 0.1).reason == "timeout"


def test_a_page_that_trickles_is_not_waited_for(page_server: PageServer):
    page_server.body, page_server.drip_seconds = "a" * 79, 0.05
    started = time.monotonic()

    assert refusal(parse_address(page_server.url), 0.2).reason == "timeout"

    assert time.monotonic() - started < 3


def test_a_page_that_ends_early_is_refused(page_server: PageServer):
    page_server.body, page_server.cut_bytes = "a 13\nb 23\n", 5

    assert refusal(parse_address(page_server.url)).reason == "truncated"


@pytest.mark.parametrize("encoding", ["br", "deflate"])
def test_a_packing_that_was_not_asked_for_is_refused(page_server: PageServer, encoding: str):
    page_server.body, page_server.encoding = b"x", encoding

    assert refusal(parse_address(page_server.url)).reason == "encoding"


def test_a_small_page_that_unpacks_to_a_huge_one_is_refused(page_server: PageServer):
    page_server.body, page_server.encoding = b"\n" * (65 * 2**20), "gzip"

    assert refusal(parse_address(page_server.url), 20).reason == "too_large"


def test_bytes_that_are_no_text_are_no_page(page_server: PageServer):
    page_server.body = b"\xff\xfe\x00"

    assert refusal(parse_address(page_server.url)).reason == "not_metrics"


def test_nobody_there_and_somebody_who_hangs_up_are_named():
    [port] = free_ports(1)

    assert refusal(parse_address(f"127.0.0.1:{port}")).reason == "unreachable"


def test_fetching_leaves_no_thread_behind(page_server: PageServer):
    page_server.body = "a 1\n"
    before = threading.active_count()

    fetch(parse_address(page_server.url), 5)

    assert threading.active_count() <= before + 1
