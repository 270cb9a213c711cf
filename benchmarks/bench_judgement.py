"""What judging a fleet in the background costs: 64 ranks of K3, both phases, five minutes of load.

Reads an embedded store in this process, as the reports do. CPU time of the process, the engine's threads
included; the smallest of the repeats.

    python -m benchmarks.bench_judgement --ranks 64
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from moescope.analysis.fleet_judgement import judge_fleet
from moescope.analysis.store import open_store
from moescope.schemas.settings import Settings
from moescope.schemas.topology import MODEL_SHAPES
from tests.analysis.known_workloads import KnownFleet, make_store

REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--groups", type=int, default=1)
    arguments = parser.parse_args()
    shape = MODEL_SHAPES["kimi-k3"]
    fleets = [
        KnownFleet(
            ep_group=str(group),
            num_layers=shape.num_moe_layers,
            num_experts=shape.num_experts,
            top_k=shape.top_k,
            num_ranks=arguments.ranks,
            tokens_per_minute=79_000,
            sigma=0.5,
        )
        for group in range(arguments.groups)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(make_store(Path(folder) / "store", *fleets))
        judge_fleet(store, Settings(), now_ms=fleets[0].end_s * 1000)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again here
        memory_before = memory_mib("VmRSS")
        wall, cpu = [], []
        for _ in range(REPEATS):
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            judgement = judge_fleet(store, Settings(), now_ms=fleets[0].end_s * 1000)
            wall.append(time.perf_counter() - wall_start)
            cpu.append(time.process_time() - cpu_start)
        store.close()
    print(
        f"{len(judgement.balances)} scopes, {len(judgement.hot_experts)} hot experts listed: "
        f"{min(wall):.2f} s, {min(cpu):.2f} s of CPU; "
        f"memory of the process {memory_before:.0f} MiB between two, {memory_mib('VmHWM'):.0f} MiB at most"
    )


def memory_mib(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
