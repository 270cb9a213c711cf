"""Every view is there with its columns, on either store, and takes both generations of the landing tables."""

import re

import pytest

from moescope.schemas import migrate
from moescope.schemas.metrics import METRICS, Kind

VIEWS = {
    "expert_latency": "phase layer expert source duration_ns tokens ns_per_token",
    "expert_memory": "ep_rank layer expert replicas bytes",
    "expert_failovers": "layer expert reason failovers",
    "rank_traffic": "phase ep_rank peer_rank bytes_sent bytes_received tokens assignments",
    "dispatch_wait": "stage ep_rank peer_rank wait_seconds",
    "dispatch_time": "ep_rank phase stage layer calls total_seconds mean_seconds p50_seconds p99_seconds",
    "step_time": "ep_rank phase steps tokens total_seconds mean_seconds p50_seconds p99_seconds",
    "memory_by_pool": "ep_rank instance pool used_bytes limit_bytes used_ratio",
    "cache_state": "ep_rank instance kda_slots kda_slots_limit kda_copies_on_write kda_copies_checkpoint "
    "mla_blocks mla_blocks_limit",
    "prefix_cache": "hit_tokens partial_hit_tokens miss_tokens hit_ratio",
    "request_latency": "role model metric observations mean_seconds p50_seconds p90_seconds p99_seconds",
    "request_load": "running waiting",
    "goodput": "requests good_requests output_tokens good_tokens ranks covered_seconds",
    "tokens_per_second": "ep_rank phase excluded tokens tokens_per_second",
    "routing_signals": "role frontend_host frontend_instance newest_window windows processes prompt_tokens "
    "prefix_hit_ratio prefix_partial_hit_ratio prefill_tokens_per_second decode_tokens_per_second "
    "kda_slots_free kda_slots_limit mla_blocks_free mla_blocks_limit requests_running requests_waiting "
    "first_tokens ttft_p50_seconds ttft_p90_seconds tpot_p50_seconds tpot_p90_seconds requests_finished "
    "good_tokens rank_seconds",
    "gpu": "ep_rank host gpu utilization memory_used_bytes memory_limit_bytes sent_bytes received_bytes",
}


@pytest.mark.parametrize("view", VIEWS)
def test_view_has_its_columns_and_each_says_what_it_is(fleet, view: str):
    columns = fleet.columns(view)

    assert [name for name, _ in columns] == ["time", "service", "ep_group", *VIEWS[view].split()]
    assert all(comment for _, comment in columns)


def test_every_metric_of_the_registry_goes_into_one_table_and_a_state_from_either_form():
    """By name, in the materialized views: what none of them names would stay raw and be in no view."""
    texts = [m.text for m in migrate.list_migrations() if m.name.endswith("_mv")]
    landing = {Kind.COUNTER: ["sum"], Kind.HISTOGRAM: ["histogram"]}
    for metric in METRICS:
        takers = [text for text in texts if f"'{metric.name}'" in text]
        source = re.compile(r"FROM \$\{database\}\.otel_metrics_(\w+)\n")
        sources = [name for text in takers for name in source.findall(text)]
        assert sorted(sources) == landing.get(metric.kind, ["gauge", "sum"]), metric.name


def test_every_name_that_looks_like_a_metric_is_one():
    known = {metric.name for metric in METRICS}
    for migration in migrate.list_migrations():
        named = re.findall(r"'((?:moe|gen_ai\.server|hw\.gpu)\.[a-z_.]+)'", migration.text)
        attributes = set(re.findall(r"Attributes\['([^']+)'\]", migration.text))
        assert set(named) - attributes <= known, migration.name
