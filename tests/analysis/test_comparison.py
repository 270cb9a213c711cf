"""Two windows side by side: numbers, verdict, and sentences."""

import dataclasses

import numpy as np

from moescope.analysis.comparison import (
    Comparison,
    Quantity,
    Series,
    Subject,
    Unit,
    compare_numbers,
)
from moescope.analysis.comparison_load import compare_loads
from moescope.analysis.comparison_series import Change
from moescope.analysis.comparison_words import amount, difference, list_sentences, number_sentence, verdict
from moescope.schemas import metrics
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, assess_fleet

TTFT = Quantity("TTFT p99", Subject.LATENCY, Unit.SECONDS, metrics.TIME_TO_FIRST_TOKEN, -1)
GOOD = Quantity("Good requests", Subject.GOODPUT, Unit.SHARE, metrics.REQUESTS_FINISHED, 1)
TOKENS = Quantity("Tokens, decode", Subject.TOKENS, Unit.RATE, metrics.TOKENS, 0)
FLEET = KnownFleet(num_layers=3, num_experts=79, num_ranks=13, sigma=0.3)


def _series(level, steps=15, seed=7):
    values = level * (1 + 0.02 * np.random.default_rng(seed).standard_normal(steps))
    return Series(level, (60_000 * np.arange(steps)).astype("datetime64[ms]"), values)


def _comparison(of_a, of_b, load=None):
    return Comparison(None, None, compare_numbers(of_a, of_b), load)


def test_latency_that_rose_is_worse_and_goodput_that_rose_is_better():
    found = compare_numbers(
        {TTFT: _series(1.2), GOOD: _series(0.9)}, {TTFT: _series(0.4, seed=13), GOOD: _series(0.7, seed=13)}
    )
    assert [(one.is_worse, one.is_better) for one in found] == [(True, False), (False, True)]
    assert number_sentence(found[0]) == "TTFT p99 is 1.20 s, 400 ms in B: 3.00 ×."
    assert difference(found[0]) == "+800 ms"
    assert difference(found[1]) == "+20.0 points"


def test_tokens_are_neither_better_nor_worse():
    (one,) = compare_numbers({TOKENS: _series(790.0)}, {TOKENS: _series(130.0)})
    assert one.change is Change.HIGHER
    assert not one.is_worse
    assert not one.is_better
    assert verdict(_comparison({TOKENS: _series(790.0)}, {TOKENS: _series(130.0)})) == (
        "A is different from B in Tokens, decode."
    )


def test_number_that_only_one_window_has_is_not_judged():
    (one,) = compare_numbers({TTFT: _series(1.2)}, {})
    assert one.change is Change.TOO_LITTLE_DATA
    assert amount(one, one.b) == "–"
    assert difference(one) == "–"


def test_verdict_names_what_is_worse_and_what_is_better():
    of_a = {TTFT: _series(1.2), GOOD: _series(0.9)}
    of_b = {TTFT: _series(0.4, seed=13), GOOD: _series(0.7, seed=13)}
    assert verdict(_comparison(of_a, of_b)) == "A is worse than B in TTFT p99 and better in Good requests."
    assert verdict(_comparison({GOOD: of_a[GOOD]}, {GOOD: of_b[GOOD]})) == (
        "A is better than B in Good requests."
    )


def test_many_numbers_are_named_in_part():
    names = [dataclasses.replace(TTFT, name=f"L{at}") for at in range(5)]
    of_a, of_b = ({name: _series(level, seed=seed) for name in names} for level, seed in ((2, 1), (1, 2)))
    assert verdict(_comparison(of_a, of_b)) == "A is worse than B in L0, L1, L2 and 2 more."


def test_numbers_beyond_the_sixth_are_named_in_one_sentence():
    names = [dataclasses.replace(TTFT, name=f"L{at}") for at in range(8)]
    of_a, of_b = ({name: _series(level, seed=seed) for name in names} for level, seed in ((2, 1), (1, 2)))
    said = list(list_sentences(_comparison(of_a, of_b)))
    assert len(said) == 7
    assert said[-1] == "Also beyond noise: L6, L7."


def test_same_windows_are_the_same_within_noise():
    comparison = _comparison({TTFT: _series(1.2)}, {TTFT: _series(1.2, seed=13)})
    assert verdict(comparison) == "A and B are the same within noise."
    assert list(list_sentences(comparison)) == ["The same within noise: TTFT p99."]


def test_short_windows_cannot_be_told_apart():
    comparison = _comparison({TTFT: _series(1.2, steps=3)}, {TTFT: _series(0.4, steps=3)})
    assert verdict(comparison) == "There is too little data to tell A from B."
    assert "Longer windows" in next(list_sentences(comparison))


def test_load_that_moved_is_part_of_the_verdict():
    hot = dataclasses.replace(FLEET, hot={(Phase.DECODE, 2, 23): 30.0})
    load = compare_loads(assess_fleet(hot, Phase.DECODE), assess_fleet(FLEET, Phase.DECODE), Settings())
    comparison = _comparison({TTFT: _series(1.2)}, {TTFT: _series(1.2, seed=13)}, load)
    assert verdict(comparison) == (
        "A is not beyond noise of B in any number; it uses its experts differently in 1 of 3 layers."
    )
    said = " ".join(list_sentences(comparison))
    assert "Experts are used differently in 1 of 3 layers, most in layer 2" in said
    assert "most that of expert 23 of layer 2" in said
    assert "worse in 1 layer and better in 0; layer 2 differs most" in said
