import pytest
import typer

from moescope.cli_arguments import parse_duration


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


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 weeks", "1h30m", "nan", "inf"])
def test_what_is_no_span_of_time_says_how_to_write_one(text: str):
    with pytest.raises(typer.BadParameter, match="write 90s, 15m, 6h or 2d"):
        parse_duration(text)
