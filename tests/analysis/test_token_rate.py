"""Tokens a second, counted once where a rank and a scraper both say them."""

import clickhouse_connect
import numpy as np
import pytest

from moescope.analysis.store import open_store
from moescope.analysis.token_rate import read_token_rates
from moescope.schemas.attributes import Phase
from moescope.schemas.settings import Settings
from tests.analysis.known_workloads import KnownFleet, make_store

FLEET = KnownFleet(num_ranks=1, num_layers=1, minutes=2, phases=(Phase.DECODE,))
START_MS = (FLEET.end_s - 180) * 1000
"""A minute before the rank itself reports."""

SCRAPED_TOKENS = 79


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    dsn = make_store(tmp_path_factory.mktemp("rate") / "store", FLEET)
    client = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    for earlier in (0, 1):
        client.command(
            f"INSERT INTO token_count SELECT * REPLACE ('scraper' AS component, {SCRAPED_TOKENS} AS tokens, "
            f"time - INTERVAL {earlier} MINUTE AS time, end_time - INTERVAL {earlier} MINUTE AS end_time) "
            "FROM (SELECT * FROM token_count WHERE component = 'rank' ORDER BY time LIMIT 1)"
        )
    client.close()
    return dsn


def test_scraper_counts_in_the_minutes_without_the_rank_as_in_the_view(dsn):
    store = open_store(dsn)
    (rate,) = read_token_rates(store, FLEET.service, start_ms=START_MS, end_ms=FLEET.end_s * 1000)
    store.close()
    np.testing.assert_allclose(rate.per_second * 60, [SCRAPED_TOKENS, 7_919, 7_919])
    client = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    rows = client.query("SELECT tokens_per_second FROM tokens_per_second ORDER BY time").result_rows
    client.close()
    np.testing.assert_allclose(rate.per_second, np.ravel(rows))
