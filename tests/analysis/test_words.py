"""Numbers as people read them."""

import pytest

from moescope.analysis import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (13, "13 B"), (1536, "1.50 KiB"), (79 * 2**30, "79.0 GiB"), (999.6 * 2**30, "0.98 TiB")],
)
def test_memory_is_counted_in_powers_of_1024(value, text):
    assert words.binary_bytes(value) == text


@pytest.mark.parametrize(("value", "text"), [(13, "13 B"), (7_919, "7.92 kB"), (2.3e10, "23.0 GB")])
def test_traffic_is_counted_in_powers_of_1000(value, text):
    assert words.si_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.2, "1.20 s"),
        (0.0234, "23.4 ms"),
        (0.000013, "13 µs"),
        (7e-9, "7 ns"),
    ],
)
def test_times_have_the_unit_that_reads_best(value, text):
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(158, "158 s"), (599, "599 s"), (3_080, "51.3 min"), (86_400, "24 h")]
)
def test_long_times_are_no_thousands_of_seconds(value, text):
    assert words.seconds(value) == text


@pytest.mark.parametrize("largest", [0.0, 13.0, 5e6, 79 * 2.0**30, 130 * 2.0**30, 1e15])
def test_scale_of_bytes_has_few_labels_and_covers_the_largest(largest):
    values, labels = words.binary_ticks(largest)
    assert 2 <= len(values) <= 7
    assert values[0] == 0
    assert values[-1] >= largest
    assert len(set(labels)) == len(labels)
