"""The weights of one expert in words."""

import pytest

from moescope.analysis.expert_costs import ExpertCosts, describe_costs, read_expert_costs
from moescope.analysis.span import span_between

MIB = 2**20


class _KnownRows:
    """A stand-in for a store: only the rows of one expert's memory are there."""

    def __init__(self, *memory):
        self._memory = [dict(zip(("ep_rank", "replicas", "bytes"), row, strict=True)) for row in memory]

    def query(self, name, **_):
        import pyarrow as pa

        columns = ("phase", "source", "time_ms", "duration_ns", "tokens", "layer_ns")
        if name == "expert_latency":
            return pa.table({column: [] for column in columns})
        return pa.Table.from_pylist(self._memory if name == "expert_memory" else [])


def _costs(*memory) -> ExpertCosts:
    return read_expert_costs(_KnownRows(*memory), span_between("fleet", "0", 0, 60_000), 3, 7)


@pytest.mark.parametrize(
    ("memory", "sentence"),
    [
        ([(0, 1, 13 * MIB)], "Its weights take 13.0 MiB."),
        ([(0, 1, 13 * MIB), (5, 2, 26 * MIB)], "Its weights take 39.0 MiB: 3 copies of 13.0 MiB."),
        (
            [(0, 1, 13 * MIB), (5, 2, 0)],
            "Its weights take 13.0 MiB a copy; it has 3 copies, and the size of 1 is reported.",
        ),
        ([(0, 1, 0), (5, 2, 0)], ""),
    ],
)
def test_size_of_a_copy_comes_from_the_ranks_that_say_it(memory, sentence):
    assert describe_costs(_costs(*memory)) == sentence
