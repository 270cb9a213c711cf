"""A readiness protocol as people write it, and what they are told where it is wrong."""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moescope.analysis.failover_impact import FailoverStrategy
from moescope.analysis.readiness_protocol import ExpertMetric, ImbalanceMeasure
from moescope.checking.protocol_file import read_protocol
from moescope.schemas.attributes import MemoryPool, Phase
from moescope.schemas.errors import ProtocolError
from moescope.schemas.report_schema import read_report_schema

ROOT = Path(__file__).resolve().parents[2]
PLACEMENT = "expert_placement: {total_experts: 896, workers: 8}\n"


def read(folder: Path, text: str | bytes):
    path = folder / "protocol.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_protocol(path)


def problems(folder: Path, text: str | bytes) -> list[str]:
    """Each problem as ``line:column: message``."""
    with pytest.raises(ProtocolError) as error:
        read(folder, text)
    assert error.value.exit_code == 2
    lines = str(error.value).splitlines()
    assert len(lines) > 1, lines
    return [line.strip().removeprefix(f"{folder}/protocol.yaml:") for line in lines[1:]]


def test_empty_sections_have_the_defaults(tmp_path: Path):
    protocol = read(
        tmp_path,
        PLACEMENT + "load_balance_check:\nexpert_metrics: {}\nmemory:\ngoodput:\n"
        "partial_failure:\n  worker_down:\n  worker_slow:\n  router_down:\n",
    )

    placement, balance = protocol.expert_placement, protocol.load_balance_check
    assert protocol.name == "protocol.yaml"
    assert protocol.window_seconds == 900
    assert (placement.experts_per_worker, placement.redundant_experts) == (112, 0)
    assert placement.failover_strategy is FailoverStrategy.REASSIGN
    assert (balance.measure, balance.acceptable_imbalance_ratio) == (ImbalanceMeasure.MAX_OVER_MEAN, 2.0)
    assert balance.phases == (Phase.PREFILL, Phase.DECODE)
    assert balance.hot_experts.max_worker_share == 0.5
    assert protocol.partial_failure.worker_down.max_traffic_share == 0
    assert protocol.partial_failure.worker_down.ranks is None
    assert protocol.partial_failure.worker_slow.factor == 2.0
    assert protocol.partial_failure.router_down.outage_seconds == 30
    assert protocol.expert_metrics.max_age_seconds[ExpertMetric.LATENCY] == 120
    assert protocol.expert_metrics.max_age_seconds[ExpertMetric.MEMORY] == 900
    assert protocol.memory.max_used_ratio[MemoryPool.KDA_STATE] == 0.95
    assert protocol.goodput.min_share == 0.95


def test_sections_that_are_left_out_are_not_checked(tmp_path: Path):
    protocol = read(tmp_path, "goodput:\n")

    assert protocol.expert_placement is None
    assert protocol.partial_failure is None


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("250ms", 0.25), ("1.5", 1.5), ("7", 7), ('"3 m"', 180)],
)
def test_spans_of_time_are_written_as_people_do(tmp_path: Path, written: str, seconds: float):
    assert read(tmp_path, f"window: {written}\ngoodput:\n").window_seconds == seconds


@pytest.mark.parametrize("written", ["0s", "0", "0.0h", "00ms", f"{'9' * 400}s"])
def test_a_span_of_nothing_or_without_end_is_none(tmp_path: Path, written: str):
    with pytest.raises(ProtocolError, match=r"window: .* is not a span of time as in 90s, 15m or 2h"):
        read(tmp_path, f"window: {written}\ngoodput:\n")


@pytest.mark.parametrize(("written", "share"), [("0.125", 0.125), ("12.5%", 0.125), ("7 %", 0.07), ("1", 1)])
def test_shares_are_parts_of_one_or_per_cent(tmp_path: Path, written: str, share: float):
    assert read(tmp_path, f"goodput:\n  min_share: {written}\n").goodput.min_share == pytest.approx(share)


def test_one_metric_may_have_an_age_of_its_own_or_be_let_off(tmp_path: Path):
    ages = read(
        tmp_path, "expert_metrics: {max_age: 79s, latency: 13m, failover_count: no, memory: true}\n"
    ).expert_metrics.max_age_seconds

    assert ages == {
        ExpertMetric.ACTIVATION_COUNT: 79,
        ExpertMetric.LATENCY: 780,
        ExpertMetric.MEMORY: 79,
    }


