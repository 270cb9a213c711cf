from pathlib import Path

import pytest

from moescope.schemas.errors import UsageError
from moescope.scraping.run import scrape_pages
from tests.page_server import PageServer


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"urls": ["ftp://host"]}, "write http://host:8000/metrics"),
        ({"engine": "trtllm"}, "use one of auto, vllm, sglang, dynamo"),
        ({"role": "both"}, "use one of prefill, decode, mixed"),
        ({"as_json": True, "once": False}, "needs --once"),
        ({"interval_seconds": 0}, "--interval"),
        ({"bearer_token_file": Path("/nowhere/token")}, "/nowhere/token"),
    ],
)
def test_wrong_use_says_what_to_do(options: dict, words: str):
    with pytest.raises(UsageError) as error:
        scrape_pages(**{**ONCE, **options})

    assert words in str(error.value)


ONCE = {
    "urls": ["host"],
    "interval_seconds": 10,
    "engine": "auto",
    "service": None,
    "role": "mixed",
    "tensor_parallel": 1,
    "endpoint": None,
    "bearer_token_file": None,
    "once": True,
    "as_json": False,
}


def test_a_token_from_a_file_is_sent(page_server: PageServer, tmp_path: Path, capsys):
    (tmp_path / "token").write_text("s3cret\n")
    page_server.body = "vllm:num_requests_running 13\n"

    assert scrape_pages(**{**ONCE, "urls": [page_server.url], "bearer_token_file": tmp_path / "token"})

    assert page_server.requests[0]["Authorization"] == "Bearer s3cret"
    assert "13 {request}" in capsys.readouterr().out


def test_a_page_that_is_asked_for_by_the_wrong_name_is_no_success(page_server: PageServer, capsys):
    page_server.body = "vllm:num_requests_running 13\n"

    assert not scrape_pages(**{**ONCE, "urls": [page_server.url], "engine": "sglang"})
    assert "no metric of sglang" in capsys.readouterr().out
