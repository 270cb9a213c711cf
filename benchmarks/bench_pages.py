"""How long every page takes on a day of 64 ranks of K3, and whether the dashboard's memory stays flat.

Runs ``moescope serve``, ``moescope simulate --backfill 24h`` and ``streamlit run`` as processes of their own,
and looks at the pages over Streamlit's websocket, as a browser does (AppTest would leave out the wire and the
process whose memory is in question). Of every page:

- *first load*: a new tab, nothing read before;
- *refresh*: what the page's own timer runs every ten seconds, everything read anew;
- *again*: the same with what another viewer has just read.

Then one tab goes through all pages, each time at another moment of the day, so that no read is found in a
cache; the memory of the dashboard's process is a line over these refreshes. CPU seconds are of the dashboard
and of the server, and say more than the clock where other work shares the machine.

    python benchmarks/bench_pages.py [--quick] [--dsn http://…]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_simulate import free_ports, running_server
from machine import print_result
from page_session import Answer, PageSession

from moescope.analysis.span import list_deployments
from moescope.analysis.store import open_store
from moescope.dashboard.links import PAGES, Page

ROOT = Path(__file__).parents[1]
SCENARIOS = "slow-rank,hot-expert,kda-pressure"
WINDOWS = ("15m", "1h", "6h")
MOST_GROWTH_MIB = 20.0
"""Memory over a hundred refreshes once the caches are full, at most."""

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Size:
    """Of a run."""

    ranks: int
    backfill: str
    looks: int
    refreshes: int


FULL, QUICK = Size(64, "24h", 5, 500), Size(8, "15m", 1, 36)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small enough for every change")
    parser.add_argument("--dsn", help="a store that has data already; none is simulated then")
    parser.add_argument("--pages", help="only these, by comma: the names in their addresses")
    parser.add_argument("--refreshes", type=int, help="looks at the memory")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    names = arguments.pages.split(",") if arguments.pages else [address(page) for page in PAGES]
    with (
        tempfile.TemporaryDirectory(prefix="moescope-bench-") as folder,
        store(arguments.dsn, size, Path(folder)) as (dsn, servers),
        dashboard(dsn) as (port, app),
    ):
        rows = asyncio.run(time_pages(port, names, size.looks, [app, *servers]))
        memory = asyncio.run(watch_memory(port, names, arguments.refreshes or size.refreshes, dsn, app))
    report(rows, memory, "" if arguments.dsn else f"{size.backfill} of {size.ranks} ranks of Kimi K3")


def address(page: Page) -> str:
    return Path(page.file).stem


@contextmanager
def store(dsn: str | None, size: Size, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """The DSN of a store with a simulated fleet in it, and the processes that serve it."""
    if dsn is not None:
        yield dsn, []
        return
    ports = free_ports()
    with running_server(ports, folder / "data") as server:
        started = time.perf_counter()
        subprocess.run(
            [
                *(sys.executable, "-m", "moescope", "simulate", "--model", "kimi-k3", "--seed", "7"),
                *("--ranks", str(size.ranks), "--tensor-parallel", "8", "--scenario", SCENARIOS),
                *("--backfill", size.backfill, "--duration", "0s"),
                *("--endpoint", f"http://127.0.0.1:{ports['otlp-grpc']}"),
            ],
            check=True,
        )
        print(f"backfill: {time.perf_counter() - started:.0f} s", flush=True)
        yield f"http://127.0.0.1:{ports['sql']}/moescope", [server.pid]


@contextmanager
def dashboard(dsn: str) -> Iterator[tuple[int, int]]:
    """Port and process of a dashboard that reads a store."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    options = {"server.port": port, "server.address": "127.0.0.1", "server.headless": "true"}
    options |= {"browser.gatherUsageStats": "false", "server.fileWatcherType": "none"}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "streamlit", "run", str(ROOT / "dashboard" / "app.py")),
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        env={**os.environ, "MOESCOPE_DSN": dsn},
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit("the dashboard ended before it was ready")
                time.sleep(0.2)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def cpu_seconds(processes: list[int]) -> float:
    """CPU time of processes with their threads (Linux)."""
    fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in processes]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS


