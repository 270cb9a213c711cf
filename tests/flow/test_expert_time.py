"""`expert_latency`, `expert_memory`, `expert_failovers` and `telemetry_health`, from a rank to SQL."""

import numpy as np
import pytest

from moescope.schemas import metrics
from moescope.schemas.attributes import (
    LAYER,
    PHASE,
    REASON,
    SOURCE,
    Component,
    DurationSource,
    FailoverReason,
    Phase,
)
from tests.flow.conftest import SHAPE

DECODE = {PHASE: Phase.DECODE.value}
LAYERS = SHAPE.layer_index


def by_expert(first: int, *rest: int) -> np.ndarray:
    """Counts of each layer's first experts, the other experts none."""
    counts = np.zeros((SHAPE.num_moe_layers, SHAPE.num_experts), dtype=np.int64)
    counts[:, : len(rest) + 1] = [first, *rest]
    return counts


def test_measured_time_stands_beside_the_experts_own_tokens(fleet):
    rank = fleet.rank(0)
    rank.add_counts(Phase.DECODE, 18, by_expert(13, 23))
    measured = DECODE | {SOURCE: DurationSource.MEASURED.value}
    rank.add_indexed(metrics.EXPERT_DURATION, by_expert(1300, 4600), measured, LAYERS)
    fleet.close_window()

    columns = "time, phase, expert, source, duration_ns, tokens, ns_per_token"
    assert fleet.rows("expert_latency", columns, "layer = 2") == [
        (fleet.minute(), "decode", 0, "measured", 1300, 13, 100),
        (fleet.minute(), "decode", 1, "measured", 4600, 23, 200),
    ]


def test_grouped_time_is_shared_out_by_the_tokens_of_the_group_and_loses_nothing(fleet):
    first, second = fleet.rank(0), fleet.rank(1)
    first.add_counts(Phase.DECODE, 18, by_expert(13, 23))
    second.add_counts(Phase.DECODE, 32, by_expert(0, 0, 64))
    # By the model's layer index: the dense layer 0 has no experts.
    first.add_indexed(metrics.EXPERT_GROUP_DURATION, [0, 1000, 7919, 0], DECODE)
    second.add_indexed(metrics.EXPERT_GROUP_DURATION, [0, 3000, 0, 0], DECODE)
    fleet.close_window()

    columns = "layer, expert, source, duration_ns, tokens, ns_per_token"
    assert fleet.rows("expert_latency", columns) == [
        (
            layer,
            expert,
            "apportioned",
            pytest.approx(total * tokens / 100),
            tokens,
            pytest.approx(total / 100),
        )
        for layer, total in ((1, 4000), (2, 7919))
        for expert, tokens in enumerate((13, 23, 64))
    ]
    assert fleet.rows("expert_latency", "sum(duration_ns)") == [(pytest.approx(4000 + 7919),)]


def test_prefill_and_decode_share_no_time(fleet):
    rank = fleet.rank(0)
    for phase, ns in ((Phase.PREFILL, 7900), (Phase.DECODE, 130)):
        rank.add_counts(phase, 5, by_expert(10))
        rank.add_indexed(metrics.EXPERT_GROUP_DURATION, [0, ns, 0, 0], {PHASE: phase.value})
    fleet.close_window()

    assert fleet.rows("expert_latency", "phase, ns_per_token") == [("decode", 13), ("prefill", 790)]


def test_memory_of_an_expert_is_its_copies_times_its_size(fleet):
    first, second = fleet.rank(0), fleet.rank(1)
    first.set_state(metrics.EXPERT_WEIGHT_SIZE, 7_000)
    first.set_state(metrics.EXPERT_WEIGHT_SIZE, 9_000, {LAYER: 3})
    fleet.close_window()

    # Eight experts in blocks of four; the second rank does not say how large they are.
    assert second is not first
    assert fleet.rows("expert_memory", "ep_rank, layer, expert, replicas, bytes") == [
        (rank, layer, expert, 1, 0 if rank else 9_000 if layer == 3 else 7_000)
        for rank in (0, 1)
        for layer in SHAPE.moe_layers
        for expert in range(4 * rank, 4 * rank + 4)
    ]


def test_memory_is_a_state_that_windows_do_not_add_up(fleet):
    rank = fleet.rank(0, 1)
    rank.set_state(metrics.EXPERT_WEIGHT_SIZE, 79)
    for _ in range(25):
        fleet.close_window()

    assert fleet.rows("expert_memory", "count(), sum(replicas), sum(bytes)") == [(24, 24, 24 * 79)]


