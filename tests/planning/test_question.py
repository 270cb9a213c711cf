"""What a page asks of a plan, and the command line that asks for the same."""

import numpy as np
import pytest

from moescope.analysis.replication import CoverNodes
from moescope.cli_arguments import parse_duration, parse_time
from moescope.planning.amounts import parse_bytes
from moescope.planning.choices import MOVE_LIMITS, USUAL_MOVE_LIMIT, list_choices, spell_bytes
from moescope.planning.load import PlanLoad
from moescope.planning.question import PlanQuestion, StoredGroup, spell_duration, spell_time
from moescope.planning.request import OutputFormat
from moescope.schemas.errors import UsageError
from moescope.schemas.topology import every_layer_from, place_contiguously

GROUP = StoredGroup(service="kimi k3", ep_group="0", phase=None, window_seconds=900, end_ms=1_772_368_200_000)


def load_of(ranks, experts, *, sizes=None, nodes=None, extra=0):
    shape = every_layer_from("planned", 1, 4, num_experts=experts, top_k=1)
    placement = place_contiguously(shape, ranks)
    return PlanLoad(
        tokens=np.ones((1, 3, experts)),
        layers=shape.layer_index,
        source="a test",
        current=placement,
        bytes_per_expert=sizes,
        nodes=nodes,
    )


def test_command_names_everything_that_was_chosen_and_nothing_else():
    question = PlanQuestion(group=GROUP, redundant_experts=13, max_moved="5%")
    assert question.command(OutputFormat.SGLANG, "file.json") == (
        "moescope plan --service 'kimi k3' --ep-group 0 --window 15m --until 2026-03-01T12:30:00Z "
        "--redundant-experts 13 --max-moved 5% --format sglang --output file.json"
    )
    scratch = PlanQuestion(group=GROUP, memory_budget="79.1GB", cover_nodes=CoverNodes.HOT)
    assert scratch.until(None).command() == (
        "moescope plan --service 'kimi k3' --ep-group 0 --window 15m --memory-budget 79.1GB --cover-nodes hot"
    )


def test_options_that_exclude_each_other_are_refused_before_anything_is_planned():
    question = PlanQuestion(group=GROUP, max_moved="5%", cover_nodes=CoverNodes.ALL)
    with pytest.raises(UsageError, match="--max-moved and --cover-nodes"):
        question.request()


@pytest.mark.parametrize("seconds", [1, 60, 79, 900, 3600, 5400, 86_400, 604_800])
def test_duration_is_read_back_as_it_was(seconds):
    assert parse_duration(spell_duration(seconds)) == seconds


@pytest.mark.parametrize("unix_ms", [0, 1_772_368_200_000, 1_772_368_200_079])
def test_time_is_read_back_as_it_was(unix_ms):
    assert parse_time(spell_time(unix_ms)) == unix_ms


@pytest.mark.parametrize("value", [1.0, 999.9, 13_000_001.0, 90_449_999_999.0, 1.44e12])
def test_size_that_is_offered_holds_what_it_was_made_for(value):
    read = parse_bytes("--memory-budget", spell_bytes(value))
    assert value <= read <= value * 1.11


def test_choices_are_whole_slots_of_every_rank_and_memory_for_each():
    choices = list_choices(load_of(13, 26, sizes=np.array([1e6, 1e6, 1e6]), nodes=1))
    assert (choices.ranks, choices.redundant_now, choices.redundant_step) == (13, 0, 13)
    assert choices.redundant_most == 104
    assert choices.budgets[:3] == ("6MB", "9MB", "12MB")


def test_ranks_that_do_not_divide_the_experts_are_offered_every_number_of_copies():
    choices = list_choices(load_of(13, 79))
    assert (choices.redundant_step, choices.budgets, choices.nodes) == (1, (), 1)


def test_one_rank_has_no_copies_to_offer():
    assert list_choices(load_of(1, 8)).redundant_most == 0


def test_usual_limit_is_one_of_those_offered():
    assert USUAL_MOVE_LIMIT in MOVE_LIMITS
