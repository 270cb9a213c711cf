"""What is said of stragglers: phrases with a gap for the number."""

from __future__ import annotations

from typing import Final

from moescope.analysis import words
from moescope.analysis.straggler import StragglerKind
from moescope.analysis.straggler_paths import PathKind
from moescope.schemas.attributes import DispatchStage

ADVICE: Final = {
    StragglerKind.SLOW_RANK: "Look at its GPU's clocks, temperature and errors, and at what else runs on its "
    "host; drain it if nothing helps. No placement of experts cures it.",
    StragglerKind.SLOW_NODE: "Look at the node's uplink and at what its ranks share.",
    StragglerKind.SLOW_LINK: "Look at the network between them: port errors, retransmissions, the route.",
    StragglerKind.OVERLOADED_RANK: "Give it less to do: `moescope plan` says which experts to copy or move.",
}

AT_LOAD: Final = "its experts take {} × what other ranks need for the same load"
WAITED: Final = "the others wait {} × as long for it as is usual"
SHORTER: Final = "its exchanges are {} × shorter than the median rank's, so the others wait in theirs"
PASSES: Final = "its passes take {} × as long as the median rank's, at its number of tokens"
NO_WAITS: Final = (
    "Nobody reports waits or times of dispatch and combine: whether others wait for it is unknown."
)
PATH_SIGNS: Final = {
    PathKind.PAIR: "{} × the usual wait between two such ranks",
    PathKind.NODE: "other nodes wait {} × as long for its ranks as is usual",
    PathKind.OUT_OF_NODE: "other nodes wait {} × as long for it as for the median rank",
    PathKind.INTO_NODE: "it waits {} × as long for other nodes as the median rank",
}


PATH_WORDS: Final = {
    PathKind.PAIR: "It is so in {}; both ranks get along with their other peers.",
    PathKind.NODE: "It is so in {}; the ranks of the node do not wait for one another.",
    PathKind.OUT_OF_NODE: "It is so in {}; the ranks of its own node do not wait for it.",
    PathKind.INTO_NODE: "It is so in {}; for the ranks of its own node it does not wait long.",
}


def wait_words(stage: DispatchStage, ratio: float) -> str:
    """How long the others wait for a rank."""
    return f"In {stage.value} the others wait {words.compact(ratio)} × as long for it as for the median rank."


def call_words(stage: DispatchStage, ratio: float) -> str:
    """How short the exchanges of a late rank are."""
    return (
        f"Its {stage.value}s are {words.compact(ratio)} × shorter than the median rank's: when it comes, the "
        "others are waiting."
    )
