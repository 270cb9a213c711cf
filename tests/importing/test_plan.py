from pathlib import Path

import numpy as np
import pytest

from moescope.collector.recordings.recording import RecordedPass, Recording
from moescope.importing.plan import make_import_plan
from moescope.schemas.attributes import Phase
from moescope.schemas.errors import RecordingError

RNG = np.random.default_rng(13)
LAYERS, EXPERTS, TOP_K = 5, 32, 4


def load(tokens: int) -> np.ndarray:
    """Counts of a pass whose first layer is dense."""
    counts = np.zeros((LAYERS, EXPERTS), dtype=np.int32)
    for layer in range(1, LAYERS):
        for _ in range(tokens):
            counts[layer, RNG.permutation(EXPERTS)[:TOP_K]] += 1
    return counts


def warmup(tokens: int) -> np.ndarray:
    counts = np.zeros((LAYERS, EXPERTS), dtype=np.int32)
    counts[1:, 3 : 3 + TOP_K] = tokens
    return counts


def recording(*passes: np.ndarray, phase: Phase | None = None, **more) -> Recording:
    return Recording(
        kind="test",
        passes=[RecordedPass(one, phase) for one in passes],
        num_layers=LAYERS,
        num_experts=EXPERTS,
        **more,
    )


def plan_of(made: Recording, **options):
    options = {"ep_size": None, "top_k": None, "phase": Phase.DECODE, **options}
    return make_import_plan(made, [], service="s", **options)


def test_layers_without_a_count_are_dense():
    plan = plan_of(recording(load(13), load(23), load(79), top_k=TOP_K))

    assert plan.dense_layers == (0,)
    assert plan.shape.moe_layers == (1, 2, 3, 4)
    assert plan.tokens(Phase.DECODE) == 13 + 23 + 79
    assert plan.assignments() == (13 + 23 + 79) * TOP_K * 4


def test_the_top_k_is_what_all_sums_are_multiples_of():
    plan = plan_of(recording(*map(load, range(13, 25))))

    assert plan.shape.top_k == TOP_K
    assert plan.is_top_k_inferred


def test_sums_that_do_not_tell_the_top_k_are_not_guessed_from():
    for few in ([13], range(13, 24)):
        with pytest.raises(RecordingError, match="--top-k"):
            plan_of(recording(*map(load, few)))

    plan = plan_of(recording(load(13)), top_k=TOP_K)
    assert (plan.tokens(Phase.DECODE), plan.is_top_k_inferred) == (13, False)


def test_three_sums_that_happen_to_be_even_do_not_double_the_top_k():
    tokens = (24, 40, 56)  # times four: all are multiples of 32, which is no top-k of theirs

    with pytest.raises(RecordingError, match="its sums do not tell"):
        plan_of(recording(*map(load, tokens)))


def test_a_top_k_that_contradicts_the_recording_is_refused():
    with pytest.raises(RecordingError, match="--top-k 8: tokens of the recording take 4"):
        plan_of(recording(load(13), top_k=4), top_k=8)


def test_passes_of_one_route_are_warmup_and_counted_apart():
    plan = plan_of(recording(load(13), warmup(16384), load(23), top_k=TOP_K))

    assert (plan.warmup_passes, plan.warmup_tokens) == (1, 16384)
    assert plan.tokens(Phase.DECODE) == 36


def test_a_recording_of_nothing_but_warmup_says_how_to_count_it():
    made = recording(warmup(16384), top_k=TOP_K)

    with pytest.raises(
        RecordingError, match=r"16384 tokens of identical routes and nothing else.*--keep-identical"
    ):
        plan_of(made)
    assert plan_of(made, keeps_identical=True).tokens(Phase.DECODE) == 16384


def test_a_phase_that_the_file_does_not_say_must_be_given():
    with pytest.raises(RecordingError, match="--phase prefill or --phase decode"):
        plan_of(recording(load(13), top_k=TOP_K), phase=None)

    said = plan_of(recording(load(13), top_k=TOP_K, phase=Phase.PREFILL), phase=Phase.DECODE)
    assert said.tokens(Phase.PREFILL) == 13, "what the file says wins"


def test_the_map_of_the_recording_is_the_placement_of_its_moe_layers():
    table = np.tile(np.arange(36) % EXPERTS, (LAYERS, 1))
    plan = plan_of(
        recording(load(13), top_k=TOP_K, physical_to_logical_map=table, ranks=(0, 1, 2)), phase=Phase.PREFILL
    )

    assert plan.ep_size == 3
    assert plan.placement.replicas_per_layer_expert()[0, :5].tolist() == [2, 2, 2, 2, 1]


def test_ranks_that_do_not_divide_the_slots_say_what_to_give():
    table = np.tile(np.arange(EXPERTS), (LAYERS, 1))

    with pytest.raises(RecordingError, match=r"32 slots do not divide over 3 ranks; .*--ep-size"):
        plan_of(recording(load(13), top_k=TOP_K, physical_to_logical_map=table), ep_size=3)


def test_layers_that_disagree_are_said():
    odd = load(13)
    odd[2, 0] += 1

    [remark] = plan_of(recording(odd, top_k=TOP_K)).remarks
    assert "different numbers of tokens" in remark


def test_an_empty_recording_is_refused():
    with pytest.raises(RecordingError, match="every row of it is zero"):
        plan_of(recording())


def test_the_digest_is_of_the_content_whatever_the_names_and_their_order(tmp_path: Path):
    def digest(*files: str) -> str:
        options = {"service": "s", "ep_size": None, "top_k": TOP_K, "phase": Phase.DECODE}
        return make_import_plan(recording(load(13)), [tmp_path / name for name in files], **options).digest

    for name, content in (("a", "13"), ("b", "23"), ("c", "13")):
        (tmp_path / name).write_text(content)

    assert digest("a", "b") == digest("b", "a") == digest("b", "c")
    assert digest("a", "b") != digest("a")