def test_failovers_are_added_over_ranks_and_kept_apart_by_reason(fleet):
    for rank in (fleet.rank(0), fleet.rank(1)):
        for reason, times in ((FailoverReason.RANK_DOWN, 13), (FailoverReason.TIMEOUT, 2)):
            rank.add_indexed(
                metrics.EXPERT_FAILOVERS,
                [[0, 0, times, 0, 0, 0, 0, 0]],
                {REASON: reason.value},
                np.array([2]),
            )
    fleet.close_window()

    assert fleet.rows("expert_failovers", "time, layer, expert, reason, failovers") == [
        (fleet.minute(), 2, 2, "rank_down", 26),
        (fleet.minute(), 2, 2, "timeout", 4),
    ]


def recent(fleet, minutes_ago: int = 0) -> None:
    """Have the windows of a test end now, so that nobody is silent."""
    fleet.clock.minutes_ago = minutes_ago
    fleet.clock.__post_init__()


def health(fleet) -> list[tuple]:
    return fleet.rows("telemetry_health", "component, ep_rank, state, missing_assignments")


def test_processes_without_experts_and_ranks_that_count_nothing_are_ok(fleet):
    recent(fleet)
    fleet.rank(0, 2).add_counts(Phase.DECODE, 18, by_expert(13, 23))
    fleet.rank(1, 2)
    fleet.process(Component.SCHEDULER)
    fleet.process(Component.FRONTEND)
    fleet.close_window(1)

    assert health(fleet) == [
        ("frontend", 0, "ok", 0),
        ("rank", 0, "ok", 0),
        ("rank", 1, "ok", 0),
        ("scheduler", 0, "ok", 0),
    ]


def test_tokens_without_assignments_are_no_counts_and_too_many_are_not_conserved(fleet):
    recent(fleet)
    idle, wrong = fleet.rank(0, 2), fleet.rank(1, 2)
    idle.add_counts(Phase.DECODE, 18, by_expert(0))
    wrong.add_counts(Phase.DECODE, 18, by_expert(13, 24))
    fleet.close_window(1)

    assert health(fleet) == [("rank", 0, "no counts", 0), ("rank", 1, "not conserved", -3)]


def test_rank_that_stopped_is_silent_and_one_that_was_replaced_or_scaled_away_has_left(fleet):
    for ep_rank in range(3):
        fleet.rank(ep_rank, 3)
    fleet.close_window(10)
    assert [state for _, _, state, _ in health(fleet)] == ["silent"] * 3

    fleet.close()
    fleet.forget()
    recent(fleet)
    fleet.rank(0, 2)
    fleet.close_window(1)
    assert sorted(health(fleet)) == [
        ("rank", 0, "left", 0),
        ("rank", 0, "ok", 0),
        ("rank", 1, "silent", 0),
        ("rank", 2, "left", 0),
    ]


def test_rank_with_windows_of_three_minutes_is_silent_after_two_and_a_half_of_them(fleet):
    recent(fleet, minutes_ago=5)
    fleet.rank(0, 2)
    fleet.close_window(180)
    assert [state for _, _, state, _ in health(fleet)] == ["ok"], "ended two minutes ago: the next is not due"

    fleet.close()
    fleet.forget()
    recent(fleet, minutes_ago=13)
    fleet.rank(1, 2)
    fleet.close_window(180)
    fleet.close()
    fleet.forget()
    recent(fleet, minutes_ago=3)
    fleet.process(Component.SCHEDULER)
    fleet.close_window(10)
    assert sorted(health(fleet)) == [
        ("rank", 0, "ok", 0),
        ("rank", 1, "silent", 0),
        ("scheduler", 0, "silent", 0),
    ]


def test_health_says_what_an_export_takes_on_average_and_the_most_that_waited(fleet):
    recent(fleet)
    process = fleet.process()
    process.observe(metrics.TELEMETRY_EXPORT_DURATION, 13.0)
    process.observe(metrics.TELEMETRY_EXPORT_DURATION, 23.0)
    process.set_state(metrics.TELEMETRY_QUEUE_SIZE, 79)
    fleet.close_window(1)

    assert fleet.rows("telemetry_health", "export_seconds, most_waiting_bytes") == [(18.0, 79)]
