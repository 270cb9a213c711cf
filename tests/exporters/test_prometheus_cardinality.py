"""A page has few series by construction: no fleet can make more than these."""

import pytest

from benchmarks.cardinality_prometheus import LIMIT, all_families, fill
from moescope.exporters.prometheus import render_page
from moescope.schemas.topology import MODEL_SHAPES


@pytest.mark.parametrize(("ranks", "deployments", "expected"), [(64, 1, 4_478), (128, 3, 24_678)])
def test_a_fleet_that_reports_everything_has_exactly_so_many_series(ranks, deployments, expected):
    shape = MODEL_SHAPES["kimi-k3"]
    families = all_families(fill(shape, ranks, deployments)[0], shape, ranks, deployments)

    assert sum(family.num_series for family in families) == expected
    assert expected < LIMIT * deployments * ranks / 64
    page = render_page(families)
    assert sum(not line.startswith(b"#") for line in page.splitlines()) == expected


def test_more_experts_make_no_more_series():
    shapes = [MODEL_SHAPES[name] for name in ("mixtral", "gpt-oss")]
    per_layer = [
        (sum(family.num_series for family in all_families(fill(shape, 2, 1)[0], shape, 2, 1)), shape)
        for shape in shapes
    ]

    (few, small), (many, large) = per_layer
    assert large.num_experts == 16 * small.num_experts
    assert many - few == 2 * 2 * (large.num_moe_layers - small.num_moe_layers)
