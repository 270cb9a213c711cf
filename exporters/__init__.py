"""Records leave the process.

In:   frozen windows of records from the collector.
Does: packs them as OTLP, freezes what was sent, repeats it byte for byte until it is acknowledged.
Out:  OTLP over gRPC or HTTP.
"""
