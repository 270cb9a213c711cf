import re

import pytest

from moescope.schemas.attributes import DIRECTION, HW_ID, LAYER, PHASE
from moescope.schemas.metrics import METRICS, Kind, is_registered
from moescope.schemas.page_metrics import (
    JUDGED_METRICS,
    NOT_ON_A_PAGE,
    PAGE_FAMILIES,
    PAGE_ONLY_METRICS,
    Reading,
    label_name,
)


def test_every_row_of_the_registry_is_on_the_page_or_has_a_reason_not_to_be():
    shown = {family.source.name for family in PAGE_FAMILIES}

    assert shown | NOT_ON_A_PAGE.keys() == {metric.name for metric in METRICS}
    assert shown & NOT_ON_A_PAGE.keys() == set()


def test_names_on_the_page_are_unique_and_none_is_typed_twice():
    names = [family.metric.prometheus_name for family in PAGE_FAMILIES]
    names += [metric.prometheus_name for metric in JUDGED_METRICS]

    assert len(names) == len(set(names))
    assert not any(is_registered(metric.name) for metric in PAGE_ONLY_METRICS)


@pytest.mark.parametrize("metric", PAGE_ONLY_METRICS, ids=lambda metric: metric.name)
def test_name_that_only_the_page_has_follows_the_registrys_rules(metric):
    assert re.fullmatch(r"moe(\.[a-z][a-z0-9_]*)+", metric.name)
    assert metric.description.endswith(".")


@pytest.mark.parametrize("family", PAGE_FAMILIES, ids=lambda family: family.metric.prometheus_name)
def test_family_has_labels_of_its_source_and_adds_up_where_it_is_index_encoded(family):
    assert set(family.keys) <= set(family.source.attributes)
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in family.labels)
    assert not family.metric.is_index_encoded
    if family.source.is_index_encoded:
        assert family.reading in {Reading.SUM, Reading.BY_PEER}
        assert family.metric.kind is Kind.COUNTER
        assert LAYER not in family.keys, "a layer times its ranks and phases is too many series"


@pytest.mark.parametrize("family", PAGE_FAMILIES, ids=lambda family: family.metric.prometheus_name)
def test_nanoseconds_are_shown_in_seconds(family):
    assert family.metric.unit != "ns"
    assert family.scale == (1e-9 if family.source.unit == "ns" else 1)


@pytest.mark.parametrize(
    ("key", "label"), [(PHASE, "phase"), (DIRECTION, "direction"), (HW_ID, "gpu"), ("a.b", "a_b")]
)
def test_labels_are_short(key: str, label: str):
    assert label_name(key) == label