def test_the_other_measures_have_their_own_limit(tmp_path: Path):
    inverse = read(tmp_path, "load_balance_check: {measure: mean_over_max}\n").load_balance_check
    minus_1 = read(tmp_path, "load_balance_check: {measure: max_over_mean_minus_1}\n").load_balance_check

    assert (inverse.acceptable_imbalance_ratio, inverse.max_ratio) == (0.5, 2.0)
    assert (minus_1.acceptable_imbalance_ratio, minus_1.max_ratio) == (1.0, 2.0)


def test_every_problem_is_listed_with_its_line_and_column(tmp_path: Path):
    found = problems(
        tmp_path,
        """\
expert_placement:
  total_experts: 896
  worker: 8
  experts_per_worker: eight
  failover_strategy: reasign_to_redundant_worker
load_balance_check:
  acceptable_imbalance_ratio: 2.0
  acceptable_imbalance_ratio: 3.0
  hot_experts: {confidence: 1.0}
partial_failure:
  worker_down:
    max_traffic_share: 130%
    max_ttft: soon
  worker_slow: [5]
expert_metrics:
  max_age: 1:30
memmory: {}
""",
    )

    assert [line.split(": ")[0] for line in found] == [
        *("1:1", "3:3", "4:23", "5:22", "8:3", "9:29", "12:24", "13:15", "14:16", "16:12", "17:1"),
    ]
    text = "\n".join(found)
    assert "expert_placement.workers: is missing" in text
    assert "expert_placement.worker: there is no such key; did you mean workers?" in text
    assert "'eight' is not a whole number, 1 or more" in text
    assert "did you mean reassign_to_redundant_worker?" in text
    assert "stands twice, first in line 7" in text
    assert "'130%' is not a share from 0 to 1, or as in 12.5 %" in text
    assert "'soon' is not a span of time as in 90s, 15m or 2h" in text
    assert "did you mean memory?" in text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", "1:1", "the file is empty"),
        ("# a remark\n\n", "1:1", "the file is empty"),
        ("{}\n", "1:1", "the file says nothing"),
        ("goodput:\n\tmin_share: 1\n", "2:1", "a tab; YAML is indented with spaces"),
        ("goodput:\n---\nmemory:\n", "2:1", "a second document begins here"),
        (b"goodput:\n  # caf\xe9\n", "2:8", "no UTF-8"),
        (b"goodput: \x07\n", "1:10", "may not stand in YAML"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", "1:4", "anchors and aliases are not taken"),
        ("goodput: !!python/object/apply:os.system [ls]\n", "1:10", "tags are not taken"),
        ("memory: " + "[" * 4000, "1:24", "more than 16 levels"),
        ("memory: [1\n", "2:1", "no YAML"),
        ("just words\n", "1:1", "is not a mapping"),
        ("[goodput]\n", "1:1", "is not a mapping"),
        ("? [goodput]\n: 1\n", "1:3", "a key is a word"),
        ("version: 2\ngoodput:\n", "1:10", "this is version 1"),
        ("goodput: {min_share: .nan}\n", "1:22", "'.nan' is not a share"),
        ("goodput: {min_share: 1e999}\n", "1:22", "'1e999' is not a share"),
        ("goodput: {min_requests: 0x10}\n", "1:25", "'0x10' is not a whole number"),
        ("goodput: {min_requests: 1.5}\n", "1:25", "1.5 is not a whole number"),
        ("goodput: {min_requests: true}\n", "1:25", "true is not a whole number"),
        ("load_balance_check: {phases: []}\n", "1:30", "the list is empty"),
        ("load_balance_check: {phases: [decode, decode]}\n", "1:30", "stands twice"),
        ("load_balance_check: {phases: [decode, prefil]}\n", "1:39", "did you mean prefill?"),
        ("load_balance_check: {acceptable_imbalance_ratio: 0.7}\n", "1:50", "max / mean is 1 or more"),
        (
            "load_balance_check: {measure: mean_over_max, acceptable_imbalance_ratio: 2}\n",
            "1:74",
            "a max / mean of 2.0 is 0.5",
        ),
        ("memory: {requests_that_fit: {requests: 3}}\n", "1:10", "tokens: is missing"),
        ("memory:\n  pools: {weights: 1}\n", "2:11", "known are kda_state, mla_kv_cache, transfer"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str | bytes, line: str, words: str):
    (found,) = problems(tmp_path, text)

    assert found.startswith(f"{line}: ")
    assert words in found


def test_keys_that_contradict_each_other_are_all_named(tmp_path: Path):
    found = problems(
        tmp_path,
        "expert_placement:\n  total_experts: 896\n  workers: 8\n  experts_per_worker: 113\n"
        "partial_failure:\n  worker_down: {ranks: [0, 8]}\n  worker_slow: {rank: 9}\n",
    )

    assert found == [
        (
            "4:23: expert_placement.experts_per_worker: 8 workers of 113 experts hold 904, and a layer "
            "has 896; write 112, and if 8 of them are second copies: redundant_experts: 8"
        ),
        "6:28: partial_failure.worker_down.ranks[1]: there is no rank 8; 8 workers are the ranks 0 … 7",
        "7:23: partial_failure.worker_slow.rank: there is no rank 9; 8 workers are the ranks 0 … 7",
    ]


def test_thirteen_workers_hold_a_part_that_is_rounded_up(tmp_path: Path):
    text = "expert_placement: {total_experts: 896, workers: 13, experts_per_worker: 69}\n"

    assert read(tmp_path, text).expert_placement.experts_per_worker == 69


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path):
    (found,) = problems(tmp_path, "# " + "x" * 2**21)

    assert "more than 1048576 bytes" in found


