"""The stat logger on vLLM's own statistics: what becomes of each number."""

import logging
import math
import warnings
from types import SimpleNamespace

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    import vllm
    from vllm.config import ParallelConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine import FinishReason
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.metrics.loggers import LoggingStatLogger, StatLoggerBase, load_stat_logger_plugin_factories
    from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats

import moescope.plugin
from moescope.collector.hooks import vllm as worker_hook
from moescope.collector.hooks import vllm_caches, vllm_offline, vllm_process, vllm_requests, vllm_version
from moescope.collector.hooks.vllm_requests import RequestWatch
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.requests import RequestMetrics
from moescope.schemas import metrics
from moescope.schemas.attributes import CONTRACT, RESULT, CacheResult, Component, Contract
from moescope.schemas.identity import ProcessIdentity
from moescope.schemas.records import Attempt, Distribution
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid

pytestmark = pytest.mark.engine


class InMemoryExporter:
    pending_bytes = 0

    def __init__(self):
        self.windows = []

    def export(self, window, timeout_seconds=None):
        self.windows.append(window)
        return Attempt(delivered=True)

    def close(self):
        pass


class Watched:
    """A request watch, and what its process reports."""

    def __init__(self, *, block_tokens=16):
        self.exporter = InMemoryExporter()
        identity = ProcessIdentity("some-deployment", Component.FRONTEND)
        self.recorder = ProcessRecorder(identity, lambda _: self.exporter, Settings())
        requests = RequestMetrics(self.recorder, model="m", provider="vllm", settings=Settings())
        self.watch = RequestWatch(self.recorder, requests, block_tokens=block_tokens)

    def records(self, metric):
        assert self.recorder.flush(1)
        return [r for w in self.exporter.windows for r in w.records if r.metric is metric]

    def observed(self, metric):
        """How many values, and their sum."""
        records = self.records(metric)
        assert all(isinstance(record, Distribution) for record in records)
        return sum(int(r.bucket_counts.sum()) for r in records), sum(r.sum for r in records)

    def counted(self, metric, attribute):
        counts = {}
        for record in self.records(metric):
            key = record.attributes[attribute]
            counts[key] = counts.get(key, 0) + record.value
        return {key: count for key, count in counts.items() if count}


@pytest.fixture
def watched():
    made = []

    def make(**options):
        made.append(Watched(**options))
        return made[-1]

    yield make
    for one in made:
        one.recorder.close()


def iteration(*, first=(), gaps=(), finished=()):
    stats = IterationStats()
    stats.time_to_first_tokens_iter = list(first)
    stats.inter_token_latencies_iter = list(gaps)
    stats.finished_requests = list(finished)
    return stats


def finished(**numbers):
    defaults = {"e2e_latency": 1.5, "decode_time": 1.0, "num_generation_tokens": 23, "num_prompt_tokens": 79}
    return FinishedRequestStats(FinishReason.LENGTH, **(defaults | numbers))


def test_first_tokens_and_gaps_are_those_of_every_step(watched):
    one = watched()

    one.watch.record(None, iteration(first=[0.3, 0.5]))
    one.watch.record(None, iteration(gaps=[0.02] * 13))
    one.watch.record(None, iteration(first=[0.7], gaps=[0.04] * 23))

    assert one.observed(metrics.TIME_TO_FIRST_TOKEN) == (3, pytest.approx(1.5))
    assert one.observed(metrics.INTER_TOKEN_LATENCY) == (36, pytest.approx(13 * 0.02 + 23 * 0.04))


def test_a_gap_on_a_bound_falls_into_the_bucket_below_it_as_everywhere(watched):
    one = watched()
    bounds = metrics.INTER_TOKEN_LATENCY.bounds

    one.watch.record(None, iteration(gaps=[*bounds, 79.0]))

    (record,) = one.records(metrics.INTER_TOKEN_LATENCY)
    assert record.bucket_counts.tolist() == [1] * (len(bounds) + 1)


