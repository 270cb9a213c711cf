"""What each endpoint takes, from a file: strict, and every error with its line."""

from pathlib import Path

import pytest

from moescope.checking.endpoints_file import read_endpoints
from moescope.schemas.errors import SettingError
from moescope.schemas.signals import EndpointLimits

RIGHT = """\
endpoints:
  - service: kimi-k3
    ep_group: 0
    max_context_tokens: 1048576
    modalities: [text, image]
    url: http://10.0.0.7:8000
  - service: qwen3-moe
"""


@pytest.fixture
def write(tmp_path: Path):
    def write_text(text: str) -> Path:
        path = tmp_path / "endpoints.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_text


def test_what_is_written_is_what_is_known_and_no_more(write):
    assert read_endpoints(write(RIGHT)) == (
        EndpointLimits("kimi-k3", "0", 1_048_576, ("text", "image"), "http://10.0.0.7:8000"),
        EndpointLimits("qwen3-moe", "", None, None, ""),
    )


@pytest.mark.parametrize(
    ("wrong", "line", "message"),
    [
        ("    max_context: 8192", 3, "did you mean max_context_tokens?"),
        ("    max_context_tokens: 8k", 3, "takes a whole number of tokens above 0"),
        ("    max_context_tokens: 0", 3, "takes a whole number of tokens above 0"),
        ("    max_context_tokens: true", 3, "takes a whole number of tokens above 0"),
        ("    modalities: text", 3, "takes a list of words"),
        ("    modalities: []", 3, "takes a list of words"),
        ("    url: 8000", 3, "takes an address"),
        ("  - ep_group: 1", 3, "service: missing"),
        ("  - service: kimi-k3", 3, "this endpoint stands twice"),
        ("  - just a word", 3, "an endpoint is a mapping"),
        ("    service: twice", 3, "stands twice, first in line 2"),
    ],
)
def test_error_names_the_line_and_the_way_out(write, wrong: str, line: int, message: str):
    path = write(f"endpoints:\n  - service: kimi-k3\n{wrong}\n")
    with pytest.raises(SettingError) as raised:
        read_endpoints(path)
    assert f"{path}:{line}:" in str(raised.value)
    assert message in str(raised.value)
    assert "docs/signals.md" in str(raised.value)


@pytest.mark.parametrize("text", ["endpoints: []", "service: kimi-k3", "- kimi-k3", "endpoints: {}"])
def test_file_of_another_shape_says_which_is_taken(write, text: str):
    with pytest.raises(SettingError, match="a mapping with one key, endpoints, a list of endpoints"):
        read_endpoints(write(text))


def test_all_that_is_wrong_is_said_at_once(write):
    with pytest.raises(SettingError) as raised:
        read_endpoints(write("endpoints:\n  - servise: kimi-k3\n    modalities: 7\nmore: 1\n"))
    assert str(raised.value).count("endpoints.yaml:") == 4


def test_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(SettingError, match="cannot be read"):
        read_endpoints(tmp_path / "none.yaml")


def test_empty_file_is_told_where_endpoints_are_described(tmp_path):
    path = tmp_path / "endpoints.yaml"
    path.write_text("", encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        read_endpoints(path)
    assert "docs/signals.md" in str(caught.value)
    assert "readiness" not in str(caught.value)
