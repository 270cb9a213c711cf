"""Attribute values as the stock ClickHouse exporter writes them."""

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from moescope.server.attribute_text import attribute_text, attribute_texts, int_attribute
from tests.server.otlp_requests import any_value, key_values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("decode", "decode"),
        ("", ""),
        (17, "17"),
        (-(2**63), "-9223372036854775808"),
        (True, "true"),
        (False, "false"),
        (0.25, "0.25"),
        (1.0, "1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (-0.1, "-0.1"),
        (float("inf"), "json: unsupported value: +Inf"),
        (b"\x00\xff", "AP8="),
        ([1, "a", True, None, 0.5], '[1,"a",true,"",0.5]'),
        ({"b": 1, "a": {"c": [b"\x01"]}}, '{"a":{"c":["AQ=="]},"b":1}'),
        (["<&>"], '["\\u003c\\u0026\\u003e"]'),
    ],
)
def test_text_is_the_collectors(value, text):
    if isinstance(value, list):
        value = ["" if item is None else item for item in value]
    assert attribute_text(any_value(value)) == text


def test_unset_value_is_the_empty_string():
    assert attribute_text(AnyValue()) == ""


def test_last_value_of_a_repeated_key_counts():
    assert attribute_texts([*key_values({"a": "first"}), *key_values({"a": "last"})]) == {"a": "last"}


def test_lists_as_deep_as_protobuf_reads_them_have_a_text():
    value = any_value([])
    for _ in range(40):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    assert attribute_text(value) == "[" * 41 + "]" * 41


@pytest.mark.parametrize(("value", "found"), [(13, 13), ("13", None), (13.0, None), (True, None)])
def test_only_an_integer_is_an_integer(value, found):
    assert int_attribute(key_values({"moe.layer": value}), "moe.layer") == found


def test_missing_integer_is_none():
    assert int_attribute(key_values({"other": 1}), "moe.layer") is None
