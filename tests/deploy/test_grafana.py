"""Grafana's boards: generated, whole, and every query of them answered by the real store."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import clickhouse_connect
import pytest

from moescope.schemas.metrics import METRICS, Kind
from moescope.schemas.migrate import MIGRATIONS_FOLDER
from moescope.schemas.page_metrics import PAGE_FAMILIES, PAGE_ONLY_METRICS
from moescope.schemas.settings import Settings
from moescope.server.app import Server
from tests.analysis.known_telemetry import make_telemetry_store
from tests.analysis.known_workloads import KnownFleet
from tests.deploy.grafana_boards import (
    DEPLOY,
    as_clickhouse_gets_it,
    as_prometheus_gets_it,
    panels_of,
    read_board,
    targets_of,
    variables_of,
)
from tests.server_process import free_ports

FLEET = KnownFleet(num_ranks=3, num_layers=3, num_experts=13, minutes=2)
CHOICES = {"service": FLEET.service, "ep_group": FLEET.ep_group, "phase": "decode"}
FROM_S, TO_S = FLEET.end_s - 3600, FLEET.end_s + 60
EXPERTS, FLEET_BOARD = read_board("moescope-experts"), read_board("moescope-fleet")


@pytest.fixture(scope="module", params=["embedded", "http"])
def ask(request, tmp_path_factory):
    """Ask the migrated store in SQL, inside the process and over HTTP."""
    folder = tmp_path_factory.mktemp("grafana")
    dsn = make_telemetry_store(folder / "engine", FLEET)
    with contextlib.ExitStack() as opened:
        if request.param == "http":
            ports = {"otlp_grpc_port": 0, "otlp_http_port": 0, "sql_port": 0, "metrics_port": 0}
            settings = Settings(**ports, data_dir=str(folder), engine_memory_bytes=2 * 2**30)
            server = opened.enter_context(Server(settings))
            dsn = f"http://127.0.0.1:{server.ports.sql}/{settings.database}"
        client = opened.enter_context(
            contextlib.closing(clickhouse_connect.get_client(dsn=dsn, database=Settings().database))
        )
        yield lambda text: client.query(as_clickhouse_gets_it(text, CHOICES, FROM_S, TO_S))


def test_every_sql_panel_and_choice_answers(ask):
    for title, target in targets_of(EXPERTS):
        answer = ask(target["rawSql"])
        assert answer.result_rows, f"{title}: no rows"
        if target["queryType"] == "timeseries":
            assert answer.column_names[0] == "time", f"{title}: Grafana draws a series along its first column"
            kinds = [str(kind) for kind in answer.column_types]
            assert any("Float" in one or "Int" in one for one in kinds[1:]), f"{title}: no value in {kinds}"
    for name, query in variables_of(EXPERTS):
        assert (CHOICES[name],) in ask(query).result_rows


def test_every_documented_view_has_a_panel():
    text = " ".join(target["rawSql"] for _, target in targets_of(EXPERTS))
    shown = set(re.findall(r"\bFROM (\w+)", text))
    views = {path.stem[5:-5] for path in MIGRATIONS_FOLDER.glob("*_view.sql")}
    assert views == shown


def test_every_family_of_the_prometheus_page_has_a_panel_and_no_other_name_is_asked_for():
    on_page = {family.metric for family in PAGE_FAMILIES} | set(PAGE_ONLY_METRICS)
    series = {
        name
        for metric in on_page
        for name in ([f"{metric.prometheus_name}_bucket"] if metric.bounds else [metric.prometheus_name])
    }
    text = " ".join(target["expr"] for _, target in targets_of(FLEET_BOARD))
    asked = set(re.findall(r"\b(?:moe|gen_ai|hw)_\w+(?=[{\[])", text))
    assert asked == series


def test_no_panel_asks_for_an_index_encoded_metric():
    never = {
        one.name.replace(".", "_") for one in METRICS if one.is_index_encoded and one.kind is Kind.HISTOGRAM
    }
    for title, target in targets_of(FLEET_BOARD):
        assert not any(f"{name}_bucket" in target["expr"] for name in never), title


def test_panels_have_units_words_and_places_that_do_not_overlap():
    for board in (EXPERTS, FLEET_BOARD):
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert place["x"] + place["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells
        for panel in panels_of(board):
            assert panel["description"].endswith("."), panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"]


def test_boards_are_those_that_the_registry_makes():
    done = subprocess.run(
        [sys.executable, str(DEPLOY / "grafana" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def prometheus(tmp_path):
    """The address of a real Prometheus that scrapes nobody."""
    config = tmp_path / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    [port] = free_ports(1)
    process = subprocess.Popen(
        [
            *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        ]
    )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=5):
            break
        assert process.poll() is None, "Prometheus ended"
        time.sleep(0.1)
    yield url
    process.terminate()
    process.wait(30)


@pytest.mark.tools
def test_real_prometheus_answers_every_panel(prometheus):
    for title, target in targets_of(FLEET_BOARD):
        query = urllib.parse.urlencode({"query": as_prometheus_gets_it(target["expr"], CHOICES)})
        with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=30) as answer:
            assert json.load(answer)["status"] == "success", title
