"""A fleet without GPUs, through the same recorder and exporter as an engine.

In:   a model's shape, a rank grid, a seed and a scenario.
Does: draws which experts the tokens of each rank chose, and keeps the truth beside it.
Out:  OTLP to an endpoint, and a file that says exactly what was emitted.
"""
