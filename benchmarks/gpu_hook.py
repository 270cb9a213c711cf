"""What recording costs on a GPU, per MoE layer, against the experts' own computation. It takes only torch.

Kimi K3's size: 92 MoE layers, 896 experts, top-16, counted by expert and by peer rank of a group of 64. Each
batch size is recorded layer after layer, launched eagerly and replayed from a CUDA graph. Beside it stands
one layer of experts as one rank of 64 computes it: its 14 of 896, latent width 3584, intermediate 3072,
bfloat16, the rows evenly divided, as two batched matrix products with SwiGLU between them.

`ratio` is the worst over the batch sizes of (experts + recording) / experts, both replayed. The script also
proves that nothing waits for the device: torch refuses every synchronising call while a pass is recorded, and
the profiler's trace of one is searched for synchronisation and for copies to the host. In the end what was
counted is compared with what was handed over.

Without CUDA it exits with 2. `--device cpu` is a dry run at a toy size: it shows that the script works, its
figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from machine import describe_machine

from moescope.collector.expert_load import Row
from moescope.collector.expert_load_torch import TorchExpertCounter
from moescope.collector.rank_io import find_peers
from moescope.collector.rank_io_torch import TorchRankIoCounter
from moescope.schemas.topology import MODEL_SHAPES, ModelShape, every_layer_from, place_contiguously

DECODE_SIZES = (1, 4, 16, 64, 128, 256, 512)
PREFILL_SIZES = (2048, 8192)
FORBIDDEN = (
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
    *("Memcpy DtoH", "aten::item", "aten::_local_scalar_dense", "aten::nonzero"),
)
REPEATS = 7


@dataclass(frozen=True)
class Size:
    """What is measured: the model, the group, and one rank's experts."""

    shape: ModelShape
    ranks: int
    local_experts: int
    width: int
    intermediate: int
    tokens: tuple[int, ...]


K3 = Size(MODEL_SHAPES["kimi-k3"], 64, 14, 3584, 3072, DECODE_SIZES + PREFILL_SIZES)
TOY = Size(every_layer_from("toy", 0, 3, num_experts=32, top_k=4), 8, 4, 64, 32, (1, 13, 79))


