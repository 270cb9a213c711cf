"""The simulator's caches on the way of an engine's into either store, and what the report makes of them."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from jsonschema import Draft202012Validator

from moescope.analysis import report
from moescope.analysis.memory_findings import read_memory_findings
from moescope.analysis.span import cover, list_deployments
from moescope.analysis.store import open_store
from moescope.collector.tally import Tally
from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas import metrics
from moescope.schemas.attributes import HW_ID, POOL, Component, MemoryPool
from moescope.schemas.identity import ProcessIdentity
from moescope.schemas.records import Window
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid
from moescope.server.otlp_messages import EXPORT_METHOD
from moescope.simulator.front import record_scheduler
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.plan import make_plan
from moescope.simulator.scenarios import KDA_RANK, Scenario
from moescope.simulator.serving import MLA_BLOCK_TOKENS

RANKS, TENSOR_PARALLEL, STEP_SECONDS = 8, 4, 10
REPORTING = (2, 3, 4)
"""Two ranks of the engine that is under pressure, and one of the other."""
SETTINGS = Settings(mla_block_tokens=MLA_BLOCK_TOKENS)
CONTEXTS = (8_192, 131_072, 1_048_576)
_NS = 10**9


class CacheReplay:
    """Reports what a simulated group's caches do: an engine's tally, packer and gRPC, all at once."""

    def __init__(self, fleet, scenarios: Iterable[Scenario], seed: int = 3) -> None:
        plan = make_plan(
            model="kimi-k3",
            ranks=RANKS,
            tensor_parallel=TENSOR_PARALLEL,
            scenarios=[],
            seed=seed,
            service=None,
        )
        self.group = SimulatedGroup(plan, 0, "0")
        self.group.warm_up()
        self._fleet, self._active, self._seconds = fleet, frozenset(scenarios), 0
        self._start_s = fleet.clock.start_s
        self._bodies: list[bytes] = []
        self._ranks = {rank: (Tally(), self._packer(Component.RANK, rank)) for rank in REPORTING}
        self._scheduler = Tally(), self._packer(Component.SCHEDULER, 0)

    def advance(self, windows: int):
        """Let so many windows pass, which :meth:`send` tells of; return the last one."""
        for _ in range(windows):
            window = self._next()
            self._report(window)
        return window

    def send(self) -> None:
        """Hand over all that was reported."""
        with grpc.insecure_channel(self._fleet.endpoint) as channel, ThreadPoolExecutor(64) as pool:
            export = channel.unary_unary(EXPORT_METHOD)
            list(pool.map(lambda body: export(body, timeout=60), self._bodies))

    def seconds_to_full(self, engine: int) -> int:
        """Go on, unseen by the store, until an engine's KDA state is full."""
        for windows in range(1, 200):
            if self._next().cache.slots[engine] >= self.group.memory.kda_slots:
                return windows * STEP_SECONDS
        raise AssertionError("it never was full")

    def _next(self):
        start, self._seconds = self._seconds, self._seconds + STEP_SECONDS
        return self.group.advance(start, self._seconds, self._active)

    def _packer(self, component: Component, rank: int) -> OtlpPacker:
        grid = RankGrid("0", rank, RANKS)
        identity = ProcessIdentity(self._fleet.service, component, model="known-model", grid=grid)
        return OtlpPacker(identity.resource_attributes())

    def _report(self, window) -> None:
        memory = self.group.memory
        record_scheduler(self._scheduler[0], window)
        for rank, (tally, _) in self._ranks.items():
            engine = rank // TENSOR_PARALLEL
            slots, blocks = int(window.cache.slots[engine]), int(window.cache.blocks[engine])
            used = memory.used(slots, blocks, busy=0.5, traffic=0.1)
            for pool, limit in memory.limits.items():
                tally.set_state(metrics.MEMORY_USAGE, used[pool], {POOL: pool.value})
                tally.set_state(metrics.MEMORY_LIMIT, limit, {POOL: pool.value})
            tally.set_state(metrics.KDA_STATE_SLOTS, slots)
            tally.set_state(metrics.KDA_STATE_SLOTS_LIMIT, memory.kda_slots)
            tally.set_state(metrics.MLA_KV_CACHE_BLOCKS, blocks)
            tally.set_state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, memory.mla_blocks)
        end_ns = (self._start_s + self._seconds) * _NS
        for tally, packer in (*self._ranks.values(), self._scheduler):
            tally.set_state(metrics.TELEMETRY_QUEUE_SIZE, 0)
            records = tally.close_window(snapshot=self._seconds % 120 == STEP_SECONDS)
            self._bodies += packer.pack(Window(end_ns - STEP_SECONDS * _NS, end_ns, records))


@pytest.fixture
def store(fleet):
    opened = open_store(fleet.dsn)
    yield opened
    opened.close()


def _outlook(store, fleet):
    answer = report.memory(
        store, window_seconds=900, settings=SETTINGS, service=fleet.service, contexts=CONTEXTS
    )
    printed = answer.to_dict()
    assert json.loads(json.dumps(printed, allow_nan=False)) == printed
    assert list(Draft202012Validator(read_report_schema("memory")).iter_errors(printed)) == []
    lines = answer.to_text(100).splitlines()
    assert max(map(len, lines)) <= 100
    (group,) = printed["groups"]
    return group["outlook"], "\n".join(lines)