def test_gaps_are_counted_before_they_grow_beyond_bounds_and_none_twice(watched):
    one = watched()

    for _ in range(7):
        one.watch.record(None, iteration(gaps=[0.001] * 1999))

    assert len(one.watch._gaps_seconds) < vllm_requests._GAPS_TO_KEEP
    assert one.observed(metrics.INTER_TOKEN_LATENCY) == (7 * 1999, pytest.approx(7 * 1.999))


def test_time_per_output_token_is_vllms_own(watched):
    one = watched()

    one.watch.record(None, iteration(finished=[finished(decode_time=1.1, num_generation_tokens=23)]))

    assert one.observed(metrics.TIME_PER_OUTPUT_TOKEN) == (1, pytest.approx(1.1 / 22))


def test_one_token_has_no_time_per_output_token(watched):
    one = watched()
    single = finished(decode_time=0.0, num_generation_tokens=1)
    assert single.mean_time_per_output_token == 0.0  # what vLLM observes

    one.watch.record(None, iteration(finished=[single]))

    assert one.records(metrics.TIME_PER_OUTPUT_TOKEN) == []
    assert one.observed(metrics.REQUEST_DURATION) == (1, 1.5)


def test_a_request_that_ended_in_the_queue_has_no_queue_time_and_missed_its_contract(watched):
    one = watched()
    never_scheduled = finished(queued_time=-12345.0, decode_time=0.0, num_generation_tokens=0)

    one.watch.record(None, iteration(finished=[never_scheduled, finished(queued_time=0.25)]))

    assert one.observed(metrics.REQUEST_QUEUE_DURATION) == (1, 0.25)
    assert one.counted(metrics.REQUESTS_FINISHED, CONTRACT) == {Contract.MISSED: 1, Contract.MET: 1}
    assert one.counted(metrics.REQUEST_OUTPUT_TOKENS, CONTRACT) == {Contract.MET: 23}


@pytest.mark.parametrize(
    ("prompt", "cached", "expected"),
    [
        (79, 0, {CacheResult.MISS: 79}),
        (79, 16, {CacheResult.PARTIAL_HIT: 16, CacheResult.MISS: 63}),
        (79, 64, {CacheResult.HIT: 64, CacheResult.MISS: 15}),
        # The last token is always computed, so of a prompt of whole blocks the last one is.
        (80, 64, {CacheResult.HIT: 64, CacheResult.MISS: 16}),
        (81, 64, {CacheResult.PARTIAL_HIT: 64, CacheResult.MISS: 17}),
        (13, 0, {CacheResult.MISS: 13}),
    ],
)
def test_a_prompt_found_as_far_as_can_be_is_a_hit_and_less_is_a_partial_hit(
    watched, prompt, cached, expected
):
    one = watched(block_tokens=16)

    one.watch.record(None, iteration(finished=[finished(num_prompt_tokens=prompt, num_cached_tokens=cached)]))

    assert one.counted(metrics.PREFIX_CACHE_TOKENS, RESULT) == expected


def test_without_a_prefix_cache_nothing_was_looked_up(watched):
    one = watched(block_tokens=None)

    one.watch.record(None, iteration(finished=[finished(num_cached_tokens=16)]))

    assert one.records(metrics.PREFIX_CACHE_TOKENS) == []


def test_the_load_is_what_the_scheduler_said_last(watched):
    one = watched()

    one.watch.record(SchedulerStats(num_running_reqs=5, num_waiting_reqs=1), None)
    one.watch.record(
        SchedulerStats(num_running_reqs=13, num_waiting_reqs=23, num_skipped_waiting_reqs=2), iteration()
    )
    one.watch.record(None, iteration())  # the scheduler speaks to one front end of several

    assert [r.value for r in one.records(metrics.REQUESTS_RUNNING)] == [13]
    assert [r.value for r in one.records(metrics.REQUESTS_WAITING)][-1] == 25


def test_a_front_end_that_never_heard_of_the_scheduler_says_nothing_of_the_load(watched):
    one = watched()

    one.watch.record(None, iteration(first=[0.1]))

    assert one.records(metrics.REQUESTS_RUNNING) == []


