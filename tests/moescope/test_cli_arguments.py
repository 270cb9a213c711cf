import pytest
import typer

from moescope.cli_arguments import parse_contexts, parse_duration, parse_window
from moescope.schemas.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("24h", 86400),
        ("2d", 172800),
        ("250ms", 0.25),
        ("1.5", 1.5),
        (" 10 s ", 10),
    ],
)
def test_span_of_time_is_read(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 weeks", "1h30m", "nan", "inf", "9" * 400, "٣s"])
def test_what_is_no_span_of_time_says_how_to_write_one(text: str):
    with pytest.raises(typer.BadParameter, match="write 90s, 15m, 6h or 2d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0", "0s", "0.0h"])
def test_looking_back_over_nothing_is_refused(text: str):
    with pytest.raises(typer.BadParameter, match="looks back over nothing; write 90s"):
        parse_window(text)
    assert parse_window("1ms") == 0.001


def test_contexts_are_tokens_in_powers_of_1024_each_once():
    assert parse_contexts(["8k,32K", "1M", "50000", "8192", "1.5k"]) == (
        8_192,
        32_768,
        1_048_576,
        50_000,
        1_536,
    )
    assert parse_contexts([]) == ()


@pytest.mark.parametrize("text", ["long", "0", "-8k", "8g", "8 k tokens"])
def test_context_that_is_no_number_of_tokens_names_the_way_out(text: str):
    with pytest.raises(UsageError, match="write 8k, 128k, 1M or 50000"):
        parse_contexts([text])
