"""Read expert load as a row of equally long windows: what drift, forecasts and back-tests compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis import words
from moescope.analysis.expert_load import (
    HOURS,
    MINUTES,
    RAW,
    TEN_MINUTES,
    LoadScope,
    Tier,
    TimeArray,
    choose_tier,
)
from moescope.analysis.frozen import lock, locked_int64
from moescope.analysis.imbalance import BoolArray
from moescope.analysis.store import Store, column_as_array, list_column_as_array
from moescope.schemas.errors import UsageError
from moescope.schemas.records import IntArray
from moescope.schemas.settings import Settings

_MS: Final = 1000
_HOUR_MS: Final = 3600 * _MS
_DAY_MS: Final = 24 * _HOUR_MS
_LOOK_BACK_MS: Final = 600 * _MS
"""How far before the end the ranks' newest windows are looked for."""
_TIERS: Final = (RAW, MINUTES, TEN_MINUTES, HOURS)


@dataclass(frozen=True, slots=True)
class LoadWindows:
    """Assignments of one scope in equally long windows, the oldest first, without a gap between them.

    Attributes:
        tier: where they were read.
        starts_ms: int64 ``[windows]``, Unix milliseconds.
        seconds: length of each window.
        layers: int64 ``[layers]``, the model's layer indices, increasing.
        tokens: int64 ``[windows, layers, experts]``, assignments by logical expert, read-only; zeros in a
            window of which nothing is stored.
    """

    scope: LoadScope
    tier: Tier
    starts_ms: IntArray
    seconds: float
    layers: IntArray
    tokens: IntArray

    @property
    def is_missing(self) -> BoolArray:
        """Windows of which nothing is stored, or in which nothing was routed: bool ``[windows]``."""
        return np.asarray(~self.tokens.any(axis=(1, 2)), dtype=np.bool_)

    @property
    def end_ms(self) -> int:
        """End of the last window, Unix milliseconds."""
        return int(self.starts_ms[-1] + self.seconds * _MS)

    @property
    def starts(self) -> TimeArray:
        """Starts of the windows, UTC: datetime64[ms] ``[windows]``."""
        return self.starts_ms.astype("datetime64[ms]")

    def present(self) -> LoadWindows:
        """Only the windows with tokens, still in order; there may now be gaps between them."""
        kept = ~self.is_missing
        return LoadWindows(
            *(self.scope, self.tier, locked_int64(self.starts_ms[kept]), self.seconds, self.layers),
            lock(self.tokens[kept]),
        )


def read_load_windows(
    store: Store,
    scope: LoadScope,
    *,
    window_seconds: float,
    count: int,
    settings: Settings,
    end_ms: int | None = None,
) -> LoadWindows:
    """Read the last ``count`` windows before ``end_ms``; before what every rank has reported if None.

    The last window ends there, at a whole interval of the table that is read, so that none is half filled
    because it still runs. Windows from before the first stored one are all zeros.

    Raises:
        UsageError: no window, or windows that no table has: a length in seconds that is no whole number of
            the intervals kept for so long.
        StoreError: the store cannot answer.
    """
    window_ms = round(window_seconds * _MS)
    if count < 1 or window_ms < 1:
        raise UsageError(
            f"{count} windows of {window_seconds:g} s is no stretch of time; ask for one at least"
        )
    end_ms = min(end_ms or scope.end_ms, scope.end_ms)
    end_ms = min(end_ms, _reported_until(store, scope, end_ms) or end_ms)
    start_ms = max(end_ms - count * window_ms, scope.first_ms)
    tier = choose_window_tier(start_ms, end_ms, window_ms, scope.end_ms, settings)
    if tier is not RAW:
        end_ms -= end_ms % (tier.interval_seconds * _MS)
    start_ms = end_ms - count * window_ms
    params: dict[str, str | int] = {
        "start_ms": start_ms,
        "end_ms": end_ms,
        "window_ms": window_ms,
        "experts": scope.experts,
    }
    params |= _whose(scope)
    if tier is RAW:
        table = store.query("expert_load_windows_raw", **params)
    else:
        table = store.query("expert_load_windows", table=tier.table, **params)
    layers, tokens = _scatter(table, count, scope.experts)
    starts = start_ms + window_ms * np.arange(count)
    return LoadWindows(
        *(scope, tier, locked_int64(starts), window_ms / _MS, locked_int64(layers)), lock(tokens)
    )


def choose_window_tier(
    start_ms: int, end_ms: int, window_ms: int, newest_ms: int, settings: Settings
) -> Tier:
    """Pick the table that answers quickly, or the next finer one whose intervals divide a window.

    Args:
        start_ms: start of the first window with data, Unix milliseconds.
        end_ms: end of the last window.
        window_ms: length of each.
        newest_ms: end of the newest stored window: what retention counts from.
        settings: how long each table is kept.

    Raises:
        UsageError: none of the tables that are kept so long divides the windows.
    """
    coarsest = choose_tier(start_ms, end_ms, newest_ms, settings)
    kept_ms = (
        settings.raw_ttl_hours * _HOUR_MS,
        settings.minute_ttl_days * _DAY_MS,
        settings.ten_minute_ttl_days * _DAY_MS,
        settings.hour_ttl_days * _DAY_MS,
    )
    kept = [tier for tier, kept in zip(_TIERS, kept_ms, strict=True) if newest_ms - start_ms <= kept]
    for tier in (coarsest, *reversed(kept[: kept.index(coarsest) if coarsest in kept else None])):
        if tier is RAW or window_ms % (tier.interval_seconds * _MS) == 0:
            return tier
    finest = kept[0] if kept else HOURS
    raise UsageError(
        f"windows of {window_ms / _MS:g} s cannot be read {words.duration((newest_ms - start_ms) / _MS)} "
        f"back: expert load is kept so long in steps of {words.duration(finest.interval_seconds)} only. "
        "Choose whole multiples of that, or fewer windows."
    )


def _reported_until(store: Store, scope: LoadScope, end_ms: int) -> int:
    table = store.query(
        "expert_load_reported_until", from_ms=end_ms - _LOOK_BACK_MS, until_ms=end_ms, **_whose(scope)
    )
    return int(column_as_array(table, "reported_until_ms")[0])


def _whose(scope: LoadScope) -> dict[str, str]:
    return {"service": scope.service, "ep_group": scope.ep_group, "phase": scope.phase.value}


def _scatter(table: Any, count: int, experts: int) -> tuple[IntArray, IntArray]:
    """The layers with tokens in any window, and ``[windows, layers, experts]`` with zeros for the rest."""
    layers, row = np.unique(column_as_array(table, "layer"), return_inverse=True)
    tokens = np.zeros((count, len(layers), experts), dtype=np.int64)
    tokens[column_as_array(table, "position"), row] = list_column_as_array(table, "tokens", experts)
    return layers, tokens
