"""Counting inside vLLM's scheduler: what fails there ends the counting, and nothing else."""

import logging
from collections import Counter

import pytest

from moescope.collector.hooks.vllm_state_copies import StateCopies
from moescope.schemas.attributes import CopyReason


class Manager:
    """What counting touches of vLLM's ``MambaManager``."""

    mamba_cache_mode = "align"

    def __init__(self):
        self.last_state_block_idx = {"before": 3}
        self._allocated_block_reqs = {"a"}
        self._partial_hit_reqs = set()
        self._checkpoints = {}
        self.req_to_blocks = {"a": [1, 2]}

    def take_pending_cow_copies(self):
        return ["a copy"]


@pytest.fixture
def counted():
    manager = Manager()
    assert StateCopies.can_count(manager)
    return manager, StateCopies(manager)


def test_a_running_request_that_leaves_its_state_makes_a_checkpoint(counted):
    manager, copies = counted

    manager.last_state_block_idx["a"] = 13

    assert copies.take() == Counter({CopyReason.CHECKPOINT: 1})
    assert StateCopies.of(manager) is copies


def test_a_manager_that_changed_keeps_its_state_and_is_vllms_own_again(counted, caplog):
    manager, _ = counted
    del manager._partial_hit_reqs

    with caplog.at_level(logging.ERROR, "moescope"):
        for block_idx in (13, 23):
            manager.last_state_block_idx["a"] = block_idx

    assert type(manager.last_state_block_idx) is dict
    assert manager.last_state_block_idx == {"before": 3, "a": 23}
    assert manager.take_pending_cow_copies == Manager.take_pending_cow_copies.__get__(manager)
    assert StateCopies.of(manager) is None
    (message,) = caplog.messages
    assert "serving goes on" in message


def test_what_fails_while_copies_are_taken_takes_none_from_the_engine(counted, caplog):
    manager, _ = counted
    manager._checkpoints["a"] = "a block"
    manager.last_state_block_idx["a"] = 13
    del manager.req_to_blocks

    with caplog.at_level(logging.ERROR, "moescope"):
        assert [manager.take_pending_cow_copies() for _ in range(2)] == [["a copy"]] * 2

    assert type(manager.last_state_block_idx) is dict
    assert len(caplog.messages) == 1
