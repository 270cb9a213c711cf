"""``moescope import``: recordings that somebody else made, into the store.

In:   a recording, and what it does not say: phase, ranks, time.
Does: lays its passes out over time, leaves out what is no load, and says so.
Out:  OTLP, by the same source and exporter as an engine's, in bytes that are the same each time.
"""
