"""A slow rank, from the simulated fleet through a server's store to the report; and what is none."""

import json

import jsonschema
import pytest

from moescope.schemas.report_schema import read_report_schema
from tests.program import run_moescope
from tests.server_process import ServerProcess


def simulate(server: ServerProcess, service: str, *arguments: str) -> None:
    done = run_moescope(
        *("simulate", "--endpoint", server.endpoint, "--service", service, "--model", "gpt-oss"),
        *("--ranks", "8", "--seed", "13", "--duration", "0s", *arguments),
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def fleets(server: ServerProcess) -> ServerProcess:
    simulate(server, "slow", "--backfill", "6m", "--scenario", "slow-rank")
    simulate(server, "was-slow", "--backfill", "9m", "--scenario", "slow-rank@0m-6m")
    simulate(server, "hot", "--backfill", "6m", "--scenario", "hot-expert")
    simulate(server, "ordinary", "--backfill", "6m")
    return server


def test_only_a_rank_that_is_slow_now_is_named(fleets: ServerProcess):
    answer = run_moescope("report", "stragglers", "--dsn", fleets.dsn, "--json")

    assert (answer.returncode, answer.stderr) == (1, "")
    printed = json.loads(answer.stdout)
    jsonschema.validate(printed, read_report_schema("stragglers"))
    named = {
        group["service"]: [(one["kind"], one["ep_ranks"]) for one in group["stragglers"]]
        for group in printed["groups"]
    }
    assert {kind for kind, _ in named.pop("hot")} <= {"overloaded_rank"}
    assert named == {"slow": [("slow_rank", [5])], "was-slow": [], "ordinary": []}


def test_report_of_one_fleet_succeeds_where_nobody_is_late(server: ServerProcess):
    simulate(server, "ordinary", "--backfill", "4m")

    answer = run_moescope("report", "stragglers", "--dsn", server.dsn, "--service", "ordinary")

    assert (answer.returncode, answer.stderr) == (0, "")
    assert "Nobody is waited for unusually long: 8 ranks in" in answer.stdout
    assert max(len(line) for line in answer.stdout.splitlines()) <= 100