def test_what_fails_is_said_once_and_serving_goes_on(watched, caplog):
    one = watched()

    def explode(*_):
        raise RuntimeError("on purpose")

    one.watch._requests.first_token = explode
    with caplog.at_level(logging.ERROR, "moescope"):
        for _ in range(3):
            one.watch.record(SchedulerStats(), iteration(first=[0.1]))

    (message,) = caplog.messages
    assert "serving goes on" in message


class TestEntryPoint:
    @pytest.fixture
    def stat_logger(self):
        return moescope.plugin.VllmStatLogger

    def test_it_is_a_class_that_vllm_takes(self, stat_logger):
        assert issubclass(stat_logger, StatLoggerBase)
        assert stat_logger is moescope.plugin.VllmStatLogger
        assert stat_logger in load_stat_logger_plugin_factories()

    @pytest.mark.parametrize(("name", "value"), [("MOESCOPE_ENABLED", "0"), ("OTEL_SDK_DISABLED", "true")])
    def test_switched_off_it_looks_at_nothing(self, stat_logger, monkeypatch, name, value):
        monkeypatch.setenv(name, value)

        off = stat_logger(None, 0)  # not even at the configuration
        off.record(None, iteration(first=[math.nan]))

        assert off._watch is None

    def test_another_version_gets_one_clear_warning_and_a_logger_that_does_nothing(
        self, stat_logger, monkeypatch, caplog
    ):
        monkeypatch.setattr(vllm, "__version__", "0.79.13")
        vllm_version.warn_about.cache_clear()

        with caplog.at_level(logging.WARNING, "moescope"):
            others = [stat_logger(None, index) for index in range(2)]

        assert [other._watch for other in others] == [None, None]
        (warning,) = caplog.messages
        assert "leaves vLLM 0.79.13 alone" in warning

    def test_a_configuration_that_it_does_not_understand_is_no_reason_not_to_serve(self, stat_logger, caplog):
        with caplog.at_level(logging.ERROR, "moescope"):
            broken = stat_logger(object(), 0)
            broken.record(SchedulerStats(), iteration())

        assert broken._watch is None
        assert "vLLM serves on" in caplog.text

    def test_nothing_else_is_promised(self):
        with pytest.raises(AttributeError, match="no attribute 'VllmLogger'"):
            moescope.plugin.VllmLogger  # noqa: B018 - the access is the test


