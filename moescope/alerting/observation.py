"""What one evaluation of a rule saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

LabelSet: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of labels, ordered by name: what tells one alert of a rule from another."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row.

    Attributes:
        labels: of the row.
        value: of the column ``value``; NaN where it is NULL.
        is_active: whether the rule's condition holds.
        info: columns ``info_*``, by what follows: for texts, no part of the identity.
    """

    labels: LabelSet
    value: float
    is_active: bool = True
    info: LabelSet = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """All rows.

    Attributes:
        samples: by their labels.
        scopes: of rows that are not active and leave labels NULL: everything with these labels was looked at.
        says_what_it_sees: whether the rule has a column ``is_active``. Without it nothing is missing: what is
            not there is fine.
    """

    samples: Mapping[LabelSet, Sample]
    scopes: tuple[frozenset[tuple[str, str]], ...] = ()
    says_what_it_sees: bool = field(default=False)

    def has_looked_at(self, labels: LabelSet) -> bool:
        """Whether a series that has no row would have been seen."""
        if not self.says_what_it_sees:
            return True
        pairs = set(labels)
        return any(scope <= pairs for scope in self.scopes)
