"""What the server counts about itself: the page that tells its operators how it fares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

_INSERT_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_QUERY_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_BATCH_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)


class _WithoutCreationTimes(CollectorRegistry):
    """A registry without the ``_created`` series, which double the page and which nobody queries."""

    def __init__(self, inner: CollectorRegistry) -> None:
        super().__init__()
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        """Yield the inner registry's metrics, thinned."""
        for metric in self._inner.collect():
            metric.samples = [item for item in metric.samples if not item.name.endswith("_created")]
            yield metric


class OwnMetrics:
    """The server's counters, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "moescope_ingest_requests",
            "OTLP requests answered, by protocol (grpc or http) and outcome "
            "(stored, partial, malformed, too_large, unauthenticated, queue_full, unavailable, "
            "refused).",
            ["protocol", "outcome"],
            registry=self.registry,
        )
        self.request_bytes = Counter(
            "moescope_ingest_bytes",
            "Bytes of OTLP request bodies after decompression, by protocol.",
            ["protocol"],
            registry=self.registry,
        )
        self.accepted_points = Counter(
            "moescope_ingest_points_accepted",
            "OTLP points accepted, repeated requests included.",
            registry=self.registry,
        )
        self.rejected_points = Counter(
            "moescope_ingest_points_rejected",
            "OTLP points rejected one by one, by reason; the rest of their requests was kept.",
            ["reason"],
            registry=self.registry,
        )
        self.rows = Counter(
            "moescope_ingest_rows",
            "Rows handed to the store, repeated requests included.",
            registry=self.registry,
        )
        self.refused_batches = Counter(
            "moescope_ingest_refused_batches",
            "Batches that the engine refuses for good, set aside in journal/refused; the log says why.",
            registry=self.registry,
        )
        self.insert_seconds = Histogram(
            "moescope_ingest_insert_duration_seconds",
            "Time to store one batch durably, failures included.",
            buckets=_INSERT_BUCKETS,
            registry=self.registry,
        )
        self.batch_requests = Histogram(
            "moescope_ingest_batch_requests",
            "OTLP requests stored together in one batch.",
            buckets=_BATCH_BUCKETS,
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "moescope_ingest_queue_requests",
            "OTLP requests that wait to be stored.",
            registry=self.registry,
        )
        self.queries = Counter(
            "moescope_sql_queries",
            "SQL requests answered, by outcome (ok, refused, failed, unauthenticated).",
            ["outcome"],
            registry=self.registry,
        )
        self.query_seconds = Histogram(
            "moescope_sql_query_duration_seconds",
            "Time to answer one SQL request, waiting for a free thread included.",
            buckets=_QUERY_BUCKETS,
            registry=self.registry,
        )
        self.query_bytes = Counter(
            "moescope_sql_result_bytes",
            "Bytes of SQL answers before compression.",
            registry=self.registry,
        )
        self.fleet_age = Gauge(
            "moescope_fleet_judgement_age_seconds",
            "Time since the analysis last said how the fleet is; since the start where it never did.",
            registry=self.registry,
        )
        self.fleet_judgement_seconds = Gauge(
            "moescope_fleet_judgement_duration_seconds",
            "Time that the analysis took for that, failures included.",
            registry=self.registry,
        )
        self.fleet_judgement_failures = Counter(
            "moescope_fleet_judgement_failures",
            "Times that the analysis could not say how the fleet is; the page keeps what it said before.",
            registry=self.registry,
        )
        self.fleet_look_age = Gauge(
            "moescope_fleet_look_age_seconds",
            "Time since the oldest closer look that this page tells of was taken, by what was looked at "
            "(stragglers, memory, failover, replan); each EP group has its turn.",
            ["look"],
            registry=self.registry,
        )
        self.fleet_look_seconds = Gauge(
            "moescope_fleet_look_duration_seconds",
            "Time that the newest closer look at one EP group took, by what was looked at.",
            ["look"],
            registry=self.registry,
        )
        self.fleet_groups_left_out = Gauge(
            "moescope_fleet_groups_left_out",
            "EP groups and phases beyond what one judgement takes on.",
            registry=self.registry,
        )
        self.fleet_series = Gauge(
            "moescope_fleet_series",
            "Series of the fleet on this page.",
            registry=self.registry,
        )
        self.fleet_left_out = Counter(
            "moescope_fleet_points_left_out",
            "Stored points that this page does not show, by reason (old, temporality, bounds, no_value, "
            "repeated, no_room).",
            ["reason"],
            registry=self.registry,
        )
        build = Gauge(
            "moescope_server_info",
            "Always 1; the labels say which version of moescope and of ClickHouse answers.",
            ["version", "engine_version"],
            registry=self.registry,
        )
        self._build = build

    def page(self) -> bytes:
        """Return all of it in Prometheus's text format."""
        return generate_latest(_WithoutCreationTimes(self.registry))

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Take the queue's depth from ``depth`` whenever the page is read."""
        self.queue_depth.set_function(depth)

    def watch_judgement(self, age_seconds: Callable[[], float]) -> None:
        """Take the age of what the analysis said from ``age_seconds`` whenever the page is read."""
        self.fleet_age.set_function(age_seconds)

    def set_versions(self, version: str, engine_version: str) -> None:
        """Say who answers."""
        self._build.labels(version, engine_version).set(1)
