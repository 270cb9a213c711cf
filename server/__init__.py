"""The one-machine backend: what a Collector and a ClickHouse cluster do, in one process.

In:   OTLP metrics over gRPC and HTTP; SQL over HTTP.
Does: checks every point, stores the good ones once, answers read-only SQL from the embedded engine.
Out:  the landing tables, the ClickHouse HTTP interface, ``/metrics`` and health pages.
"""