def test_kda_pressure_is_named_with_the_time_at_which_it_ends(fleet, store):
    replay = CacheReplay(fleet, [Scenario.KDA_PRESSURE])
    window = replay.advance(36)
    replay.send()

    outlook, text = _outlook(store, fleet)

    (forecast,) = outlook["forecasts"]
    assert (forecast["pool"], forecast["unit"]) == ("kda_state", "slots")
    assert KDA_RANK in forecast["ep_ranks"]
    assert forecast["ep_ranks"] == [2, 3], "who report of the engine of rank 3"
    assert forecast["used"] == window.cache.slots[0]
    assert "At this growth KDA state of ranks 2–3 is full in " in text
    (deployment,) = [one for one in list_deployments(store) if one.service == fleet.service]
    (finding,) = read_memory_findings(store, cover(deployment, 900, ep_group="0"), SETTINGS)
    assert finding.title.startswith("KDA state of ranks 2–3 is full in ")
    assert finding.ep_group == "0"
    left = replay.seconds_to_full(0)
    assert forecast["full_in_seconds_low"] <= left <= forecast["full_in_seconds_high"]


def test_steady_fleet_has_no_forecast_and_no_finding(fleet, store):
    replay = CacheReplay(fleet, [], seed=1)
    replay.advance(60)
    replay.send()

    outlook, text = _outlook(store, fleet)

    assert outlook["forecasts"] == []
    assert "No pool grows steadily enough" in text
    (deployment,) = [one for one in list_deployments(store) if one.service == fleet.service]
    assert read_memory_findings(store, cover(deployment, 900, ep_group="0"), SETTINGS) == ()


def test_requests_that_fit_are_those_that_the_simulators_caches_take(fleet, store):
    replay = CacheReplay(fleet, [Scenario.LONG_CONTEXT])
    window = replay.advance(24)
    replay.send()

    outlook, text = _outlook(store, fleet)

    memory = replay.group.memory
    assert outlook["request"]["kda_slots"] == 1
    assert [one["ep_ranks"] for one in outlook["capacity"]] == [[2, 3], [4]]
    for engine, capacity in enumerate(outlook["capacity"]):
        free_slots = memory.kda_slots - int(window.cache.slots[engine])
        free_blocks = memory.mla_blocks - int(window.cache.blocks[engine])
        assert capacity["kda_slots_free"] == free_slots
        assert capacity["kda_slot_bytes"] == memory.slot_bytes
        assert capacity["mla_block_bytes"] == memory.block_bytes
        for one in capacity["requests"]:
            by_mla = free_blocks // -(-one["context_tokens"] // MLA_BLOCK_TOKENS)
            assert (one["fit_by_kda_state"], one["fit_by_mla_kv_cache"]) == (free_slots, by_mla)
            assert one["fit"] == min(free_slots, by_mla)
            assert one["binding_pool"] == ("kda_state" if free_slots <= by_mla else "mla_kv_cache")
    assert outlook["capacity"][0]["requests"][-1]["binding_pool"] == "mla_kv_cache"
    assert "beyond the MLA KV cache" in text


@pytest.mark.parametrize(("device_gib", "says"), [(23, "It fits every rank"), (13, "It does not fit rank 1")])
def test_one_more_copy_is_held_against_what_the_device_has_left(fleet, store, device_gib, says):
    ranks = [fleet.rank(0), fleet.rank(1)]
    for number, rank in enumerate(ranks):
        rank.set_state(metrics.EXPERT_WEIGHT_SIZE, 2**29)
        rank.set_state(metrics.GPU_MEMORY_LIMIT, device_gib * 2**30, {HW_ID: "0"})
        rank.set_state(metrics.GPU_MEMORY_USAGE, (11 + number) * 2**30, {HW_ID: "0"})
        for pool, used in ((MemoryPool.WEIGHTS, 7), (MemoryPool.KDA_STATE, 2), (MemoryPool.MLA_KV_CACHE, 1)):
            rank.set_state(metrics.MEMORY_USAGE, used * 2**30, {POOL: pool.value})
            rank.set_state(metrics.MEMORY_LIMIT, max(used, 2) * 2**30, {POOL: pool.value})
        rank.set_state(metrics.KDA_STATE_SLOTS, 7)
        rank.set_state(metrics.KDA_STATE_SLOTS_LIMIT, 128)
    fleet.close_window()

    outlook, text = _outlook(store, fleet)

    more = outlook["one_more_replica"]
    assert more["layers"] == 3
    size, taken_by_others = 3 * 2**29, 12 * 2**30
    headroom = device_gib * 2**30 - taken_by_others
    assert more["ranks"][1] == {
        "ep_rank": 1,
        "bytes": size,
        "headroom_bytes": headroom,
        "fits": headroom >= size,
        "missing_bytes": max(size - headroom, 0),
        "kda_slots_taken": max(size - headroom, 0) // (2 * 2**30 // 128),
        "mla_blocks_taken": None,
        "displaced": [
            {
                "context_tokens": tokens,
                "requests_by_kda_state": max(size - headroom, 0) // (2 * 2**30 // 128),
                "requests_by_mla_kv_cache": None,
            }
            for tokens in CONTEXTS
        ],
    }
    assert "One more copy of an expert in each of 3 layers costs a rank 1.50 GiB. " in text
    assert says in text.replace("\n", " ")


def test_pool_that_is_full_is_a_problem_and_has_no_forecast(fleet, store):
    rank = fleet.rank(3, 8)
    for _ in range(2):
        rank.set_state(metrics.MEMORY_USAGE, 99, {POOL: MemoryPool.KDA_STATE.value})
        rank.set_state(metrics.MEMORY_LIMIT, 100, {POOL: MemoryPool.KDA_STATE.value})
        fleet.close_window()

    (deployment,) = [one for one in list_deployments(store) if one.service == fleet.service]
    (finding,) = read_memory_findings(store, cover(deployment, 900, ep_group="0"), SETTINGS)

    assert finding.title == "KDA state of rank 3 is full: 99 % of its limit."
    assert finding.severity.name == "PROBLEM"
