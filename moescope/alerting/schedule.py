"""When a group is evaluated: at whole multiples of its interval, so that restarts keep the times."""

from __future__ import annotations

import math


def slot_of(now: float, interval: float) -> float:
    """The newest time of evaluation that is not after ``now``, Unix seconds."""
    return math.floor(now / interval) * interval


def following_slot(slot: float, now: float, interval: float) -> float:
    """The time of evaluation after that of ``slot``, once that is done at ``now``.

    A clock that is set back a little brings no time twice; one that is set back far is believed.
    """
    following = slot_of(now, interval) + interval
    return slot + interval if 0 <= slot - following < 2 * interval else following


def missed_slots(slot: float, done_at: float, interval: float) -> int:
    """Evaluations that were due while the one of ``slot`` ran until ``done_at``, and are not made up for."""
    return max(0, round((slot_of(done_at, interval) - slot) / interval))
