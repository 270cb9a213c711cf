"""How many tokens a second the engines compute, by EP group and phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moescope.analysis.expert_load import TimeArray
from moescope.analysis.frozen import lock
from moescope.analysis.store import Store, column_as_array
from moescope.schemas.attributes import Phase
from moescope.schemas.records import FloatArray

_MS = 1000


@dataclass(frozen=True, slots=True)
class TokenRate:
    """Token rows computed in one EP group and phase.

    Attributes:
        mean_per_second: over the time that the stored windows cover.
        times: datetime64[ms] ``[minutes]``, UTC, starts of the minutes.
        per_second: float64 ``[minutes]``, each over the part of its minute that is covered.
    """

    ep_group: str
    phase: Phase
    mean_per_second: float
    times: TimeArray
    per_second: FloatArray


def read_token_rates(store: Store, service: str, *, start_ms: int, end_ms: int) -> tuple[TokenRate, ...]:
    """Read the rates of a deployment.

    Raises:
        StoreError: the store cannot answer.
    """
    table = store.query("token_rate", service=service, start_ms=start_ms, end_ms=end_ms)
    groups, phases = column_as_array(table, "ep_group"), column_as_array(table, "phase")
    columns = [column_as_array(table, name) for name in ("minute_ms", "covered_ms", "tokens")]
    rates = []
    for group in np.unique(groups):
        for phase in Phase:
            rows = (groups == group) & (phases == phase.value)
            if rows.any():
                rates.append(_rate(str(group), phase, *(column[rows] for column in columns)))
    return tuple(rates)


def _rate(
    group: str,
    phase: Phase,
    minute_ms: np.ndarray[tuple[int], np.dtype[np.int64]],
    covered_ms: np.ndarray[tuple[int], np.dtype[np.int64]],
    tokens: np.ndarray[tuple[int], np.dtype[np.uint64]],
) -> TokenRate:
    seconds = np.maximum(covered_ms, 1) / _MS
    return TokenRate(
        *(group, phase, float(tokens.sum() / seconds.sum())),
        lock(minute_ms.astype("datetime64[ms]")),
        lock(tokens / seconds),
    )
