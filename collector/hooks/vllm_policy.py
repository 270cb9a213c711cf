"""A planned placement for vLLM 0.32, which has no option that loads one.

vLLM starts with its experts in order, and its load balancer (EPLB) asks a policy for another map every
``step_interval`` steps, for the first time after a quarter of them. With ``MOESCOPE_PLACEMENT_FILE`` the only
policy there is, ``EPLB_POLICIES["default"]``, is replaced by one that answers with the planned map; from then
on it answers with the same map, and nothing moves. Start vLLM as ``moescope plan --format vllm`` says::

    MOESCOPE_PLACEMENT_FILE=plan.json vllm serve … --enable-expert-parallel --enable-eplb
        --eplb-config '{"num_redundant_experts": 64, "step_interval": 3000}'

Set the variable on every node. To go back to vLLM's own policy, start without it. On ROCm vLLM ignores a map,
whoever made it, that lowers max / mean of the loads added up over the layers by less than 5 %.

Ranks must answer alike: they exchange weights by the map. So each says in the store where torch's processes
meet which file it has, the first time that it is asked, and follows it from the next time on and only where
all have said the same. vLLM rehearses a rearrangement before it serves and throws its answer away: that is
the first time.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from moescope.collector.hooks.vllm_version import is_supported_version
from moescope.schemas.errors import PlacementError
from moescope.schemas.placement_document import parse_document
from moescope.schemas.topology import EMPTY_SLOT, Placement

logger = logging.getLogger("moescope")

_POLICY: Final = "default"
_KEY: Final = "moescope/placement/{rank}"


@dataclass(slots=True)
class PlannedMap:
    """The map of a file, and whether it may be followed.

    Attributes:
        digest: names the map; the same on ranks that may follow it together.
    """

    file: str
    placement: Placement
    digest: str
    _is_agreed: bool = False
    _has_voted: bool = False
    _said: set[str] = field(default_factory=set)

    def misfit(self, *, layers: int, experts: int, slots: int, ranks: int) -> str | None:
        """Why the map cannot answer such a question; None where it can."""
        table = self.placement.physical_to_logical_map
        have = (len(table), self.placement.num_experts, table.shape[1], self.placement.ep_size)
        if have == (layers, experts, slots, ranks):
            return None
        words = "{} MoE layers, {} experts in {} slots on {} ranks"
        hint = ""
        if have[:2] + have[3:] == (layers, experts, ranks):
            hint = f"; it needs --eplb-config '{{\"num_redundant_experts\": {have[2] - have[1]}}}'"
        asked = words.format(layers, experts, slots, ranks)
        return f"it is for {words.format(*have)}, vLLM asks for {asked}{hint}"

    def disagreement(self, ranks: int) -> str | None:
        """Why this rank must not follow the map yet; None once all of the group have said the same file."""
        if self._is_agreed or ranks == 1:
            return None
        if not self._has_voted:
            _say(self.digest)
            self._has_voted = True
            return ""
        missing = [rank for rank, digest in _said_by_group().items() if digest != self.digest]
        self._is_agreed = not missing
        if self._is_agreed:
            return None
        return (
            f"{len(missing)} ranks have another file or none (rank {missing[0]} first); "
            "MOESCOPE_PLACEMENT_FILE must name the same placement on every node"
        )

    def say_once(self, level: int, text: str) -> None:
        """Log a sentence the first time only."""
        if text not in self._said:
            self._said.add(text)
            logger.log(level, "moescope: %s: %s", self.file, text)


def install(file: str) -> bool:
    """Let vLLM's load balancer follow the placement in ``file``. Safe to call again.

    Returns:
        whether it will: not without a file, not where the file cannot be followed, which is said once, and
        not with another version of vLLM.
    """
    if not file or not is_supported_version():
        return False
    from vllm.distributed.eplb.policy import EPLB_POLICIES  # noqa: PLC0415 - engines are imported where they are

    current = EPLB_POLICIES[_POLICY]
    if hasattr(current, "moescope_original"):
        return True
    try:
        planned = read_planned_map(file)
    except PlacementError as error:
        logger.warning("moescope: %s: %s. vLLM places experts by its own policy", file, error)
        return False
    EPLB_POLICIES[_POLICY] = make_policy(current, planned)
    return True


def uninstall() -> None:
    """Give vLLM its own policy back; models that are loaded already keep the other."""
    from vllm.distributed.eplb.policy import EPLB_POLICIES  # noqa: PLC0415 - engines are imported where they are

    current = EPLB_POLICIES[_POLICY]
    EPLB_POLICIES[_POLICY] = getattr(current, "moescope_original", current)


def say_where_unused(file: str, eplb_state: Any) -> None:
    """Say that a file was given to a vLLM whose load balancer is off, or does not know the model."""
    if file and eplb_state is None:
        logger.warning(
            "moescope: %s has no effect: EPLB does not run for this model. Start vLLM with "
            "--enable-expert-parallel --enable-eplb; in vLLM 0.32 not every model has it, Kimi K3 has not",
            file,
        )


def read_planned_map(file: str) -> PlannedMap:
    """Read a file of ``moescope plan --format vllm``.

    Raises:
        PlacementError: it cannot be read, or vLLM could not serve from it.
    """
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise PlacementError(f"it cannot be read ({error})") from None
    if not isinstance(content, dict) or "ep_size" not in content:
        raise PlacementError("it is no file of `moescope plan --format vllm`")
    placement = parse_document(content).placement
    if (placement.physical_to_logical_map == EMPTY_SLOT).any():
        raise PlacementError("it has empty slots, which vLLM cannot serve from; write it with --format vllm")
    identity = f"{placement.ep_size} {placement.num_experts} {placement.physical_to_logical_map.shape}"
    digest = hashlib.sha256(identity.encode() + placement.physical_to_logical_map.tobytes())
    return PlannedMap(file, placement, digest.hexdigest())


def make_policy(original: Any, planned: PlannedMap) -> Any:
    """Make a class for ``EPLB_POLICIES``: ``original``, but with the planned map where it can be followed."""

    class PlannedEplbPolicy(original):  # type: ignore[misc]  # vLLM's class is known where vLLM is
        moescope_original = original

        @classmethod
        def rebalance_experts(  # noqa: PLR0917 - vLLM's signature
            cls,
            weight: torch.Tensor,
            num_replicas: int,
            num_groups: int,
            num_nodes: int,
            num_ranks: int,
            old_global_expert_indices: torch.Tensor | None = None,
        ) -> torch.Tensor:
            try:
                question = (tuple(weight.shape), num_replicas, num_ranks)
                table = _answer(planned, original, question, old_global_expert_indices)
            except Exception as error:
                planned.say_once(logging.WARNING, f"not followed ({error!r}); vLLM's own policy goes on")
                table = None
            if table is not None:
                return table
            answer: torch.Tensor = original.rebalance_experts(
                weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices
            )
            return answer

    return PlannedEplbPolicy


def _answer(
    planned: PlannedMap,
    original: Any,
    question: tuple[tuple[int, ...], int, int],
    old_map: torch.Tensor | None,
) -> torch.Tensor | None:
    """The planned map ``[layers, slots]``, or None where vLLM's own policy has to decide.

    ``question`` is what vLLM asks for: ``(layers, experts)``, slots, ranks.
    """
    (layers, experts), slots, ranks = question
    reason = planned.misfit(layers=layers, experts=experts, slots=slots, ranks=ranks)
    if reason is None:
        reason = planned.disagreement(ranks)
    if reason is not None:
        if reason:
            planned.say_once(logging.WARNING, f"not followed: {reason}. vLLM's own policy goes on")
        return None
    planned.say_once(logging.INFO, f"experts go where it says: {layers} layers, {slots} slots, {ranks} ranks")
    table = planned.placement.physical_to_logical_map
    if old_map is not None:
        table = original.preserve_intragpu_slots(table, ranks, old_map.cpu().numpy())
    return torch.from_numpy(table.copy())


def _say(digest: str) -> None:
    store, rank = _meeting_point()
    store.set(_KEY.format(rank=rank), digest)


def _said_by_group() -> dict[int, str | None]:
    """What each rank of the EP group has said; never waits for one that said nothing."""
    from vllm.distributed.parallel_state import get_ep_group  # noqa: PLC0415 - engines are imported where they are

    store, _ = _meeting_point()
    said: dict[int, str | None] = {}
    for rank in get_ep_group().ranks:
        key = _KEY.format(rank=rank)
        said[rank] = store.get(key).decode() if store.check([key]) else None
    return said


def _meeting_point() -> tuple[Any, int]:
    from torch.distributed import distributed_c10d  # noqa: PLC0415 - not every build of torch has it

    return distributed_c10d._get_default_store(), distributed_c10d.get_rank()  # noqa: SLF001 - torch has no other way to the store that every process of a run has
