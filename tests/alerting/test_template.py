"""Texts of alerts, in the part of Go's templates that is taken; numbers as Prometheus writes them."""

import math

import pytest

from moescope.alerting.template import Facts, TemplateProblem, parse_template

FACTS = Facts(
    labels={"service": "kimi k3", "layer": "40"},
    info={"ranks": "5, 13"},
    value=0.7323,
    dashboard="http://localhost:8501",
)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain", "plain"),
        ("layer {{ $labels.layer }} at {{$value}}", "layer 40 at 0.7323"),
        ("{{ $value | humanizePercentage }}", "73.23%"),
        ("{{ humanizePercentage $value }}", "73.23%"),
        ("ranks {{ $info.ranks }}", "ranks 5, 13"),
        (
            "{{ $dashboard }}/x?service={{ $labels.service | urlquery }}",
            "http://localhost:8501/x?service=kimi+k3",
        ),
        ('{{ printf "%.2f of %s" $value $labels.layer }}', "0.73 of 40"),
        ('{{ $value | printf "%.1f" }}', "0.7"),
        ("{{ $labels.service | toUpper | urlquery }}", "KIMI+K3"),
        ("[{{ $labels.gone }}]", "[]"),
    ],
)
def test_texts(source: str, text: str):
    assert parse_template(source).render(FACTS) == text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("humanize", 1234567.0, "1.235M"),
        ("humanize", 0.02, "20m"),
        ("humanize", 0.0, "0"),
        ("humanize1024", 1610612736.0, "1.5Gi"),
        ("humanizeDuration", 0.0013, "1.3ms"),
        ("humanizeDuration", 59.0, "59s"),
        ("humanizeDuration", 93784.0, "1d 2h 3m 4s"),
        ("humanizeDuration", -61.0, "-1m 1s"),
        ("humanizeTimestamp", 1435065584.0, "2015-06-23 13:19:44 +0000 UTC"),
        ("humanizeTimestamp", 1e20, "1e+20"),
        ("humanizeTimestamp", math.nan, "NaN"),
        ("humanizePercentage", 0.25, "25%"),
        ('printf "%d"', 7.9, "7"),
        ('printf "%d"', math.nan, "NaN"),
        ('printf "%4d"', -math.inf, "-Inf"),
        ("humanize", math.inf, "+Inf"),
        ("humanizeDuration", math.nan, "NaN"),
    ],
)
def test_numbers(function: str, value: float, text: str):
    assert parse_template(f"{{{{ $value | {function} }}}}").render(Facts(value=value)) == text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{{ $value", "has no }}"),
        ("{{ if $value }}x{{ end }}", "conditions and loops are not taken"),
        ("{{ $value | }}", "has an empty part"),
        ("{{ $valeu }}", "is not understood at '$valeu'"),
        ("{{ $value | $labels.x }}", "is no function"),
        ("{{ $value humanize }}", "is no function"),
        ("{{ humanize }}", "takes one value, not 0"),
        ('{{ printf "%d %d" $value }}', "one for each value"),
        ("{{ printf $value }}", "printf begins with a format"),
        ("{{ humanizeDurations $value }}", "did you mean humanizeDuration?"),
    ],
)
def test_what_is_not_taken_is_told(source: str, told: str):
    with pytest.raises(TemplateProblem) as problem:
        parse_template(source)

    assert told in str(problem.value)
