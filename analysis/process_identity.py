"""Can it be told which process a number is from, and when? Shared instance ids, and clocks that are ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final, Protocol, TypeVar

_LEAST_SECONDS: Final = 30.0
_WINDOWS: Final = 2.5
"""A rank's newest window may end so many windows after its neighbours' without a doubt of its clock."""
_MS: Final = 1000


class Process(Protocol):
    """What is asked of a process; :class:`~moescope.analysis.quality.InstanceHealth` has it."""

    @property
    def service(self) -> str:
        """Deployment."""

    @property
    def instance(self) -> str:
        """Process, unique per start."""

    @property
    def ep_group(self) -> str:
        """Its EP group."""

    @property
    def ep_rank(self) -> int:
        """Its rank there."""

    @property
    def first_ms(self) -> int:
        """Middle of its first window, Unix milliseconds."""

    @property
    def last_ms(self) -> int:
        """End of its newest window, Unix milliseconds."""

    @property
    def windows(self) -> int:
        """How many it sent."""


P = TypeVar("P", bound=Process)


def find_shared_ids(processes: Iterable[P]) -> tuple[tuple[P, ...], ...]:
    """Processes of different ranks that report under one instance id at the same time, id by id.

    By the id alone their windows cannot be told apart.
    """
    by_id: defaultdict[tuple[str, str], list[P]] = defaultdict(list)
    for one in processes:
        by_id[one.service, one.instance].append(one)
    return tuple(shared for same in by_id.values() if len(shared := tuple(_overlapping(same))) > 1)


def measure_clock_leads(ranks: Sequence[P]) -> tuple[tuple[P, float], ...]:
    """Ranks whose newest window ends well after those of most of their EP group, and by how many seconds.

    Nobody can have counted what has not happened yet: such a rank's clock is ahead. Of two ranks that
    disagree, neither is named.
    """
    by_group: defaultdict[tuple[str, str], list[P]] = defaultdict(list)
    for one in ranks:
        by_group[one.service, one.ep_group].append(one)
    leads = []
    for group in by_group.values():
        usual_ms = median(one.last_ms for one in group)
        for one in group:
            lead = (one.last_ms - usual_ms) / _MS
            if len(group) > 2 and lead > max(_LEAST_SECONDS, _WINDOWS * _window_seconds(one)):
                leads.append((one, lead))
    return tuple(leads)


def _overlapping(same: Sequence[P]) -> Iterator[P]:
    for one in same:
        others = (other for other in same if (other.ep_group, other.ep_rank) != (one.ep_group, one.ep_rank))
        if any(one.first_ms < other.last_ms and other.first_ms < one.last_ms for other in others):
            yield one


def _window_seconds(one: Process) -> float:
    """Its windows' mean length: from the middle of the first one to the end of the last one."""
    return (one.last_ms - one.first_ms) / _MS / max(one.windows - 0.5, 0.5)