@pytest.mark.parametrize("name", ["", "nowhere.yaml"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str):
    with pytest.raises(ProtocolError) as error:
        read_protocol(tmp_path / name)

    assert str(tmp_path / name) in str(error.value)


@given(st.binary(max_size=200) | st.text(alphabet="goodput:{}[]&*!\"'|>-? \n\t#%@`,0.é\x00", max_size=80))
def test_no_file_does_more_than_be_refused(tmp_path_factory, content: bytes | str):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with contextlib.suppress(ProtocolError):
        read_protocol(path)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "readiness").glob("*.yaml")), ids=lambda p: p.stem
)
def test_the_examples_are_protocols(path: Path):
    protocol = read_protocol(path)

    assert protocol.expert_placement.total_experts == 896
    assert protocol.expert_placement.workers == 8
    assert protocol.expert_placement.experts_per_worker == 112
    assert protocol.load_balance_check.acceptable_imbalance_ratio == 2.0


def keys(schema: dict, prefix: str = ""):
    """Every key with its schema, as the documentation has them."""
    for name, one in schema["properties"].items():
        if "properties" in one:
            yield from keys(one, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", one


def row(key: str, one: dict, definitions: dict) -> str:
    """The line of the documentation."""
    kind = definitions[one["$ref"].split("/")[-1]]["title"] if "$ref" in one else _choices(one)
    return f"| `{key}` | {kind} | {_default(one)} | {one['description']} |"


def _default(one: dict) -> str:
    default = one.get("default", "needed")
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    is_sentence = isinstance(default, str) and (" " in default or default in {"needed", "max_used_ratio"})
    return default if is_sentence or str(default).startswith("MOESCOPE") else f"`{default}`"


def _choices(one: dict) -> str:
    if "const" in one:
        return f"`{one['const']}`"
    if one.get("type") == "array":
        choices = one["items"].get("enum")
        return f"a list of {', '.join(f'`{item}`' for item in choices)}" if choices else "a list of ranks"
    return ", ".join(f"`{value}`" for value in one["enum"])


def test_every_key_stands_in_the_documentation_as_the_schema_has_it():
    schema = read_report_schema("readiness_protocol")
    text = (ROOT / "docs" / "readiness.md").read_text(encoding="utf-8")
    wanted = [row(key, one, schema["$defs"]) for key, one in keys(schema)]

    assert re.findall(r"^\| `[a-z_.]+` \|.*\|$", text, flags=re.MULTILINE) == wanted