class TestPatches:
    @pytest.fixture(autouse=True)
    def unpatched(self):
        before = LLMEngine.__init__, Scheduler.__init__
        yield before
        for patch in (worker_hook, vllm_caches, vllm_offline):
            patch.uninstall()
        assert (LLMEngine.__init__, Scheduler.__init__) == before

    def test_switched_off_engines_and_schedulers_are_vllms_own(self, unpatched, monkeypatch):
        monkeypatch.setenv("MOESCOPE_ENABLED", "0")

        moescope.plugin.load_vllm()

        assert (LLMEngine.__init__, Scheduler.__init__) == unpatched

    def test_with_another_version_too(self, unpatched, monkeypatch):
        monkeypatch.setattr(vllm, "__version__", "0.79.23")

        moescope.plugin.load_vllm()

        assert (LLMEngine.__init__, Scheduler.__init__) == unpatched

    def test_loaded_twice_they_are_patched_once(self, unpatched):
        moescope.plugin.load_vllm()
        once = LLMEngine.__init__, Scheduler.__init__
        moescope.plugin.load_vllm()

        assert (LLMEngine.__init__, Scheduler.__init__) == once
        assert once[0] is not unpatched[0]
        assert once[1] is not unpatched[1]

    @pytest.mark.parametrize("is_meant_to_log", [True, False])
    def test_an_offline_engine_gets_the_logger_and_prints_what_it_would_without(
        self, monkeypatch, is_meant_to_log
    ):
        def init(self, vllm_config, executor_class, log_stats, stat_loggers=None):
            self.log_stats = log_stats
            printing = SimpleNamespace(
                per_engine_stat_loggers={0: LoggingStatLogger.__new__(LoggingStatLogger)}
            )
            ours = [make(vllm_config, 0) for make in stat_loggers]
            self.logger_manager = SimpleNamespace(stat_loggers=[printing, *ours])

        monkeypatch.setattr(LLMEngine, "__init__", init)
        vllm_offline.install(lambda config, dp_rank: (config, dp_rank))
        engine = LLMEngine.__new__(LLMEngine)
        config = SimpleNamespace(parallel_config=ParallelConfig(data_parallel_size=3, data_parallel_rank=2))

        LLMEngine.__init__(engine, config, None, log_stats=is_meant_to_log)
        vllm_offline.uninstall()
        monkeypatch.undo()

        assert engine.log_stats is True
        printing, ours = engine.logger_manager.stat_loggers[:-1], engine.logger_manager.stat_loggers[-1]
        assert len(printing) == is_meant_to_log
        assert ours == (config, 2)
        engine.dp_group = None

    def test_an_offline_engine_that_is_not_as_expected_is_made_as_it_was_asked_for(self, monkeypatch, caplog):
        def init(self, config, executor_class, log_stats):  # takes no loggers
            self.made_of = config, executor_class, log_stats

        monkeypatch.setattr(LLMEngine, "__init__", init)
        vllm_offline.install(lambda config, dp_rank: (config, dp_rank))
        engine = LLMEngine.__new__(LLMEngine)
        engine.dp_group = None

        with caplog.at_level(logging.ERROR, "moescope"):
            LLMEngine.__init__(engine, "a configuration", None, log_stats=False)
        vllm_offline.uninstall()
        monkeypatch.undo()

        assert engine.made_of == ("a configuration", None, False)
        (message,) = caplog.messages
        assert "made without it" in message

    def test_an_offline_engine_whose_loggers_cannot_be_found_is_made_all_the_same(self, monkeypatch, caplog):
        def init(self, vllm_config, executor_class, log_stats, stat_loggers=None):
            self.loggers = [make(vllm_config, 0) for make in stat_loggers]

        monkeypatch.setattr(LLMEngine, "__init__", init)
        vllm_offline.install(lambda config, dp_rank: dp_rank)
        engine = LLMEngine.__new__(LLMEngine)
        engine.dp_group = None
        config = SimpleNamespace(parallel_config=ParallelConfig(data_parallel_size=3, data_parallel_rank=2))

        with caplog.at_level(logging.ERROR, "moescope"):
            LLMEngine.__init__(engine, config, None, log_stats=False)
        vllm_offline.uninstall()
        monkeypatch.undo()

        assert engine.loggers == [2]
        (message,) = caplog.messages
        assert "may print statistics" in message


@pytest.mark.parametrize(
    ("options", "dp_rank", "grid"),
    [
        ({}, 0, RankGrid("g", 0, 1)),
        ({"tensor_parallel_size": 2}, 0, RankGrid("g", 0, 1)),
        ({"tensor_parallel_size": 2, "enable_expert_parallel": True}, 0, RankGrid("g", 0, 2)),
        (
            {"tensor_parallel_size": 2, "data_parallel_size": 3, "enable_expert_parallel": True},
            2,
            RankGrid("g", 4, 6),
        ),
        ({"data_parallel_size": 3}, 2, RankGrid("g", 0, 1)),
    ],
)
def test_an_engine_speaks_for_its_first_ep_rank(options, dp_rank, grid):
    assert vllm_process.first_rank_of(ParallelConfig(**options), dp_rank, "g") == grid


def test_a_pipeline_speaks_for_its_first_stage():
    config = ParallelConfig(pipeline_parallel_size=2, enable_expert_parallel=True)

    assert vllm_process.first_rank_of(config, 0, "g") == RankGrid("g-pp0", 0, 1)


def test_tokens_of_a_block_are_those_of_all_context_parallel_ranks():
    config = VllmConfig()
    config.cache_config.block_size = 16
    config.parallel_config.decode_context_parallel_size = 2

    assert vllm_requests._block_tokens(config) == 32
