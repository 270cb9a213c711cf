import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from moescope.cli import app
from moescope.exporters.placement_files import read_placement_file
from moescope.schemas.errors import MoescopeError, UsageError
from moescope.schemas.report_schema import read_report_schema

DUMPS = Path(__file__).parents[1] / "collector" / "recordings" / "dumps"
RANDOM = np.random.default_rng(79)
COUNTS = RANDOM.poisson(RANDOM.lognormal(5, 0.8, (5, 3, 13)))


@pytest.fixture
def counts(tmp_path):
    file = tmp_path / "counts.json"
    file.write_text(json.dumps({"logical_count": COUNTS.sum(axis=0).tolist()}))
    return file


def run(*arguments):
    done = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, (SystemExit, MoescopeError)):
        raise done.exception
    return done


def fails(*arguments):
    done = run(*arguments)
    assert isinstance(done.exception, UsageError)
    assert done.stdout == ""
    return str(done.exception)


@pytest.mark.parametrize("windows", [False, True])
def test_json_is_the_map_and_a_ratio_for_each_layer_and_what_its_schema_says(tmp_path, windows):
    file = tmp_path / "counts.npy"
    np.save(file, COUNTS if windows else COUNTS.sum(axis=0))

    done = run("--from-counts", file, "--ranks", 4, "--redundant-experts", 2, "--format", "json")

    answer = json.loads(done.stdout)
    table = np.array(answer["physical_to_logical_map"])
    assert table.shape == (3, 16)
    assert (table == -1).sum() == 3  # 13 + 2 copies in 16 slots, in each of three layers
    assert [len(answer[name]) for name in ("ratio_before", "ratio_after", "ratio_bound")] == [3, 3, 3]
    assert (answer["backtest"] is not None) == windows
    jsonschema.Draft202012Validator(read_report_schema("plan")).validate(answer)


def test_every_part_of_the_answer_is_what_its_schema_says(tmp_path):
    file, current = tmp_path / "counts.npy", tmp_path / "now.json"
    np.save(file, COUNTS)
    common = ("--from-counts", file, "--ranks", 4, "--redundant-experts", 3)
    current.write_text(run(*common, "--format", "json").stdout)

    done = run(
        *common, "--current", current, "--uneven-split", "--expert-bytes", "1MB", "--nodes", 2, "--json"
    )

    answer = json.loads(done.stdout)
    assert None not in (answer[name] for name in ("memory", "backtest", "small_change", "uneven_split"))
    assert answer["moved"]["bytes"] == answer["moved"]["copies"] * 1e6
    assert answer["is_before_known"]
    jsonschema.Draft202012Validator(read_report_schema("plan")).validate(answer)


def test_the_text_begins_with_the_advice_and_fits_its_width(counts):
    done = run("--from-counts", counts, "--ranks", 4, "--redundant-experts", 3)

    lines = done.stdout.splitlines()
    assert lines[0].startswith("Apply it: max / mean over 4 ranks falls from ")
    assert max(map(len, lines)) <= 100
    assert "the most uneven one before" in done.stdout


@pytest.mark.parametrize("ranks", [1, 4, 13])
def test_a_picture_of_any_number_of_ranks_fits(counts, ranks):
    done = run("--from-counts", counts, "--ranks", ranks)

    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_an_engines_file_goes_to_stdout_and_how_to_start_it_to_stderr(counts, tmp_path, engine):
    done = run("--from-counts", counts, "--ranks", 4, "--redundant-experts", 2, "--format", engine)

    file = tmp_path / ("plan.yaml" if engine == "trtllm" else "plan.json")
    file.write_text(done.stdout)
    placement = read_placement_file(file, ep_size=4, num_experts=13, layers=[0, 1, 2])
    assert (placement.physical_to_logical_map >= 0).all()
    assert "Start the engine with: " in done.stderr


def test_with_output_the_report_is_on_stdout_and_the_file_is_the_engines(counts, tmp_path):
    file = tmp_path / "plan.yaml"

    done = run(
        *("--from-counts", counts, "--ranks", 4, "--redundant-experts", 3, "--first-layer", 3),
        *("--format", "trtllm", "--output", file, "--json"),
    )

    assert json.loads(done.stdout)["layers"] == [3, 4, 5]
    assert list(yaml.safe_load(file.read_text())["initial_global_assignments"]) == [3, 4, 5]
    assert str(file) in done.stderr


def test_dense_layers_of_a_recording_are_no_layers_for_vllm(tmp_path):
    file = tmp_path / "counts.npy"
    np.save(file, np.concatenate([np.zeros((1, 13), dtype=int), COUNTS[0]]))

    def layers_of(engine):
        done = run("--from-counts", file, "--ranks", 4, "--redundant-experts", 3, "--format", engine)
        return json.loads(done.stdout)

    assert layers_of("vllm")["layers"] == [1, 2, 3]
    assert len(layers_of("sglang")["physical_to_logical_map"]) == 4


def test_a_plan_can_be_the_current_placement_of_the_next(counts, tmp_path):
    file = tmp_path / "plan.json"
    common = ("--from-counts", counts, "--ranks", 4, "--redundant-experts", 3)
    first = json.loads(run(*common, "--format", "json").stdout)
    file.write_text(json.dumps(first))

    again = json.loads(run(*common, "--current", file, "--format", "json").stdout)

    assert again["ratio_before"] == pytest.approx(first["ratio_after"])
    assert again["moved"]["copies"] == 0
    assert again["advice"]["verdict"] == "leave it"


def test_sglangs_dump_is_planned_from_as_it_is():
    (dump,) = (DUMPS / "stat").glob("*.pt")

    done = run("--from-counts", dump, "--ranks", 2, "--format", "json")

    assert any("order of the ring" in note for note in json.loads(done.stdout)["notes"])


def test_errors_name_the_option_and_the_way_out(counts, tmp_path):
    from_counts = ("--from-counts", counts)
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"physical_to_logical_map": [[0, 1, 2, 0]]}')

    assert "say so with --ranks" in fails(*from_counts)
    assert "--service is for a store" in fails(*from_counts, "--ranks", 4, "--service", "x")
    until = ("--until", "2026-03-01T12:30:00Z")
    assert "--until is for a store" in fails(*from_counts, "--ranks", 4, *until)
    assert "use one of text, json, vllm" in fails(*from_counts, "--ranks", 4, "--format", "yaml")
    assert "none, hot, all" in fails(*from_counts, "--ranks", 4, "--cover-nodes", "some")
    assert "--output FILE" in fails(*from_counts, "--ranks", 4, "--format", "vllm", "--json")
    assert f"--current {wrong}: expert 3" in fails(*from_counts, "--ranks", 4, "--current", wrong)
    assert "--output" in fails(*from_counts, "--ranks", 4, "--output", tmp_path / "none" / "x.json")
    assert "4 ranks" in fails(*from_counts, "--ranks", 4, "--nodes", 3)
