"""The stores of the analysis' tests: plans read through the same queries."""

from tests.analysis.conftest import either_store, known_store

__all__ = ["either_store", "known_store"]
