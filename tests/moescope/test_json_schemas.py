"""What ``--json`` prints has a schema, and the schema is true."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.main import get_command

from moescope.analysis import report
from moescope.analysis.store import open_store
from moescope.cli import app
from moescope.doctor import run_doctor
from moescope.importing.run import import_sglang
from moescope.schemas.report_schema import read_report_schema, report_names
from moescope.schemas.settings import Settings
from moescope.scraping.run import scrape_pages
from tests.analysis import known_telemetry
from tests.analysis.known_workloads import KnownFleet
from tests.page_server import PageServer, page_server

__all__ = ["page_server"]

ROOT = Path(__file__).resolve().parents[2]
DUMPS = ROOT / "tests" / "collector" / "recordings" / "dumps"
NUMBERS = {"number", "integer"}


def commands_with_json(name: str, command: Any) -> Iterator[str]:
    for child_name, child in getattr(command, "commands", {}).items():
        yield from commands_with_json(f"{name} {child_name}".strip(), child)
    if any("--json" in option.opts for option in command.params):
        yield name


def schema_of_command(command: str) -> str:
    """All its words, or the last; the first where several commands give one answer (``import sglang``)."""
    words = command.split()
    if "_".join(words) in report_names():
        return "_".join(words)
    return words[0] if words[0] in report_names() else words[-1]


def subschemas(schema: Any) -> Iterator[dict]:
    if isinstance(schema, list):
        for item in schema:
            yield from subschemas(item)
    if isinstance(schema, dict):
        yield schema
        for item in schema.values():
            yield from subschemas(item)


def assert_valid(name: str, answer: object) -> None:
    schema = read_report_schema(name)
    as_printed = json.loads(json.dumps(answer, allow_nan=False))
    errors = [f"{error.json_path}: {error.message}" for error in _validator(schema).iter_errors(as_printed)]
    assert errors == []


def _validator(schema: dict) -> Draft202012Validator:
    return Draft202012Validator(schema)


@pytest.mark.parametrize("command", [*commands_with_json("", get_command(app))])
def test_every_command_that_prints_json_has_a_schema(command: str):
    assert schema_of_command(command) in report_names()


@pytest.mark.parametrize("name", report_names())
def test_a_schema_is_itself_valid(name: str):
    schema = read_report_schema(name)

    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("name", report_names())
def test_a_schema_lets_nothing_unknown_through_and_says_what_each_number_is(name: str):
    for one in subschemas(read_report_schema(name)):
        kinds = one.get("type", ())
        kinds = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
        if NUMBERS & kinds:
            assert one.get("description"), one
        if "properties" in one and isinstance(one["properties"], dict) and "object" in kinds:
            assert one["additionalProperties"] is not True
            assert "additionalProperties" in one, one["properties"].keys()


def test_the_page_of_the_answers_has_every_field_with_what_it_is():
    spec = importlib.util.spec_from_file_location("json_answers", ROOT / "docs" / "json_answers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.json_page()

    for name in {*report_names()} - {"readiness_protocol"}:
        schema = read_report_schema(name)
        assert f"## `{schema['title']}`" in page
        for key in schema["properties"]:
            assert f"| `{key}` |" in page, (name, key)
    untold = [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert [line for line in untold if "number" in line or "integer" in line] == []


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    fleet = KnownFleet(num_ranks=7, num_layers=3, minutes=2)
    folder = tmp_path_factory.mktemp("telemetry") / "store"
    opened = open_store(known_telemetry.make_telemetry_store(folder, fleet))
    yield opened
    opened.close()


REPORTS: dict[str, Callable[[Any], Any]] = {
    "hotspots": lambda store: report.hotspots(store, window_seconds=900, settings=Settings()),
    "imbalance": lambda store: report.imbalance(store, window_seconds=900, settings=Settings()),
    "latency": lambda store: report.latency(store, window_seconds=900, settings=Settings(rank_hour_price=3)),
    "traffic": lambda store: report.traffic(store, window_seconds=900),
    "memory": lambda store: report.memory(store, window_seconds=900, settings=Settings()),
    "quality": report.quality,
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_stored_data_is_what_its_schema_says(store, name: str):
    assert_valid(name, REPORTS[name](store).to_dict())


@pytest.mark.parametrize("name", REPORTS)
def test_an_empty_report_is_what_its_schema_says(store, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "query", lambda query, **_: _Nothing())

    assert_valid(name, REPORTS[name](store).to_dict())


class _Nothing:
    """The rows of a store in which nothing is."""

    def to_pylist(self) -> list:
        return []


def test_what_the_doctor_prints_is_what_its_schema_says(tmp_path: Path, capsys):
    run_doctor(dsn=f"chdb://{tmp_path}/none", as_json=True)

    assert_valid("doctor", json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("dump", ["per_token", "per_pass", "stat"])
def test_what_an_import_prints_is_what_its_schema_says(dump: str, capsys):
    import_sglang(
        [DUMPS / dump],
        service="s",
        ep_size=None,
        top_k=None if dump == "per_token" else 2,
        phase="decode",
        at="now",
        interval_seconds=None,
        keep_identical=False,
        endpoint=None,
        dry_run=True,
        as_json=True,
        progress=lambda *_: None,
    )

    assert_valid("import", json.loads(capsys.readouterr().out))


def test_what_a_scrape_prints_is_what_its_schema_says(page_server: PageServer, capsys):
    page_server.body = (
        "vllm:num_requests_running 13\n"
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        'vllm:time_to_first_token_seconds_bucket{le="1"} 7\n'
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 13\n'
        "vllm:time_to_first_token_seconds_sum 23\nvllm:time_to_first_token_seconds_count 13\n"
    )
    scrape_pages(
        [page_server.url, "127.0.0.1:1"],
        interval_seconds=10,
        engine="auto",
        service=None,
        role="mixed",
        tensor_parallel=1,
        endpoint=None,
        bearer_token_file=None,
        once=True,
        as_json=True,
    )

    answer = json.loads(capsys.readouterr().out)
    assert answer["pages"]
    assert answer["errors"]
    assert_valid("scrape", answer)
