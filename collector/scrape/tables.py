"""The tables of all engines, in the order in which a page is tried."""

from __future__ import annotations

from typing import Final

from moescope.collector.scrape.dynamo import DYNAMO
from moescope.collector.scrape.page import Page
from moescope.collector.scrape.rows import EngineTable
from moescope.collector.scrape.sglang import SGLANG
from moescope.collector.scrape.vllm import VLLM
from moescope.schemas.errors import PageError

# Dynamo last: its workers' pages carry their engine's names, and those say more.
TABLES: Final = {table.engine: table for table in (VLLM, SGLANG, DYNAMO)}


def choose_table(page: Page, engine: str = "") -> EngineTable:
    """Return the table of a page, or that of ``engine`` if the page has any of its names.

    Raises:
        PageError: the page has no name of the engine, or of any.
    """
    for table in [TABLES[engine]] if engine else TABLES.values():
        if table.fits(page):
            return table
    wanted = engine or "vLLM, SGLang or Dynamo"
    raise PageError("no_engine", f"the page has no metric of {wanted}; is it the engine's own /metrics?")
