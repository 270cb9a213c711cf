"""Remembers how many experts each engine process reported, to notice a shape that changes mid-run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

MAX_INSTANCES: Final = 16_384


class ModelShapes:
    """The number of experts by (service, instance); the least recently seen is forgotten first."""

    def __init__(self, max_instances: int = MAX_INSTANCES) -> None:
        self._experts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._max_instances = max_instances
        self._lock = threading.Lock()

    def expected(self, service: str, instance: str, experts: int) -> int:
        """Return what the instance reported first; ``experts`` where this is the first time."""
        with self._lock:
            known = self._experts.setdefault((service, instance), experts)
            self._experts.move_to_end((service, instance))
            if len(self._experts) > self._max_instances:
                self._experts.popitem(last=False)
            return known
