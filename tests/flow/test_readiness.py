"""The examples of a readiness protocol against two fleets of 8 workers: one well, one in trouble."""

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest

from moescope.schemas.report_schema import read_report_schema
from tests.program import run_moescope
from tests.server_process import ServerProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "readiness"
WITH_COPIES, WITHOUT = EXAMPLES / "kimi_k3_8_workers.yaml", EXAMPLES / "kimi_k3_without_spares.yaml"


def moescope(*arguments: str) -> subprocess.CompletedProcess:
    return run_moescope(*arguments, timeout=200, NO_COLOR="1", COLUMNS="100")


@pytest.fixture(scope="module")
def fleets(tmp_path_factory):
    """`well` has every expert twice; `trouble` has each once, a hot expert and a slow rank."""
    server = ServerProcess(tmp_path_factory.mktemp("readiness") / "data").start()
    common = ("--model", "kimi-k3", "--ranks", "8", "--duration", "0s", "--endpoint", server.endpoint)
    for arguments in (
        ("--service", "well", "--redundant-experts", "896"),
        ("--service", "trouble", "--scenario", "hot-expert,slow-rank"),
    ):
        done = moescope("simulate", *common, "--backfill", "6m", *arguments)
        assert done.returncode == 0, done.stderr
    yield server
    server.stop()


def check(server: ServerProcess, file: Path, service: str, *options: str) -> tuple[int, dict]:
    done = moescope("check", str(file), "--dsn", server.dsn, "--service", service, "--json", *options)
    assert done.returncode in {0, 1}, done.stderr
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, read_report_schema("check"))
    return done.returncode, answer


def failed(answer: dict) -> dict[str, dict]:
    return {one["name"]: one for one in answer["checks"] if one["status"] == "failed"}


def test_a_fleet_without_trouble_is_ready(fleets: ServerProcess, tmp_path: Path):
    junit = tmp_path / "readiness.xml"
    code, answer = check(fleets, WITH_COPIES, "well", "--junit", str(junit))

    assert failed(answer) == {}
    assert (code, answer["ready"]) == (0, True)
    unknown = {one["name"] for one in answer["checks"] if one["status"] == "not_checked"}
    assert unknown <= {"failover_count"}, "nothing failed over, and then nothing is said of it"
    root = ET.fromstring(junit.read_bytes())
    assert int(root.attrib["tests"]) == len(answer["checks"])
    assert root.attrib["failures"] == "0"


def test_a_fleet_in_trouble_is_not_and_the_planted_expert_and_rank_are_named(fleets: ServerProcess):
    code, answer = check(fleets, WITHOUT, "trouble")
    found = failed(answer)

    assert (code, answer["ready"]) == (1, False)
    assert "nothing to reassign tokens to" in found["failover_strategy"]["evidence"]
    assert "layer 40, expert 347" in found["hot_experts"]["evidence"].lower()
    assert found["worker_slow"]["evidence"].startswith("Rank 5 is slow")
    lost = found["worker_down.max_traffic_share"]
    assert lost["measured"] == pytest.approx(1 / 8, abs=0.03)
    assert "112 of 896 experts" in lost["evidence"]
    assert found["min_share"]["section"] == "goodput"


def test_the_text_can_be_acted_on_at_100_columns(fleets: ServerProcess):
    done = moescope("check", str(WITHOUT), "--dsn", fleets.dsn, "--service", "trouble")

    assert done.returncode == 1
    assert done.stdout.startswith("NOT READY")
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\033" not in done.stdout
    assert "→ Give expert 347 of layer 40 more copies" in done.stdout


def test_a_protocol_for_second_copies_says_that_there_are_none(fleets: ServerProcess):
    found = failed(check(fleets, WITH_COPIES, "trouble")[1])

    assert found["redundant_experts"]["measured"] == 0
    assert found["experts_per_worker"]["measured"] == 112


def test_a_service_has_to_be_named_where_there_are_several(fleets: ServerProcess):
    several = moescope("check", str(WITHOUT), "--dsn", fleets.dsn)
    unknown = moescope("check", str(WITHOUT), "--dsn", fleets.dsn, "--service", "nobody")

    assert (several.returncode, unknown.returncode) == (2, 2)
    assert "--service: trouble, well" in several.stderr
    assert "nothing is stored of the service 'nobody'; stored are: trouble, well" in unknown.stderr
