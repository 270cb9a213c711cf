from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.expert_load import Row
from moescope.collector.hooks.sglang_batch import DECODING, is_synthetic, joined, segments_of


class Mode(SimpleNamespace):
    """SGLang's forward modes, by the questions that are asked of them."""

    def __init__(self, name):
        super().__init__(name=name)

    def is_idle(self):
        return self.name == "idle"

    def is_decode(self):
        return self.name == "decode"

    def is_target_verify(self):
        return self.name == "verify"

    def is_mixed(self):
        return self.name == "mixed"


def batch(mode, lengths, rids=None, **more):
    return SimpleNamespace(
        forward_mode=Mode(mode),
        input_ids=[0] * sum(lengths),
        batch_size=len(lengths),
        extend_seq_lens_cpu=lengths if mode in {"extend", "mixed"} else None,
        rids=[str(i) for i in range(len(lengths))] if rids is None else rids,
        **more,
    )


@pytest.mark.parametrize(
    ("made", "segments"),
    [
        (batch("decode", [1] * 7), ((Row.DECODE, 7),)),
        (batch("verify", [4] * 3), ((Row.DECODE, 12),)),
        (batch("extend", [13, 23]), ((Row.PREFILL, 36),)),
        (batch("idle", []), ()),
        (batch("extend", [13, 0, 23]), ((Row.PREFILL, 36),)),
        # Where nobody marked the batch: running requests come last, one token each.
        (batch("mixed", [13, 23, 1, 1]), ((Row.PREFILL, 36), (Row.DECODE, 2))),
        # Marked: the third is the last token of a prompt.
        (batch("mixed", [13, 23, 1, 1], **{DECODING: 1}), ((Row.PREFILL, 37), (Row.DECODE, 1))),
        # Ranks that decode while others prefill run an extend pass of one token a request.
        (batch("extend", [1, 1, 1], **{DECODING: 3}), ((Row.DECODE, 3),)),
    ],
)
def test_rows_are_what_the_batch_says(made, segments):
    assert segments_of(made) == segments


def test_a_health_check_is_nobodys_request():
    rids = ["HEALTH_CHECK_17", "a", "b"]

    assert segments_of(batch("decode", [1, 1, 1], rids)) == ((Row.DUMMY, 1), (Row.DECODE, 2))
    assert segments_of(batch("extend", [4, 13, 23], rids)) == ((Row.DUMMY, 4), (Row.PREFILL, 36))


def test_a_batch_without_requests_is_made_up_and_one_with_none_is_not():
    made_up = batch("decode", [1])
    made_up.rids = None

    assert is_synthetic(made_up)
    assert not is_synthetic(batch("idle", []))


@given(st.lists(st.tuples(st.sampled_from(Row), st.integers(0, 23))))
def test_joining_keeps_every_row_in_its_place(rows):
    def spelled(segments):
        return [kind for kind, n in segments for _ in range(n)]

    segments = joined(rows)

    assert spelled(segments) == spelled(rows)
    assert all(n for _, n in segments)
    assert all(one[0] is not other[0] for one, other in pairwise(segments))
