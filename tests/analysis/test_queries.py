"""Every query and every view, against the store that the migrations make."""

import re

import clickhouse_connect
import pytest

from moescope.analysis.store import QUERIES_FOLDER
from moescope.schemas.migrate import MIGRATIONS_FOLDER
from moescope.schemas.settings import Settings
from tests.analysis.known_telemetry import FAILED_EXPERT, make_telemetry_store
from tests.analysis.known_workloads import KnownFleet

FLEET = KnownFleet(num_ranks=3, num_layers=3, num_experts=13, minutes=2)
VALUES = {
    "service": FLEET.service,
    "ep_group": FLEET.ep_group,
    "phase": "decode",
    "table": "expert_load_1m",
    "metrics": ["moe.step.duration"],
    "experts": FLEET.num_experts,
    "layer": FLEET.first_layer + 2,
    "expert": FAILED_EXPERT,
    "limit": 7,
    "hours": 6,
    "interval_seconds": 60,
    "step_seconds": 60,
    "start_ms": (FLEET.end_s - 120) * 1000,
    "end_ms": FLEET.end_s * 1000,
    "from_ms": (FLEET.end_s - 86_400) * 1000,
    "until_ms": FLEET.end_s * 1000,
    "window_ms": 60_000,
    "database": Settings().database,
}
COLUMN = re.compile(r"^-- ([a-z_0-9]+(?:, [a-z_0-9]+)*)  +\S", re.MULTILINE)


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    return make_telemetry_store(tmp_path_factory.mktemp("queries") / "store", FLEET)


@pytest.fixture(scope="module")
def client(dsn):
    opened = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    yield opened
    opened.close()


@pytest.mark.parametrize("path", sorted(QUERIES_FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_query_answers_with_the_columns_that_it_documents(client, path):
    text = path.read_text(encoding="utf-8")
    names = {match[1] for match in re.finditer(r"\{(\w+):", text)}
    table = client.query_arrow(text, parameters={name: VALUES[name] for name in names})
    header = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    documented = {name for match in COLUMN.finditer(header) for name in match[1].split(", ")}
    assert set(table.schema.names) <= documented
    assert table.num_rows


@pytest.mark.parametrize(
    "name", sorted(path.stem[5:-5] for path in MIGRATIONS_FOLDER.glob("*_view.sql")), ids=str
)
def test_view_has_rows_of_the_known_fleet(client, name):
    columns = client.query(f"SELECT * FROM {name} LIMIT 1")
    assert columns.result_rows
    assert "service" in columns.column_names
