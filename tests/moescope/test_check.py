"""``moescope check`` on recordings, and its answer as text, JSON and JUnit XML."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from moescope.analysis.readiness import Readiness
from moescope.analysis.readiness_check import Bound, Check, CheckStatus, Section, Subject, Unit
from moescope.analysis.readiness_values import make_protocol
from moescope.checking.junit import as_junit
from moescope.checking.report import as_dict, as_text
from moescope.checking.run import run_check
from moescope.exporters.placement_files import render_placement
from moescope.schemas.errors import MoescopeError, RecordingError, UsageError
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from moescope.schemas.topology import every_layer_from, place_contiguously

DUMPS = Path(__file__).parent.parent / "collector" / "recordings" / "dumps"
RULES = """\
expert_placement: {total_experts: 64, workers: 8, failover_strategy: fallback_expert}
load_balance_check: {phases: [decode]}
partial_failure: {worker_down: {max_traffic_share: 40%}, worker_slow: {}, router_down: {max_ttft: 1m}}
expert_metrics: {}
memory: {}
goodput: {}
"""


def check(folder: Path, rules: str, counts: list[Path], capsys, **options) -> tuple[bool, dict]:
    (folder / "rules.yaml").write_text(rules)
    arguments = dict.fromkeys(("window_seconds", "service", "placement", "phase", "top_k", "junit"))
    is_ready = run_check(
        folder / "rules.yaml",
        Settings(dsn="chdb:///nowhere"),
        **(arguments | {"counts": counts, "is_strict": False, "as_json": True, "width": 100} | options),
    )
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, read_report_schema("check"))
    return is_ready, answer


def statuses(answer: dict) -> dict[str, str]:
    return {one["name"]: one["status"] for one in answer["checks"]}


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    """13 intervals of three layers; expert 47 of the second is busy."""
    rates = np.full((3, 64), 79.0)
    rates[1, 47] *= 40
    tokens = np.random.default_rng(13).poisson(np.broadcast_to(rates, (13, 3, 64)))
    path = tmp_path / "counts.json"
    path.write_text(json.dumps({"logical_count": tokens.tolist()}))
    return path


def test_a_recording_answers_for_the_load_and_says_what_it_cannot(tmp_path: Path, counts: Path, capsys):
    is_ready, answer = check(tmp_path, RULES, [counts], capsys, top_k=4)

    assert not is_ready
    assert statuses(answer) == {
        "total_experts": "passed",
        **dict.fromkeys(("workers", "experts_per_worker", "redundant_experts"), "not_checked"),
        "failover_strategy": "not_checked",
        "acceptable_imbalance_ratio": "failed",
        "hot_experts": "failed",
        "worker_down.max_traffic_share": "passed",
        **dict.fromkeys(("worker_slow", "router_down.max_ttft"), "not_checked"),
        **dict.fromkeys(("activation_count_per_minute", "latency", "memory"), "not_checked"),
        **dict.fromkeys(("failover_count", "max_used_ratio", "min_share"), "not_checked"),
    }
    assert "experts are taken in order on 8 workers" in answer["source"]
    (hot,) = [one for one in answer["checks"] if one["name"] == "hot_experts"]
    assert "expert 47 (rank 5)" in hot["evidence"]


def test_a_placement_beside_the_recording_is_judged(tmp_path: Path, counts: Path, capsys):
    placement = place_contiguously(every_layer_from("m", 0, 3, num_experts=64, top_k=4), 8)
    file = tmp_path / "placement.json"
    file.write_text(render_placement(placement, "sglang", range(3)))
    _, answer = check(tmp_path, RULES, [counts], capsys, placement=file)

    found = statuses(answer)
    assert found["workers"] == found["experts_per_worker"] == "passed"
    assert found["worker_down.max_traffic_share"] == "not_checked", "it needs the top-k"


def test_what_cannot_be_checked_fails_when_strict(tmp_path: Path, counts: Path, capsys):
    rules = "expert_placement: {total_experts: 64, workers: 8}\n"

    assert check(tmp_path, rules, [counts], capsys)[0]
    assert not check(tmp_path, rules, [counts], capsys, is_strict=True)[0]


@pytest.mark.parametrize("dump", ["per_token", "per_pass", "stat"])
def test_what_sglang_dumps_is_taken(tmp_path: Path, dump: str, capsys):
    _, answer = check(tmp_path, "load_balance_check: {}\n", [DUMPS / dump], capsys)

    assert answer["checks"]


def test_a_recording_that_says_nothing_is_refused(tmp_path: Path, capsys):
    empty = tmp_path / "zeros.json"
    empty.write_text(json.dumps({"logical_count": np.zeros((3, 64), dtype=int).tolist()}))

    with pytest.raises((RecordingError, UsageError)) as error:
        check(tmp_path, RULES, [empty], capsys)
    assert "empty" in str(error.value) or "no load" in str(error.value)


def test_options_of_a_recording_need_one(tmp_path: Path, capsys):
    with pytest.raises(UsageError) as error:
        check(tmp_path, RULES, [], capsys, top_k=3)
    assert "--from-counts" in str(error.value)


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path, capsys):
    with pytest.raises(MoescopeError) as error:
        check(tmp_path, RULES, [], capsys, junit=tmp_path / "none" / "report.xml")
    assert f"there is no folder {tmp_path}/none" in str(error.value)


def answer_of(*checks: Check, strict: bool = False) -> Readiness:
    return Readiness(make_protocol({"name": "known\x00 \ud800 & <rules>"}), "source \x1b", checks, strict)


SLOW = Subject(Section.PARTIAL_FAILURE, "worker_slow").compare(
    2.5, Bound.AT_MOST, 1.5, Unit.TIMES, evidence="Rank 5 is slow.\x08", action="Look at it."
)
GOOD = Subject(Section.GOODPUT, "min_share").compare(
    0.79, Bound.AT_LEAST, 0.7, Unit.SHARE, evidence="79 of 100.", action="-"
)
BAD = Subject(Section.GOODPUT, "min_share").compare(
    0.13, Bound.AT_LEAST, 0.7, Unit.SHARE, evidence="13 of 100.", action="See why."
)
OPEN = Subject(Section.MEMORY, "max_used_ratio", "EP group 0").not_checked("Nobody says & <why>.")


def test_junit_has_a_suite_a_section_and_nothing_that_xml_forbids():
    root = ET.fromstring(as_junit(answer_of(SLOW, OPEN, GOOD)))
    suites = {suite.attrib["name"]: suite for suite in root}

    assert {name: root.attrib[name] for name in ("tests", "failures", "skipped", "errors")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
        "errors": "0",
    }
    assert list(suites) == ["partial_failure", "memory", "goodput"]
    case = suites["partial_failure"].find("testcase")
    assert case.attrib["classname"] == "moescope.partial_failure"
    failure = case.find("failure")
    assert failure.attrib["message"] == "Rank 5 is slow."
    assert failure.text == "Rank 5 is slow.\nLook at it."
    values = {one.attrib["name"]: one.attrib["value"] for one in case.find("properties")}
    assert values == {"measured": "2.5", "limit": "at most 1.5", "unit": "×"}
    skipped = suites["memory"].find("testcase")
    assert skipped.attrib["name"] == "max_used_ratio [EP group 0]"
    assert skipped.find("skipped").attrib["message"] == "Nobody says & <why>."
    assert suites["goodput"].find("testcase").find("failure") is None


def test_junit_fails_what_was_not_checked_when_strict():
    root = ET.fromstring(as_junit(answer_of(OPEN, GOOD, strict=True)))

    assert (root.attrib["failures"], root.attrib["skipped"]) == ("1", "0")


def test_text_says_what_is_wrong_now_first_and_is_no_wider_than_asked():
    down = Subject(Section.PARTIAL_FAILURE, "worker_down.max_traffic_share").compare(
        *(0.5, Bound.AT_MOST, 0.0, Unit.SHARE), evidence="word " * 79, action="do " * 79
    )
    text = as_text(answer_of(down, SLOW, OPEN, GOOD), 72)

    assert text.startswith("NOT READY")
    order = [text.index(word) for word in ("worker_slow", "worker_down", "max_used_ratio", "goodput")]
    assert order == sorted(order)
    assert "worker_slow: 2.50 ×, at most 1.50 × is asked for" in " ".join(text.split())
    assert max(map(len, text.splitlines()[1:])) <= 72
    assert not [sign for sign in "\x00\x08\x1b" if sign in text]


def test_what_grows_without_end_is_said_and_is_no_number_of_json():
    delay = Subject(Section.PARTIAL_FAILURE, "worker_slow.max_ttft").compare(
        *(float("inf"), Bound.AT_MOST, 2.0, Unit.SECONDS), evidence="Rank 5.", action="Do."
    )

    assert "without end, at most 2 s is asked for" in as_text(answer_of(delay), 100)
    assert as_dict(answer_of(delay))["checks"][0]["measured"] is None
    assert b'value="inf"' in as_junit(answer_of(delay))


def test_checks_of_one_reason_say_it_once():
    two = [
        Subject(Section.EXPERT_METRICS, name).not_checked("Nobody says.") for name in ("latency", "memory")
    ]

    assert as_text(answer_of(*two), 100).count("Nobody says.") == 1


def test_colour_is_only_where_it_is_asked_for():
    assert "\033[" in as_text(answer_of(GOOD), 100, has_colour=True)


@pytest.mark.parametrize("checks", [(), (OPEN,), (GOOD,), (BAD, SLOW, OPEN)])
@pytest.mark.parametrize("strict", [False, True])
def test_the_answer_is_what_its_schema_says(checks: tuple[Check, ...], strict: bool):
    answer = as_dict(answer_of(*checks, strict=strict))

    jsonschema.validate(answer, read_report_schema("check"))
    assert answer["ready"] is (checks == (GOOD,) or (checks == () and False))
    assert answer["failed"] == sum(one.status is CheckStatus.FAILED for one in checks)


def test_every_unit_and_status_is_in_the_schema():
    one = read_report_schema("check")["properties"]["checks"]["items"]["properties"]

    assert one["unit"]["enum"] == [*(unit.value for unit in Unit), None]
    assert one["section"]["enum"] == [section.value for section in Section]
    assert {*one["status"]["enum"]} == {status.value.replace(" ", "_") for status in CheckStatus}


def test_a_wrong_protocol_ends_with_2_and_every_line_that_is_wrong(tmp_path: Path):
    (tmp_path / "rules.yaml").write_text("memmory: {}\ngoodput: {min_share: 2}\n")
    done = subprocess.run(
        [sys.executable, "-m", "moescope", "check", str(tmp_path / "rules.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}/rules.yaml:1:1: memmory: there is no such key; did you mean memory?" in done.stderr
    assert f"{tmp_path}/rules.yaml:2:22: goodput.min_share: 2 is not a share" in done.stderr
    assert "Traceback" not in done.stderr
