"""What ``moescope alerts run`` says of itself on ``/metrics``, read from what it holds when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from moescope.alerting.alert_state import State
from moescope.alerting.group_runner import GroupRunner
from moescope.alerting.notifier import Notifier

_SHOWN = (State.PENDING, State.FIRING, State.NO_DATA)


class OwnMetrics(Collector):
    """The page."""

    def __init__(self, runners: Sequence[GroupRunner], notifier: Notifier) -> None:
        self._runners = runners
        self._notifier = notifier
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self) -> bytes:
        """In Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Everything there is to say."""
        yield from self._of_groups()
        yield from self._of_rules()
        yield from self._of_targets()
        yield CounterMetricFamily(
            "moescope_alerts_state_write_failures",
            "Writes of the state file that failed; they are repeated.",
            self._notifier.state.failures,
        )

    def _of_groups(self) -> Iterator[Metric]:
        rounds = _counter("moescope_alerts_evaluations", "Rounds of a group that were made.", "group")
        missed = _counter(
            "moescope_alerts_evaluations_missed",
            "Rounds of a group that were due while the one before still ran.",
            "group",
        )
        took = _gauge("moescope_alerts_evaluation_seconds", "How long a group's last round took.", "group")
        every = _gauge("moescope_alerts_interval_seconds", "Time between two rounds of a group.", "group")
        newest = _gauge(
            "moescope_alerts_last_evaluation_timestamp_seconds", "Time of a group's last round.", "group"
        )
        for runner in self._runners:
            labels = [runner.group.name]
            rounds.add_metric(labels, runner.evaluations)
            missed.add_metric(labels, runner.missed)
            took.add_metric(labels, runner.last_seconds)
            every.add_metric(labels, runner.interval)
            newest.add_metric(labels, runner.last_at or 0.0)
        yield from (rounds, missed, took, every, newest)

    def _of_rules(self) -> Iterator[Metric]:
        failures = _counter(
            "moescope_alerts_evaluation_failures", "Evaluations of a rule that failed.", "group", "rule"
        )
        failing = _gauge(
            "moescope_alerts_rule_failing", "1 where a rule's last evaluation failed.", "group", "rule"
        )
        alerts = _gauge("moescope_alerts_alerts", "Alerts of a rule by state.", "group", "rule", "state")
        told: Counter[tuple[str, str]] = Counter()
        states: Counter[tuple[str, str, State]] = Counter()
        fails: dict[tuple[str, str], bool] = {}
        for runner in self._runners:
            for keeper in runner.keepers:
                name = (runner.group.name, keeper.rule.name)
                told[name] += keeper.failures
                fails[name] = fails.get(name, False) or bool(keeper.last_error)
                for alert in keeper.alerts():
                    states[*name, alert.state] += 1
        for name, failed in fails.items():
            failures.add_metric(name, told[name])
            failing.add_metric(name, failed)
            for state in _SHOWN:
                alerts.add_metric([*name, state.value], states[*name, state])
        yield from (failures, failing, alerts)

    def _of_targets(self) -> Iterator[Metric]:
        sent = _counter("moescope_alerts_sent", "Alerts that a target took, repetitions included.", "target")
        failed = _counter(
            "moescope_alerts_send_failures",
            "Requests that a target did not take; they are repeated.",
            "target",
        )
        refused = _counter("moescope_alerts_refused", "Alerts that a target refused for good.", "target")
        dropped = _counter(
            "moescope_alerts_dropped", "Alerts that were not told since too many waited; logged.", "target"
        )
        waiting = _gauge("moescope_alerts_waiting", "Alerts that a target has not been told yet.", "target")
        for sender in self._notifier.senders:
            labels, counts = [sender.target.name], sender.target.counts
            sent.add_metric(labels, counts.sent)
            failed.add_metric(labels, counts.failed_requests)
            refused.add_metric(labels, counts.refused)
            dropped.add_metric(labels, counts.dropped)
            waiting.add_metric(labels, sender.target.waiting())
        yield from (sent, failed, refused, dropped, waiting)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)