class Experts:
    """One layer's experts of one rank, all at once."""

    def __init__(self, size: Size, device: str) -> None:
        experts, width, inner = size.local_experts, size.width, size.intermediate
        new = {"dtype": torch.bfloat16, "device": device}
        self._w13 = torch.randn(experts, width, 2 * inner, **new)
        self._w2 = torch.randn(experts, inner, width, **new)
        self._size = size

    def on(self, tokens: int) -> Callable[[], Any]:
        """The computation of a layer in which every rank has so many tokens."""
        size = self._size
        rows = -(-tokens * size.shape.top_k // size.local_experts)
        hidden = torch.randn(
            size.local_experts, rows, size.width, dtype=torch.bfloat16, device=self._w2.device
        )

        def compute() -> Any:
            gate, up = torch.bmm(hidden, self._w13).chunk(2, dim=-1)
            return torch.bmm(torch.nn.functional.silu(gate) * up, self._w2)

        return compute


class Recording:
    """A pass over all layers, for one counter."""

    def __init__(self, counter: TorchExpertCounter, size: Size) -> None:
        self.counter = counter
        self._size = size
        self.assignments_per_layer = 0

    def of(self, tokens: int, row: Row) -> Callable[[], None]:
        """Record a pass of so many tokens, all of one kind."""
        shape, device = self._size.shape, self.counter.device
        ids = torch.rand(tokens, shape.num_experts, device=device).topk(shape.top_k).indices.to(torch.int32)
        self.counter.set_layout([(row, tokens)])

        def record() -> None:
            for ordinal in range(shape.num_moe_layers):
                self.counter.add(ordinal, ids)

        return record


class Cuda:
    """Timing on the device."""

    def graph_of(self, work: Callable[[], Any]) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def microseconds(self, work: Callable[[], Any], times: int) -> float:
        """Of one call, the median of some series."""
        work()
        series = []
        for _ in range(REPEATS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(times):
                work()
            end.record()
            end.synchronize()
            series.append(start.elapsed_time(end) * 1000 / times)
        return statistics.median(series)

    def name(self) -> str:
        return str(torch.cuda.get_device_name())

    def prove_that_nothing_waits(self, record: Callable[[], None], replay: Callable[[], None]) -> int:
        """Returns: events of the trace that were looked at."""
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            record()
            replay()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            with torch.profiler.record_function("moescope pass"):
                record()
                replay()
            # Ends the trace outside of what is looked at.
            torch.cuda.synchronize()
        events = profile.events()
        spans = [event.time_range for event in events if event.name == "moescope pass"]
        seen = [
            event.name
            for event in events
            if "DtoH" in event.name
            or any(s.start <= event.time_range.start and event.time_range.end <= s.end for s in spans)
        ]
        found = sorted({name for name in seen for word in FORBIDDEN if word in name})
        assert seen, "the profiler saw nothing of the pass"
        assert not found, f"recording waits for the device: {found}"
        return len(seen)


class Dry:
    """The same on the host, as a rehearsal."""

    def graph_of(self, work: Callable[[], Any]) -> Callable[[], Any]:
        return work

    def microseconds(self, work: Callable[[], Any], times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - start) * 1e6 / times

    def name(self) -> str:
        return "dry run on the CPU"

    def prove_that_nothing_waits(self, record: Callable[[], None], replay: Callable[[], None]) -> int:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            record()
            replay()
        seen = [event.name for event in profile.events()]
        found = sorted({name for name in seen for word in FORBIDDEN if word in name})
        assert not found, f"recording waits for the device: {found}"
        return len(seen)


def measure(size: Size, device: str, machine: Cuda | Dry) -> tuple[list[dict[str, Any]], int]:
    """One row per batch size; and how many events of the trace were searched."""
    shape = size.shape
    layers, width, most = shape.num_moe_layers, shape.num_experts, max(size.tokens)
    with_ranks = TorchRankIoCounter(layers, width, most, device, ep_size=size.ranks)
    with_ranks.set_peers(find_peers(place_contiguously(shape, size.ranks), 0))
    both, plain = (
        Recording(with_ranks, size),
        Recording(TorchExpertCounter(layers, width, most, device), size),
    )
    experts = Experts(size, device)
    rows, events = [], 0
    for tokens in size.tokens:
        row = Row.PREFILL if tokens in PREFILL_SIZES else Row.DECODE
        compute, times = experts.on(tokens), 3 if tokens in PREFILL_SIZES else 10
        record, record_plain = both.of(tokens, row), plain.of(tokens, row)
        replay, replay_plain = machine.graph_of(record), machine.graph_of(record_plain)
        events = events or machine.prove_that_nothing_waits(record, replay)
        figures = {
            "eager": machine.microseconds(record, times) / layers,
            "replayed": machine.microseconds(replay, times) / layers,
            "replayed_without_ranks": machine.microseconds(replay_plain, times) / layers,
            "experts": machine.microseconds(machine.graph_of(compute), 5 * times),
        }
        rounded = {f"{key}_us": round(value, 2) for key, value in figures.items()}
        ratio = 1 + figures["replayed"] / figures["experts"]
        rows.append({"tokens": tokens, "phase": row.name.lower(), **rounded, "ratio": round(ratio, 4)})
    check_counts(with_ranks, shape)
    return rows, events


def check_counts(counter: TorchRankIoCounter, shape: ModelShape) -> None:
    """A counter that counts nothing costs nothing: refuse to report that."""
    counts, rank_tokens = counter.read(), counter.read_rank_tokens()
    per_layer = counts[:, :, 1:-1].sum(axis=(1, 2))
    assert (per_layer == per_layer[0]).all(), "the layers of a pass were not counted alike"
    assert per_layer[0] > 0, "nothing was counted"
    tokens = per_layer.sum() // shape.top_k
    assert tokens <= rank_tokens.sum() <= tokens * shape.top_k, "tokens by rank do not fit the assignments"


def print_table(rows: list[dict[str, Any]]) -> None:
    print("tokens  phase    eager µs  replayed µs  without ranks µs  experts µs  ratio")
    for row in rows:
        print(
            f"{row['tokens']:6}  {row['phase']:7}  {row['eager_us']:8.2f}  {row['replayed_us']:11.2f}  "
            f"{row['replayed_without_ranks_us']:16.2f}  {row['experts_us']:10.2f}  {row['ratio']:.4f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run, toy size")
    arguments = parser.parse_args()
    is_dry = arguments.device == "cpu"
    if not is_dry and not torch.cuda.is_available():
        print("There is no CUDA device here; --device cpu makes a dry run.", file=sys.stderr)
        return 2
    machine: Cuda | Dry = Dry() if is_dry else Cuda()
    with torch.inference_mode():
        rows, events = measure(TOY if is_dry else K3, arguments.device, machine)
    print_table(rows)
    print(f"nothing synchronises and nothing is copied to the host: {events} events of the trace searched")
    result = {
        "name": "gpu_hook",
        "ratio": max(row["ratio"] for row in rows),
        "unit": "(experts + recording) / experts per MoE layer, replayed, the worst batch size",
        "machine": f"{machine.name()}, torch {torch.__version__}, {describe_machine()}",
        "is_dry_run": is_dry,
        "rows": rows,
    }
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
