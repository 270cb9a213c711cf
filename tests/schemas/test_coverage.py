from pathlib import Path

import pytest

from moescope.schemas.coverage import COVERAGE, Coverage, Engine, Fill, coverage_of
from moescope.schemas.metrics import METRICS, Metric
from moescope.schemas.migrate import list_migrations

ROOT = Path(__file__).parents[2]
TEXTS = {migration.name: migration.text for migration in list_migrations()}


def test_every_metric_has_exactly_one_row():
    assert [row.metric for row in COVERAGE] == list(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_cell_is_empty_and_an_absence_has_a_reason(metric: Metric):
    cells = coverage_of(metric).cells

    assert set(cells) == set(Engine)
    for engine, cell in cells.items():
        assert cell.note or cell.fill not in {Fill.ABSENT, Fill.APPORTIONED}, engine
        assert len(cell.note) != 1, "a placeholder is no reason"


@pytest.mark.parametrize("row", COVERAGE, ids=lambda row: row.metric.name)
def test_every_view_exists_and_is_made_from_the_metric(row: Coverage):
    assert row.views
    for view in row.views:
        text = TEXTS.get(f"{view}_view") or TEXTS[f"{view}_table"]
        sources = text + "".join(
            TEXTS[name] for name in TEXTS if name.endswith("_mv") and f".{name.removesuffix('_mv')}" in text
        )
        assert row.metric.name in sources, view


@pytest.mark.parametrize("row", COVERAGE, ids=lambda row: row.metric.name)
def test_every_page_exists(row: Coverage):
    assert row.pages
    for page in row.pages:
        assert (ROOT / "dashboard" / "pages" / f"{page}.py").is_file(), page
