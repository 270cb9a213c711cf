from pathlib import Path

import pytest

from moescope.collector.scrape.tables import TABLES

PAGE = (Path(__file__).parents[3] / "docs" / "engines_without_a_hook.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("engine", TABLES)
def test_the_page_about_scraping_names_every_engine_and_its_table(engine: str):
    assert engine in PAGE.lower()
    assert f"{engine}.py" in PAGE
