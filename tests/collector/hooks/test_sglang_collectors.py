"""Collectors overheard, without SGLang: what is told, and what is left when nothing is told any more."""

from types import SimpleNamespace

import pytest

from moescope.collector.hooks.sglang_collectors import listening_scheduler
from moescope.collector.hooks.sglang_requests import FrontEnd, Scheduler
from moescope.collector.requests import RequestMetrics
from moescope.collector.tally import Tally
from moescope.schemas import metrics
from moescope.schemas.attributes import RESULT, Role
from moescope.schemas.settings import Settings


class Collector:
    """In place of SGLang's collector of a scheduler."""

    def __init__(self):
        self.logged = 0

    def log_stats(self, stats):
        self.logged += 1


def stats(running, waiting):
    return SimpleNamespace(
        num_running_reqs=SimpleNamespace(total=running), num_queue_reqs=SimpleNamespace(total=waiting)
    )


def requests(tally):
    return RequestMetrics(tally, model="m", provider="sglang", settings=Settings())


def states(tally):
    return {record.metric.name: record.value for record in tally.close_window(snapshot=False)}


@pytest.fixture
def tally():
    return Tally()


def test_a_scheduler_that_cannot_be_heard_any_more_leaves_no_states(tally, caplog):
    taken = []
    scheduler = Scheduler(tally, requests(tally), taken.append)
    collector = listening_scheduler(Collector, lambda: scheduler)()
    collector.log_stats(stats(13, 23))
    assert states(tally) == {"moe.requests.running": 13, "moe.requests.waiting": 23}

    collector.log_stats(SimpleNamespace(num_running_reqs=None))  # of another version
    collector.log_stats(stats(79, 79))

    assert states(tally) == {}
    assert taken[-1] is None, "the rank beside it forgets its caches too"
    assert len(taken) == 2
    assert collector.logged == 3
    assert caplog.text.count("requests are not measured any more") == 1


def finished(tally):
    """Finished requests, and tokens of prompts that were looked up in the prefix cache."""
    requests_finished, looked_up = 0, 0
    for record in tally.close_window(snapshot=False):
        if record.metric is metrics.REQUESTS_FINISHED:
            requests_finished += record.value
        elif record.metric is metrics.PREFIX_CACHE_TOKENS:
            assert RESULT in record.attributes
            looked_up += record.value
    return requests_finished, looked_up


def test_of_a_request_that_two_engines_serve_each_counts_its_part_once(tally):
    for role, expected in ((Role.PREFILL, (0, 79)), (Role.DECODE, (1, 0)), (Role.MIXED, (1, 79))):
        front_end = FrontEnd(tally, requests(tally), page_tokens=16, role=lambda role=role: role)
        front_end.finished(1.0, 0.01, 23, 79, 64)

        assert finished(tally) == expected


def test_an_engine_that_changes_its_role_counts_by_the_new_one(tally):
    roles = iter((Role.PREFILL, Role.DECODE))
    front_end = FrontEnd(tally, requests(tally), page_tokens=16, role=lambda: next(roles))

    front_end.finished(1.0, None, 1, 79, 64)
    assert finished(tally) == (0, 79)
    front_end.finished(1.0, 0.01, 23, 79, 64)
    assert finished(tally) == (1, 0)
