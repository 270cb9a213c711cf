"""Requests by the part of them that an engine serves, and what is known of the load once nothing is."""

from types import SimpleNamespace

import pytest

from moescope.collector.hooks.vllm_requests import RequestWatch
from moescope.collector.requests import RequestMetrics
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import CONTRACT, RESULT, CacheResult, Contract, Role
from moescope.schemas.settings import Settings


class Meter(Tally):
    """A tally that looks before a window is closed."""

    def poll(self, look):
        self.look = look

    def records(self):
        self.look()
        return self.close_window(snapshot=True)


def watch_of(role):
    meter = Meter()
    requests = RequestMetrics(meter, model="m", provider="vllm", settings=Settings())
    return meter, RequestWatch(meter, requests, block_tokens=16, role=role)


def iteration(*finished):
    return SimpleNamespace(
        time_to_first_tokens_iter=[0.25] * len(finished),
        inter_token_latencies_iter=[],
        finished_requests=list(finished),
    )


def finished(**numbers):
    defaults = {
        "e2e_latency": 1.5,
        "decode_time": 1.0,
        "queued_time": 0.125,
        "num_generation_tokens": 23,
        "num_prompt_tokens": 79,
        "num_cached_tokens": 16,
    }
    return SimpleNamespace(**(defaults | numbers))


def counted(records, metric, key):
    return {r.attributes[key]: r.value for r in records if r.metric is metric}


def observed(records, metric):
    return sum(int(r.bucket_counts.sum()) for r in records if r.metric is metric)


HALF_FOUND = {CacheResult.PARTIAL_HIT: 16, CacheResult.MISS: 63}


@pytest.mark.parametrize(
    ("role", "ended", "answers"),
    [
        (Role.MIXED, {Contract.MET: 1}, HALF_FOUND),
        (Role.PREFILL, {}, HALF_FOUND),
        (Role.DECODE, {Contract.MET: 1}, {}),
    ],
)
def test_a_request_ends_where_it_is_decoded_and_is_looked_up_where_it_is_prefilled(role, ended, answers):
    meter, watch = watch_of(role)

    watch.record(None, iteration(finished()))

    records = meter.records()
    assert counted(records, metrics.REQUESTS_FINISHED, CONTRACT) == ended
    assert counted(records, metrics.PREFIX_CACHE_TOKENS, RESULT) == answers
    assert observed(records, metrics.REQUEST_DURATION) == len(ended)
    # Both engines have a queue and a first token of their own.
    assert observed(records, metrics.REQUEST_QUEUE_DURATION) == 1
    assert observed(records, metrics.TIME_TO_FIRST_TOKEN) == 1


def test_a_prompt_that_was_never_scheduled_was_never_looked_up():
    meter, watch = watch_of(Role.MIXED)
    in_the_queue = finished(
        queued_time=-12345.0, decode_time=0.0, num_generation_tokens=0, num_cached_tokens=0
    )

    watch.record(None, iteration(in_the_queue, finished()))

    records = meter.records()
    assert counted(records, metrics.PREFIX_CACHE_TOKENS, RESULT) == HALF_FOUND
    assert counted(records, metrics.REQUESTS_FINISHED, CONTRACT) == {Contract.MISSED: 1, Contract.MET: 1}


def test_once_requests_are_not_measured_any_more_nobody_knows_the_load():
    meter, watch = watch_of(Role.MIXED)
    load = SimpleNamespace(num_running_reqs=13, num_waiting_reqs=23, num_skipped_waiting_reqs=0)
    watch.record(load, None)
    assert {r.metric: r.value for r in meter.records()} == {
        metrics.REQUESTS_RUNNING: 13,
        metrics.REQUESTS_WAITING: 23,
    }

    watch.record(None, SimpleNamespace())  # not what vLLM hands over

    assert meter.records() == ()
