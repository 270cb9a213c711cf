import pytest

from moescope.planning.amounts import MoveLimit, parse_bytes, parse_move_limit, parse_slots
from moescope.schemas.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [("79B", 79), ("17.5MB", 17.5e6), ("80 GB", 80e9), ("40GiB", 40 * 2**30), ("13kB", 13e3), ("1TB", 1e12)],
)
def test_sizes_have_units(text, size):
    assert parse_bytes("--expert-bytes", text) == size


@pytest.mark.parametrize("text", ["80", "GB", "-1GB", "0GB", "80gb", "80 G", "1e9B", ""])
def test_what_is_no_size_is_refused_with_the_option_and_an_example(text):
    with pytest.raises(UsageError, match=r"--expert-bytes .*80GB"):
        parse_bytes("--expert-bytes", text)


def test_moves_are_limited_by_a_share_or_by_bytes():
    assert parse_move_limit("2%") == MoveLimit(share=0.02)
    assert parse_move_limit("0 %") == MoveLimit(share=0)
    assert parse_move_limit("40GB") == MoveLimit(size_bytes=40e9)


@pytest.mark.parametrize("text", ["2", "101%", "-1%", "some"])
def test_other_limits_are_refused_with_examples(text):
    with pytest.raises(UsageError, match=r"--max-moved .*2%.*40GB"):
        parse_move_limit(text)


def test_slots_are_one_number_for_each_rank():
    assert parse_slots("15,15,14", 3) == (15, 15, 14)
    for text in ("15,15", "15,x,14", "", "15,-1,14"):
        with pytest.raises(UsageError, match="--slots-per-rank"):
            parse_slots(text, 3)
