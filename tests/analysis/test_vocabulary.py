"""Rows with words that this version does not know are left out, and the rest stays."""

import logging

import clickhouse_connect
import pytest

from moescope.analysis import report
from moescope.analysis.computed_tokens import TokenKind, read_computed_tokens
from moescope.analysis.expert_costs import read_expert_costs
from moescope.analysis.failover import read_failovers
from moescope.analysis.memory import read_pool_memory
from moescope.analysis.quality import read_quality
from moescope.analysis.span import cover, list_deployments
from moescope.analysis.store import open_store
from moescope.analysis.vocabulary import known_rows
from moescope.schemas.attributes import Component, Excluded, FailoverReason, MemoryPool, Phase
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet

FLEET = KnownFleet(num_ranks=3, num_layers=3, minutes=1)
SETTINGS = Settings()
WORD = "from_another_time"
COPIES = {
    "measurement": (
        f"'{WORD}' AS pool, '{WORD}' AS component, '{WORD}' AS instance",
        "pool != '' OR component = 'frontend'",
    ),
    "indexed_count": (f"'{WORD}' AS reason", "metric = 'moe.expert.failovers'"),
    "token_count": (f"'{WORD}' AS excluded", "excluded = 'padding'"),
}
"""By table: which columns get the word, in copies of which rows."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    dsn = known.make_telemetry_store(tmp_path_factory.mktemp("words") / "store", FLEET)
    client = clickhouse_connect.get_client(dsn=dsn, database=SETTINGS.database)
    for table, (columns, where) in COPIES.items():
        # The alias of a replaced column would be what a condition beside it sees.
        rows = f"(SELECT * FROM {table} WHERE {where})"
        client.command(f"INSERT INTO {table} SELECT * REPLACE ({columns}) FROM {rows}")
    client.close()
    opened = open_store(dsn)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def span(store):
    (deployment,) = list_deployments(store)
    return cover(deployment, 900.0, ep_group=FLEET.ep_group)


def test_rows_of_known_words_stay_and_the_others_are_logged(caplog):
    rows = [{"pool": "weights", "n": 13}, {"pool": WORD, "n": 23}, {"pool": "transfer", "n": 79}]
    with caplog.at_level(logging.WARNING, logger="moescope"):
        assert [row["n"] for row in known_rows(rows, "pool", MemoryPool)] == [13, 79]
    assert WORD in caplog.text


def test_pools_of_known_words_are_read(store, span):
    memory = read_pool_memory(store, span, SETTINGS)
    assert memory.pools == tuple(MemoryPool)
    assert memory.used_bytes[1, 1] == 7 * known.GIB


def test_processes_of_known_components_are_read(store):
    instances = read_quality(store).instances
    assert WORD not in {one.instance for one in instances}
    assert [one.component for one in instances].count(Component.RANK) == FLEET.num_ranks


def test_failovers_of_known_reasons_are_read(store, span):
    assert read_failovers(store, span).by_reason == {FailoverReason.RANK_DOWN: 7}
    costs = read_expert_costs(store, span, FLEET.first_layer + 2, known.FAILED_EXPERT)
    assert costs.failovers == {FailoverReason.RANK_DOWN: 7}


def test_tokens_of_known_kinds_are_read(store, span):
    totals = read_computed_tokens(store, span).totals
    assert totals[TokenKind(Phase.DECODE, Excluded.PADDING)] == 23 * FLEET.num_ranks


@pytest.mark.parametrize("name", ["hotspots", "imbalance", "latency", "memory", "traffic", "quality"])
def test_every_report_is_printed(store, name):
    options = {} if name == "quality" else {"window_seconds": 900.0}
    settings = {} if name in {"traffic", "quality"} else {"settings": SETTINGS}
    assert FLEET.service in getattr(report, name)(store, **options, **settings).to_text(160)
