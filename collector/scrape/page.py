"""A ``/metrics`` page as samples by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from moescope.schemas.errors import PageError

_OPENMETRICS: Final = "application/openmetrics-text"
_CREATED: Final = "_created"
# Where a colon was not allowed on the way.
_ESCAPED_PREFIXES: Final = {"vllm_": "vllm:", "sglang_": "sglang:"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says: its samples, by name in the order of the page."""

    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)

    def of(self, name: str) -> Sequence[Sample]:
        """The samples of that name; none where the page lacks it."""
        return self.samples.get(name, ())

    def values_of(self, label: str) -> set[str]:
        """The values that a label has anywhere; ``""`` where a sample lacks it."""
        return {sample.labels.get(label, "") for group in self.samples.values() for sample in group}

    def where(self, keep: Callable[[Mapping[str, str]], bool]) -> Page:
        """The same page with those samples alone whose labels ``keep`` accepts."""
        kept = {
            name: [sample for sample in group if keep(sample.labels)] for name, group in self.samples.items()
        }
        return Page({name: group for name, group in kept.items() if group})

    def named(self, names: Iterable[str]) -> Page:
        """The same page with samples of these names alone."""
        return Page({name: self.samples[name] for name in names if name in self.samples})


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one name whose labels have these values; a label that is not there counts as empty."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def samples(self, page: Page) -> list[Sample]:
        """Those of a page."""
        return [
            sample
            for sample in page.of(self.name)
            if all(sample.labels.get(label, "") == value for label, value in self.labels.items())
        ]

    def total(self, page: Page) -> float | None:
        """Their sum; None where the page has none."""
        found = self.samples(page)
        return sum(sample.value for sample in found) if found else None


def parse_page(text: str, content_type: str = "") -> Page:
    """Read a page in the Prometheus text format, or in OpenMetrics where ``content_type`` says so.

    Raises:
        PageError: it is neither, or has no sample at all.
    """
    parse: Any = parse_openmetrics if _OPENMETRICS in content_type else parse_text
    samples: dict[str, list[Sample]] = {}
    try:
        for family in parse(text):
            for sample in family.samples:
                # What is no number is not known: as if it were not there.
                if not sample.name.endswith(_CREATED) and math.isfinite(sample.value):
                    samples.setdefault(_unescaped(sample.name), []).append(
                        Sample(sample.labels, sample.value)
                    )
    except Exception as error:  # the parser raises whatever it stumbles over
        raise PageError("not_metrics", f"this is no Prometheus page ({_short(error)})") from None
    if not samples:
        raise PageError("empty", "the page has no metrics on it")
    return Page(samples)


def _unescaped(name: str) -> str:
    for escaped, prefix in _ESCAPED_PREFIXES.items():
        if name.startswith(escaped):
            return prefix + name.removeprefix(escaped)
    return name


def _short(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 80 else words[:77] + "…"