def resident_mib(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True)
class Timed:
    """Seconds by the clock and of CPU of one run, and what came of it."""

    answer: Answer
    cpu: float


async def time_pages(port: int, names: list[str], looks: int, processes: list[int]) -> list[dict]:
    async with PageSession(port) as first:  # imports, compilation: no page's own
        await first.open(names[0])
    return [await time_page(port, name, looks, processes) for name in names]


async def time_page(port: int, name: str, looks: int, processes: list[int]) -> dict:
    first, refresh, again = [], [], []

    async def timed(run) -> Timed:
        before = cpu_seconds(processes)
        answer = await run
        return Timed(answer, cpu_seconds(processes) - before)

    for _ in range(looks):
        async with PageSession(port) as tab:
            await tab.forget()
            first.append(await timed(tab.open(name)))
            again.append(await timed(tab.open(name)))
            # Only the parts that the page itself runs again.
            for fragment in dict.fromkeys(first[-1].answer.fragments):
                await tab.forget()
                refresh.append(await timed(tab.refresh(name, fragment)))
    row = {"page": name, "errors": sorted({text for one in first for text in one.answer.errors})}
    for what, runs in {"first_load": first, "refresh": refresh, "again": again}.items():
        if not runs:
            continue  # a page that does not refresh by itself
        seconds = [one.answer.seconds for one in runs]
        row[what] = {
            "p50_seconds": round(float(np.median(seconds)), 2),
            "max_seconds": round(max(seconds), 2),
            "cpu_seconds": round(float(np.median([one.cpu for one in runs])), 2),
        }
    row["kilobytes"] = round(max(one.answer.size for one in first) / 1024)
    print(line(row), flush=True)
    return row


def line(row: dict) -> str:
    parts = (
        f"{what.replace('_', ' ')} {one['p50_seconds']:.2f} s (max {one['max_seconds']:.2f}, "
        f"CPU {one['cpu_seconds']:.2f})"
        for what, one in row.items()
        if isinstance(one, dict)
    )
    errors = "".join(f"; shows an error: {text}" for text in row["errors"])
    return f"{row['page']:12} {', '.join(parts)}, {row['kilobytes']:,} kB{errors}"


async def watch_memory(port: int, names: list[str], refreshes: int, dsn: str, app: int) -> list[float]:
    """MiB of the dashboard after each refresh, every one of another page at another moment."""
    first_ms, end_ms = stored_between(dsn)
    memory = [resident_mib(app)]
    async with PageSession(port) as tab:
        for number in range(refreshes):
            until = end_ms - (end_ms - first_ms) * number // (refreshes + 1)
            query = urllib.parse.urlencode({"until": until, "window": WINDOWS[number % len(WINDOWS)]})
            await tab.open(names[number % len(names)], query)
            memory.append(resident_mib(app))
    return memory


def stored_between(dsn: str) -> tuple[int, int]:
    """When the stored data begins and ends, Unix milliseconds."""
    opened = open_store(dsn)
    try:
        stored = list_deployments(opened)
    finally:
        opened.close()
    return min(one.first_ms for one in stored), max(one.end_ms for one in stored)


def report(rows: list[dict], memory: list[float], fleet: str) -> None:
    warm = len(memory) // 3
    rest = memory[warm:]
    slope = float(np.polyfit(np.arange(len(rest)), rest, 1)[0]) * 100 if len(rest) > 1 else 0.0
    print(
        f"memory over {len(memory) - 1} refreshes: start {memory[0]:.0f} MiB, after {warm} {rest[0]:.0f} "
        f"MiB, end {rest[-1]:.0f} MiB, most {max(memory):.0f} MiB, {slope:+.1f} MiB in 100 refreshes"
    )
    print_result(
        "pages",
        slope,
        "MiB of the dashboard's memory in 100 refreshes, the first third left out",
        at_most=MOST_GROWTH_MIB,
        fleet=fleet,
        pages={row["page"]: row for row in rows},
        memory_mib={"start": memory[0], "warm": rest[0], "end": rest[-1], "most": max(memory)},
    )
    broken = [row["page"] for row in rows if row["errors"]]
    if broken:
        sys.exit(f"pages that show an error: {', '.join(broken)}")


if __name__ == "__main__":
    main()
