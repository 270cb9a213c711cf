"""SGLang's recordings, from their files to the views."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from moescope.collector.recordings.sglang import read_sglang
from tests.server_process import ServerProcess, free_ports
from tests.torch_files import torch_save

DUMPS = Path(__file__).parent.parent / "collector" / "recordings" / "dumps"


def import_sglang(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "moescope", "import", "sglang", *map(str, arguments)],
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def counted(folder: Path, phase: str | None = None) -> dict:
    """What the files say, in the shape of `expert_sums`."""
    sums: dict = {}
    for one in read_sglang([folder]).passes:
        layers = sums.setdefault(phase or one.phase.value, {})
        for layer, expert in np.argwhere(one.tokens_per_layer_expert):
            experts = layers.setdefault(int(layer), {})
            experts[int(expert)] = experts.get(int(expert), 0) + int(
                one.tokens_per_layer_expert[layer, expert]
            )
    return sums


def test_the_store_holds_what_the_files_say_however_often_they_are_imported(server: ServerProcess):
    at_that_time = ("--at", "now")
    runs = [
        import_sglang(
            DUMPS / "per_token", "--service", "once", "--endpoint", server.endpoint, "--json", *more
        )
        for more in ((), (), at_that_time)
    ]

    assert [done.returncode for done in runs] == [0, 0, 0], runs[0].stderr
    expected = counted(DUMPS / "per_token")
    report = json.loads(runs[0].stdout)
    assert report == json.loads(runs[1].stdout)
    assert (report["tokens"], report["assignments"]) == ({"prefill": 11, "decode": 28}, 1248)
    twice = {
        phase: {layer: {e: 2 * n for e, n in experts.items()} for layer, experts in layers.items()}
        for phase, layers in expected.items()
    }
    assert server.expert_sums("once") == twice, "the same command once more is nothing new; another time is"
    assert server.sql("SELECT sum(missing_assignments) FROM telemetry_health WHERE service = 'once'") == [
        ["0"]
    ]


def test_each_pass_has_its_window_and_each_rank_its_experts(server: ServerProcess):
    done = import_sglang(
        *(DUMPS / "per_pass", "--service", "passes", "--phase", "decode", "--at", "now", "--interval", "1s"),
        *("--top-k", 8, "--endpoint", server.endpoint),
    )

    assert done.returncode == 0, done.stderr
    assert "3 passes in 3 window(s)" in done.stdout
    assert "top-8" in done.stdout
    assert server.expert_sums("passes") == counted(DUMPS / "per_pass", "decode")
    tokens = server.sql(
        "SELECT sum(tokens) FROM token_count WHERE service = 'passes' GROUP BY end_time ORDER BY end_time"
    )
    assert tokens == [["11"], ["13"], ["15"]]
    loads = server.sql(
        "SELECT ep_rank, sum(load) FROM rank_load WHERE service = 'passes' GROUP BY ALL ORDER BY ALL"
    )
    by_expert = counted(DUMPS / "per_pass", "decode")["decode"]
    halves = [
        sum(n for experts in by_expert.values() for expert, n in experts.items() if expert // 16 == rank)
        for rank in range(2)
    ]
    assert [float(load) for _, load in loads] == halves


def test_warmup_rows_are_counted_as_excluded(server: ServerProcess, tmp_path: Path):
    ring = np.zeros((5, 4, 32), dtype=np.int32)
    for row, tokens in enumerate((13, 23, 79)):
        for layer in (1, 2, 3):
            for token in range(tokens):
                ring[row, layer, (token * 3 + layer + np.arange(4) * 7) % 32] += 1
    ring[3, 1:, 5:9] = 8192
    path = torch_save({"rank": 0, "logical_count": ring}, tmp_path / "dump.pt")

    done = import_sglang(
        *(path, "--service", "warm", "--phase", "decode", "--at", "now", "--endpoint", server.endpoint),
        *("--ep-size", "4", "--top-k", "4"),
    )

    assert done.returncode == 0, done.stderr
    assert "left out: 8,192 warmup tokens" in done.stdout
    assert "left out: 1 empty rows of the ring" in done.stdout
    assert "dense, without counts: layer 0" in done.stdout
    health = server.sql(
        "SELECT tokens, excluded_tokens, missing_assignments FROM telemetry_health "
        "WHERE service = 'warm' AND ep_rank = 0"
    )
    assert health == [["115", "8192", "0"]]
    assert server.sql("SELECT uniqExact(ep_rank) FROM expert_memory WHERE service = 'warm'") == [["4"]]


def test_wrong_use_ends_with_2_and_names_the_file():
    done = import_sglang(DUMPS / "p2l.pt", "--dry-run")

    assert (done.returncode, done.stdout) == (2, "")
    assert "p2l.pt is a placement, not a recording" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_an_endpoint_it_says_that_it_can_be_done_again():
    [port] = free_ports(1)
    done = import_sglang(
        *(DUMPS / "per_token", "--at", "now", "--endpoint", f"127.0.0.1:{port}"),
        MOESCOPE_FLUSH_TIMEOUT_SECONDS="0.1",
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "stored is not stored twice" in done.stderr
