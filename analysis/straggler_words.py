"""A straggler in sentences, for the report and the findings."""

from __future__ import annotations

from moescope.analysis import words
from moescope.analysis.expert_load import from_ms
from moescope.analysis.straggler import Confidence, Straggler, StragglerKind


def title(one: Straggler) -> str:
    """Who is what, and by how much, in one sentence."""
    doubt = "" if one.confidence > Confidence.LOW else "probably "
    return f"{_who(one)} {_what(one, doubt)}: {one.says}."


def when_sentence(one: Straggler) -> str:
    """In how many of the newest windows, since when, and how often in all."""
    length = f"{one.window_seconds / 60:g} min"
    newest = f"In {one.windows} of the newest {one.judged_windows} windows of {length}"
    return f"{newest}, {one.all_late} of {one.all_windows} in all, since {from_ms(one.since_ms):%H:%M} UTC."


def cost_sentence(one: Straggler) -> str:
    """What the others lose to it; empty where that is not known."""
    if one.cost_seconds_per_minute is not None and one.lost_share is not None:
        together = _seconds(one.cost_seconds_per_minute)
        share = words.percent(one.lost_share)
        return f"Each other rank loses {share} of its time to it, {together} a minute in all."
    if one.cost_seconds_per_minute is not None:
        return f"The others wait {_seconds(one.cost_seconds_per_minute)} a minute for it in all."
    if one.lost_share is not None:
        return f"It loses {words.percent(one.lost_share)} of its time that way."
    if one.share_of_waiting is not None:
        return f"{words.percent(one.share_of_waiting)} of all waiting is for it."
    return ""


def _seconds(value: float) -> str:
    return f"{words.integer(round(value))} s" if value >= 10 else words.seconds(value)


def _who(one: Straggler) -> str:
    if one.kind is StragglerKind.SLOW_NODE:
        return f"The node of {one.node}" if str(one.node).startswith("ranks ") else f"Node {one.node}"
    if one.pair is not None:
        return f"The link from rank {one.pair[0]} to rank {one.pair[1]}"
    return f"Rank {one.ranks[0]}"


def _what(one: Straggler, doubt: str) -> str:
    if one.kind is StragglerKind.OVERLOADED_RANK:
        load = one.load_of_median
        of = "" if load is None else f", with {load:.2f} × the median rank's load"
        return f"is {doubt}overloaded{of}"
    if one.kind is StragglerKind.SLOW_LINK and one.pair is None:
        return f"{doubt}has a slow link to other nodes"
    return f"is {doubt}slow"
