"""Token rows by what they were."""

import numpy as np

from moescope.analysis.computed_tokens import TokenKind, arrange_tokens
from moescope.analysis.coverage import Coverage
from moescope.analysis.span import Span
from moescope.schemas.attributes import Excluded, Phase

SPAN = Coverage(Span("fleet", "", 0, 120_000, 90_000, 60), {})
DECODE, PADDING = TokenKind(Phase.DECODE, Excluded.NONE), TokenKind(None, Excluded.PADDING)


def test_excluded_rows_stay_apart_from_the_load():
    times = np.array([0, 60_000, 60_000]).astype("datetime64[ms]")
    tokens = arrange_tokens([DECODE, DECODE, PADDING], times, np.array([780, 79, 23]), SPAN)
    assert tokens.totals == {DECODE: 859, PADDING: 23}
    assert tokens.excluded_share == 23 / 882
    assert tokens.per_second[DECODE].tolist() == [13.0, 79 / 30]
    assert tokens.per_second[PADDING].tolist() == [0.0, 23 / 30]


def test_nothing_computed_has_no_share():
    none = arrange_tokens([], np.empty(0, "datetime64[ms]"), np.empty(0, np.int64), SPAN)
    assert none.excluded_share is None
    assert none.per_second == {}


def test_long_windows_are_not_taken_for_a_minute():
    coverage = Coverage(Span("fleet", "", 0, 600_000, 600_000, 60), {120_000: 300.0})
    times = np.array([120_000]).astype("datetime64[ms]")
    tokens = arrange_tokens([DECODE], times, np.array([23_700]), coverage)
    assert tokens.per_second[DECODE].tolist() == [79.0]
