import inspect
import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from moescope.collector.hooks import vllm_policy
from moescope.exporters.placement_files import render_placement
from moescope.schemas.placement_document import make_document
from moescope.schemas.topology import Placement

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch and vLLM say of themselves while they are imported
    from vllm.distributed import parallel_state
    from vllm.distributed.eplb.policy import EPLB_POLICIES, AbstractEplbPolicy, DefaultEplbPolicy

pytestmark = pytest.mark.engine

PROGRAM = Path(__file__).parent / "programs" / "eplb_rank.py"
PLANNED = [[5, 0, 1, 2, 5, 3, 4, 1], [0, 1, 2, 3, 4, 5, 0, 1]]
OTHER = [[5, 0, 1, 2, 5, 3, 4, 1], [5, 1, 2, 3, 4, 0, 2, 1]]
IN_ORDER = [[0, 1, 2, 3, 4, 5, 0, 1]] * 2
WEIGHT = torch.tensor([[1, 5, 23, 79, 13, 2], [3, 3, 3, 3, 3, 3]])


def write(file, table):
    file.write_text(render_placement(Placement(np.array(table), 2, 6), "vllm", [1, 2]))
    return str(file)


@pytest.fixture
def plan(tmp_path):
    """vLLM's registry of policies, with a plan for one rank in it while the test runs."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(make_document(Placement(np.array(PLANNED), 1, 6), [1, 2])))
    assert vllm_policy.install(str(file))
    yield EPLB_POLICIES["default"]
    vllm_policy.uninstall()
    assert {"default": DefaultEplbPolicy} == EPLB_POLICIES


def test_the_planned_policy_stands_where_vllm_looks_with_vllms_signature(plan):
    assert issubclass(plan, AbstractEplbPolicy)
    ours, theirs = (
        inspect.signature(policy.rebalance_experts, eval_str=True) for policy in (plan, DefaultEplbPolicy)
    )
    assert ours == theirs


def test_a_rearrangement_is_answered_with_the_plan(plan):
    table = plan.rebalance_experts(WEIGHT, 8, 1, 1, 1)

    assert table.tolist() == PLANNED
    assert table.dtype == torch.int64


def test_an_expert_that_stays_on_its_rank_keeps_its_slot(plan):
    table = plan.rebalance_experts(WEIGHT, 8, 1, 1, 1, torch.tensor(IN_ORDER))

    assert [sorted(row) for row in table.tolist()] == [sorted(row) for row in PLANNED]
    assert table[0, :6].tolist() == [0, 1, 2, 3, 4, 5]
    assert table[1].tolist() == IN_ORDER[1]


def test_the_answer_is_the_callers_own(plan):
    plan.rebalance_experts(WEIGHT, 8, 1, 1, 1).fill_(0)

    assert plan.rebalance_experts(WEIGHT, 8, 1, 1, 1).tolist() == PLANNED


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ((WEIGHT[:1], 8, 1, 1, 1), "vLLM asks for 1 MoE layers, 6 experts in 8 slots on 1 ranks"),
        ((WEIGHT[:, :4], 8, 1, 1, 1), "4 experts"),
        ((WEIGHT, 10, 1, 1, 1), '"num_redundant_experts": 2'),
        ((WEIGHT, 8, 1, 1, 4), "on 4 ranks"),
    ],
)
def test_what_does_not_fit_is_vllms_own_decision_and_is_said_once(plan, caplog, question, words):
    with caplog.at_level(logging.INFO, "moescope"):
        answers = [plan.rebalance_experts(*question) for _ in range(3)]

    own = DefaultEplbPolicy.rebalance_experts(*question)
    assert all(torch.equal(answer, own) for answer in answers)
    (said,) = caplog.records
    assert words in said.getMessage()
    assert said.levelno == logging.WARNING


def test_a_fault_of_ours_leaves_the_decision_to_vllm(plan, caplog, monkeypatch):
    monkeypatch.setattr(vllm_policy, "_answer", lambda *_: 1 / 0)

    assert torch.equal(
        plan.rebalance_experts(WEIGHT, 8, 1, 1, 1), DefaultEplbPolicy.rebalance_experts(WEIGHT, 8, 1, 1, 1)
    )
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ('{"physical_to_logical_map": [[0, 1]]}', "moescope plan --format vllm"),
        ('{"physical_to_logical_map": [[0, 1, -1, 0]], "ep_size": 2}', "empty slots"),
        ('{"physical_to_logical_map": [[0, 0, 2, 0]], "ep_size": 2}', "expert 1"),
    ],
)
def test_a_file_that_cannot_be_followed_leaves_vllm_as_it_is(tmp_path, caplog, text, words):
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)

    assert not vllm_policy.install(str(file))

    assert {"default": DefaultEplbPolicy} == EPLB_POLICIES
    assert words in caplog.text
    assert "vLLM places experts by its own policy" in caplog.text


def test_without_the_setting_nothing_is_touched():
    assert not vllm_policy.install("")
    assert {"default": DefaultEplbPolicy} == EPLB_POLICIES


def test_a_plan_for_a_model_without_a_load_balancer_is_said_to_do_nothing(caplog):
    vllm_policy.say_where_unused("", None)
    vllm_policy.say_where_unused("plan.json", SimpleNamespace())
    assert not caplog.records

    vllm_policy.say_where_unused("plan.json", None)

    assert "--enable-eplb" in caplog.text


def test_ranks_that_have_not_all_said_the_same_follow_vllm(tmp_path, caplog, monkeypatch):
    store = torch.distributed.HashStore()
    monkeypatch.setattr(vllm_policy, "_meeting_point", lambda: (store, 0))
    monkeypatch.setattr(parallel_state, "_EP", SimpleNamespace(ranks=[0, 1]))
    planned = vllm_policy.read_planned_map(write(tmp_path / "plan.json", PLANNED))
    policy = vllm_policy.make_policy(DefaultEplbPolicy, planned)
    question = (WEIGHT, 8, 1, 1, 2)
    own = DefaultEplbPolicy.rebalance_experts(*question).tolist()

    assert policy.rebalance_experts(*question).tolist() == own  # the rehearsal: it says what it has
    assert not caplog.records
    assert policy.rebalance_experts(*question).tolist() == own  # rank 1 has said nothing
    store.set("moescope/placement/1", "another")
    assert policy.rebalance_experts(*question).tolist() == own
    assert [record.getMessage().count("rank 1 first") for record in caplog.records] == [1]

    store.set("moescope/placement/1", planned.digest)
    assert policy.rebalance_experts(*question).tolist() == PLANNED


@pytest.fixture
def balance(tmp_path):
    """Run vLLM's balancer on two ranks, each with its own file or none; what the ranks hold, time by time."""

    def run(*files):
        results = [tmp_path / f"result{rank}.json" for rank in range(2)]
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "MOESCOPE_"))}
        processes = []
        for rank, file in enumerate(files):
            extra = {"MOESCOPE_PLACEMENT_FILE": file} if file else {}
            arguments = [str(rank), "2", str(tmp_path / "store"), str(results[rank])]
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(PROGRAM), *arguments],
                    env=environ | extra,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        try:
            logs = [process.communicate(timeout=200)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        assert [process.returncode for process in processes] == [0, 0], logs
        return [json.loads(result.read_text()) for result in results], logs

    return run


def test_weights_of_two_ranks_go_where_the_plan_says_and_stay_there(balance, tmp_path):
    file = write(tmp_path / "plan.json", PLANNED)

    ranks, _ = balance(file, file)

    assert ranks[0]["map"] == ranks[1]["map"]
    for layer, row in enumerate(ranks[0]["map"]):
        assert ranks[0]["held"][-1][layer] + ranks[1]["held"][-1][layer] == row
        for first in (0, 4):
            assert sorted(row[first : first + 4]) == sorted(PLANNED[layer][first : first + 4])
    # In order at first, then as planned; the second rearrangement moved nothing.
    assert [len(rank["held"]) for rank in ranks] == [2, 2]


@pytest.mark.parametrize("second", [OTHER, None])
def test_two_ranks_with_different_files_go_on_by_vllms_own_policy(balance, tmp_path, second):
    file = write(tmp_path / "plan.json", PLANNED)
    other = None if second is None else write(tmp_path / "other.json", second)

    ranks, logs = balance(file, other)

    held = [ranks[0]["held"][-1][layer] + ranks[1]["held"][-1][layer] for layer in range(2)]
    assert ranks[0]["map"] == ranks[1]["map"] == held
    assert held != PLANNED
    assert "rank 1 first" in logs[0]
