"""SGLang's own recorder and routers drive ours."""

import logging

import numpy as np
import pytest
import torch
import torch.distributed

from moescope.schemas import metrics
from tests.engines.sglang_engine import (
    KIMI_K3,
    Engine,
    ForwardMode,
    Graph,
    Hooked,
    KimiLinearConfig,
    batch_of,
    distinct_ids,
    dp_attention,
    expert_distribution,
    get_resources,
    placed,
)

pytestmark = pytest.mark.engine


def config(**changes):
    return KimiLinearConfig(**{**KIMI_K3, "num_hidden_layers": 5, "num_experts": 23, **changes})


def test_kimi_k3_is_counted_exactly_though_sglangs_own_recorder_refuses_it(serve, hooked):
    serve()
    k3 = KimiLinearConfig(**KIMI_K3)
    engine = Engine(hooked, k3).start()
    generator = torch.Generator().manual_seed(79)
    expected = np.zeros((2, 93, 896), dtype=np.int64)
    for phase, mode, lengths in ((0, ForwardMode.EXTEND, [13, 23]), (1, ForwardMode.DECODE, [1] * 7)):
        ids = {layer: distinct_ids(sum(lengths), 896, 16, generator) for layer in range(1, 93)}
        engine.forward(batch_of(mode, lengths), ids.get)
        for layer, chosen in ids.items():
            for row in chosen.tolist():  # one by one: a recount that shares nothing with what it checks
                for expert in row:
                    expected[phase, layer, expert] += 1

    hooked.close()

    assert counts_of(hooked, 93, 896).tolist() == expected.tolist()
    assert expected.sum() == 92 * 16 * (13 + 23 + 7)


@pytest.mark.parametrize("mode", ["stat", "per_pass", "per_token"])
def test_sglangs_own_recorder_beside_ours_sees_the_same_calls_until_its_own_limit(serve, hooked, mode):
    serve(
        expert_distribution_recorder_mode=mode,
        expert_distribution_recorder_buffer_size=8,
        chunked_prefill_size=13,
    )
    metadata = placed(torch.arange(23).repeat(5, 1), 23, 1)
    engine = Engine(hooked, config(num_experts_per_token=16), metadata=metadata).start()
    ids = distinct_ids(13, 23, 16, torch.Generator().manual_seed(7))
    recorder = expert_distribution.get_global_expert_distribution_recorder()
    recorder.start_record()

    if mode == "per_token":  # made for top-8
        with pytest.raises(RuntimeError, match="expanded size"):
            engine.forward(batch_of(ForwardMode.EXTEND, [13]), lambda layer: ids if layer else None)
    else:
        engine.forward(batch_of(ForwardMode.EXTEND, [13]), lambda layer: ids if layer else None)

    hooked.close()
    layers = 1 if mode == "per_token" else 4  # ours had counted the layer in which SGLang's fell
    assert counts_of(hooked, 5, 23)[0].sum() == layers * 13 * 16


def test_top_16_is_counted_where_no_recorder_of_sglangs_is_on(serve, hooked):
    serve()
    engine = Engine(hooked, config(num_experts_per_token=16)).start()
    ids = distinct_ids(13, 23, 16, torch.Generator().manual_seed(7))

    engine.forward(batch_of(ForwardMode.EXTEND, [13]), lambda layer: ids if layer else None)

    hooked.close()
    assert counts_of(hooked, 5, 23)[0].sum() == 4 * 13 * 16


@pytest.fixture
def one_process_group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_with_eplb_on_ours_equals_sglangs_own_dump_and_its_manager_gets_it(serve, hooked, one_process_group):
    serve(
        tp_size=2,
        ep_size=2,
        enable_eplb=True,
        ep_num_redundant_experts=5,
        ep_dispatch_algorithm="dynamic",
        expert_distribution_recorder_mode="stat",
        expert_distribution_recorder_buffer_size=8,
    )
    # 23 experts in 28 slots on two ranks: the first five twice, and nothing where its own id says.
    table = torch.stack([(torch.arange(28) * 3 + layer) % 23 for layer in range(5)])
    metadata = placed(table, 23, 2)
    get_resources().expert_location_metadata = metadata
    engine = Engine(hooked, config(num_experts_per_token=8), metadata=metadata).start(num_local_experts=14)
    recorder = expert_distribution.get_global_expert_distribution_recorder()
    recorder.start_record()
    generator = torch.Generator().manual_seed(13)
    for lengths in ([13, 10], [7]):
        ids = {layer: distinct_ids(sum(lengths), 23, 8, generator) for layer in range(1, 5)}
        engine.forward(batch_of(ForwardMode.EXTEND, lengths), ids.get)

    dumped = recorder.dump_record(output_mode="object")
    hooked.close()

    assert recorder.recording
    ours = counts_of(hooked, 5, 23)[0]
    assert ours.sum() == 4 * 8 * 30
    assert ours.tolist() == dumped["logical_count"].sum(dim=0).tolist()
    (replicas, *_) = hooked.exporters["rank"].records(metrics.EXPERT_REPLICAS)
    held = [np.bincount(table[layer, :14].numpy(), minlength=23).tolist() for layer in range(1, 5)]
    assert replicas.counts_per_row_index.tolist() == held


def test_a_map_that_eplb_rewrites_is_followed_within_a_captured_graph(serve, hooked):
    serve(tp_size=2, ep_size=2, init_expert_location="elsewhere", ep_dispatch_algorithm="dynamic")
    metadata = placed(torch.arange(24).repeat(5, 1) % 23, 23, 2)
    moved = placed((torch.arange(24).repeat(5, 1) + 7) % 23, 23, 2)
    get_resources().expert_location_metadata = metadata
    engine = Engine(hooked, config(num_experts_per_token=8), metadata=metadata).start()
    static_ids = distinct_ids(7, 23, 8, torch.Generator().manual_seed(3))
    with Graph() as graph:
        engine.run_layers(lambda layer: static_ids if layer else None)
    for _ in range(2):
        engine.model.forward = lambda _: graph.replay()
        engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), None)
        metadata.update(moved, update_layer_ids=[1, 2, 3, 4])

    hooked.close()

    assert (
        counts_of(hooked, 5, 23)[1, 1].tolist()
        == (2 * np.bincount(static_ids.flatten(), minlength=23)).tolist()
    )


def test_padding_rows_are_no_load_although_k3_routes_them_like_any_other(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    ids = distinct_ids(32, 23, 16, torch.Generator().manual_seed(5))

    engine.forward(batch_of(ForwardMode.DECODE, [1] * 23), lambda layer: ids if layer else None)

    hooked.close()
    assert counts_of(hooked, 5, 23)[1].sum() == 4 * 23 * 16
    assert tokens_of(hooked) == {"decode": 23, "padding": 9}


def test_a_replayed_graph_counts_what_its_static_buffers_hold_and_by_what_the_batch_says(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    static_ids = torch.zeros(8, 16, dtype=torch.int32)
    with Graph() as graph:
        engine.run_layers(lambda layer: static_ids if layer else None)
    engine.model.forward = lambda _: graph.replay()
    expected = np.zeros(23, dtype=np.int64)
    generator = torch.Generator().manual_seed(11)
    for live in (3, 8, 5):
        static_ids.copy_(distinct_ids(8, 23, 16, generator))
        expected += np.bincount(static_ids[:live].flatten(), minlength=23)
        engine.forward(batch_of(ForwardMode.DECODE, [1] * live), None)

    hooked.close()

    assert counts_of(hooked, 5, 23)[1, 1:].tolist() == [expected.tolist()] * 4
    # Before it is captured a graph runs to warm up.
    assert tokens_of(hooked) == {"decode": 16, "padding": 8, "warmup": 8}


def test_warm_up_passes_and_idle_ones_are_counted_apart(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    ids = distinct_ids(13, 23, 16, torch.Generator().manual_seed(5))

    def select(layer):
        return ids if layer else None

    made_up = batch_of(ForwardMode.EXTEND, [13])
    made_up.rids = None
    engine.forward(made_up, select)
    engine.forward(batch_of(ForwardMode.DECODE, [1] * 13), select)
    engine.forward(batch_of(ForwardMode.IDLE, global_num_tokens_cpu=[13, 0]), select)
    engine.run_layers(select)  # a graph that is captured anew

    hooked.close()
    assert tokens_of(hooked) == {"decode": 13, "dummy": 13, "warmup": 26}
    assert counts_of(hooked, 5, 23)[1].sum() == 4 * 13 * 16


def test_a_mixed_batch_is_counted_by_phase_in_batch_order(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    ids = distinct_ids(13 + 1 + 2, 23, 16, torch.Generator().manual_seed(5))
    batch = batch_of(ForwardMode.MIXED, [13, 1, 1, 1])
    # The second request is the last token of a prompt, and only the others after it decode.
    hooked.hook.mark_batch(batch, type(batch), type("Scheduled", (), {"decoding_reqs": [1, 2]})(), None)

    engine.forward(batch, lambda layer: ids if layer == 3 else None)

    hooked.close()
    counts = counts_of(hooked, 5, 23)
    assert counts[0, 3].tolist() == np.bincount(ids[:14].flatten(), minlength=23).tolist()
    assert counts[1, 3].tolist() == np.bincount(ids[14:].flatten(), minlength=23).tolist()
    assert tokens_of(hooked) == {"prefill": 14, "decode": 2}


def test_a_region_that_sglang_disables_is_not_counted(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))
    recorder = expert_distribution.get_global_expert_distribution_recorder()

    def select(layer):
        if layer == 4:
            with recorder.disable_this_region():
                engine.hand_over(layer, ids)
            return None
        return ids if layer else None

    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), select)

    hooked.close()
    assert counts_of(hooked, 5, 23)[1].sum(axis=1).tolist() == [0, 7 * 16, 7 * 16, 7 * 16, 0]


def test_a_draft_models_layers_are_not_taken_for_the_targets(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    draft = Engine(hooked, config(num_hidden_layers=3), is_draft=True).start()
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))

    def select(layer):
        return ids if layer else None

    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), select)
    draft.forward(batch_of(ForwardMode.DECODE, [1] * 5), select)
    draft.model.forward(select)  # as its graphs are captured
    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), select)

    hooked.close()
    assert counts_of(hooked, 5, 23)[1].sum() == 2 * 4 * 7 * 16
    assert tokens_of(hooked) == {"decode": 14}


def test_a_failure_of_the_hook_ends_the_counting_and_not_the_pass(serve, hooked, caplog):
    serve(expert_distribution_recorder_mode="stat", expert_distribution_recorder_buffer_size=8)
    metadata = placed(torch.arange(23).repeat(5, 1), 23, 1)
    engine = Engine(hooked, config(num_experts_per_token=8), metadata=metadata).start()
    expert_distribution.get_global_expert_distribution_recorder().start_record()
    ids = distinct_ids(7, 23, 8, torch.Generator().manual_seed(5))
    wrong = torch.zeros(7)  # one axis: nothing that a router hands out

    with caplog.at_level(logging.ERROR, "moescope"):
        for _ in range(3):
            engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), lambda layer: ids if layer else None)
            hooked.hook.rank.enter_layer(1)
            hooked.hook.rank.select(wrong)

    hooked.close()
    assert counts_of(hooked, 5, 23)[1].sum() == 4 * 7 * 8
    assert [record.message for record in caplog.records] == [
        "moescope: expert load is not counted any more; serving goes on"
    ]


def test_copies_of_state_are_counted_once_for_a_prefill_that_runs_in_parts(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start()
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))

    for part, layers in enumerate(((1, 2), (3, 4))):
        batch = batch_of(
            ForwardMode.SPLIT_PREFILL,
            [7],
            extend_seq_lens_cpu=[7],
            split_index=part,
            mamba_cow_src_indices=[13, 23, 79],
            mamba_prefill_track_mask_cpu=[True],
        )
        engine.forward(batch, lambda layer, layers=layers: ids if layer in layers else None)

    hooked.close()
    copies = {
        r.attributes["moe.reason"]: r.value
        for r in hooked.exporters["rank"].records(metrics.KDA_STATE_COPIES)
    }
    assert copies == {"copy_on_write": 3, "checkpoint": 1}
    assert tokens_of(hooked) == {"prefill": 7}
    assert counts_of(hooked, 5, 23)[0].sum() == 4 * 7 * 16


@pytest.mark.parametrize("part", ["timing", "copies", "placement"])
def test_a_part_that_fails_leaves_the_expert_load_as_it_is(serve, hooked, caplog, monkeypatch, part):
    serve()
    engine = Engine(hooked, config(), metadata=placed(torch.arange(23).repeat(5, 1), 23, 1)).start()
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))
    rank = hooked.hook.rank
    if part == "timing":
        monkeypatch.setattr(rank._setup.timing, "begin", [].pop)
    elif part == "placement":
        monkeypatch.setattr(rank._placement, "look", [].pop)

    for _ in range(3):
        batch = batch_of(ForwardMode.DECODE, [1] * 7)
        if part == "copies":
            batch.mamba_cow_src_indices = 13  # of another version
        engine.forward(batch, lambda layer: ids if layer else None)

    hooked.close()
    assert counts_of(hooked, 5, 23)[1].sum() == 3 * 4 * 7 * 16
    assert tokens_of(hooked) == {"decode": 21}
    (logged,) = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.endswith(("not timed any more; serving goes on", "any more; serving goes on"))
    steps = observations(hooked.exporters["rank"], metrics.STEP_DURATION)
    assert steps == ({} if part == "timing" else {("decode",): 3})


def test_dense_models_and_deployments_out_of_reach_are_left_alone(serve, hooked, caplog):
    serve(enable_two_batch_overlap=True)
    engine = Engine(hooked, config()).start()
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))

    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), lambda layer: ids if layer else None)

    assert "--enable-two-batch-overlap" in caplog.text
    assert hooked.recorders == []


def test_only_the_layers_that_a_pipeline_stage_has_are_reported(serve, hooked):
    serve()
    engine = Engine(hooked, config()).start(layers=[2, 3])
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))

    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), lambda layer: ids if layer in (2, 3) else None)

    hooked.close()
    (recorder,) = hooked.recorders
    assert recorder.identity.shape.moe_layers == (2, 3)
    (size,) = {r.value for r in hooked.exporters["rank"].records(metrics.EXPERT_WEIGHT_SIZE)}
    assert size == 4 * (3 * 5 + 5 * 3)


def test_with_attention_dp_each_rank_counts_its_own_of_the_gathered_rows(serve):
    """Two ranks gather 5 and 6 rows, both padded to 6, and route all 12."""
    gathered = distinct_ids(12, 23, 16, torch.Generator().manual_seed(5))
    expected = np.bincount(torch.cat((gathered[:5], gathered[6:])).flatten(), minlength=23)
    counted = np.zeros(23, dtype=np.int64)
    for rank, own in enumerate((5, 6)):
        serve(rank=rank, tp_size=2, attn_dp_size=2, ep_size=2)
        dp_attention.set_dp_buffer_len(12, 6, True, [6, 6])
        hooked = Hooked()
        engine = Engine(hooked, config()).start()
        batch = batch_of(ForwardMode.DECODE, [1] * own, global_num_tokens_cpu=[5, 6])
        engine.forward(batch, lambda layer: gathered if layer == 2 else None)
        hooked.close()
        counted += counts_of(hooked, 5, 23)[1, 2]
        (recorder,) = hooked.recorders
        assert (recorder.identity.grid.ep_rank, recorder.identity.grid.ep_size) == (rank, 2)

    assert counted.tolist() == expected.tolist()


@pytest.mark.parametrize("a2a", [None, "deepep"])
def test_passes_are_timed_and_their_layers_where_they_run_eagerly(serve, hooked, monkeypatch, a2a):
    monkeypatch.setenv("MOESCOPE_TIMING_SAMPLE", "1")
    serve(a2a=a2a)
    engine = Engine(hooked, config()).start(layers=[1, 2, 3, 4])
    ids = distinct_ids(7, 23, 16, torch.Generator().manual_seed(5))

    def select(layer):
        return ids if layer else None

    engine.forward(batch_of(ForwardMode.EXTEND, [7]), select)
    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), select)
    engine.forward(batch_of(ForwardMode.DECODE, [1] * 7), select)
    engine.forward(batch_of(ForwardMode.IDLE), select)

    hooked.close()
    exporter = hooked.exporters["rank"]
    assert observations(exporter, metrics.STEP_DURATION) == {("prefill",): 1, ("decode",): 2}
    assert sum(r.sum for r in exporter.records(metrics.STEP_TOKENS)) == 21
    timed_layers = {tuple(np.flatnonzero(r.counts_per_row_index[0])) for r in kernels(exporter)}
    assert timed_layers == {(1, 2, 3, 4)}
    exchanged = observations(exporter, metrics.DISPATCH_DURATION)
    stages = {("dispatch", "prefill"): 4, ("combine", "prefill"): 4}
    stages |= {("dispatch", "decode"): 8, ("combine", "decode"): 8}
    # Without an all-to-all nothing is exchanged, whatever the dispatcher is called.
    assert exchanged == (stages if a2a else {})


def kernels(exporter):
    return exporter.records(metrics.EXPERT_GROUP_DURATION)


def observations(exporter, metric):
    totals = {}
    for record in exporter.records(metric):
        key = tuple(record.attributes.values())
        totals[key] = totals.get(key, 0) + int(record.bucket_counts.sum())
    return totals


def counts_of(hooked, num_layers, num_experts):
    """Sums over all windows: int64 ``[phases, layers, experts]``."""
    counts = np.zeros((2, num_layers, num_experts), dtype=np.int64)
    for record in hooked.exporters["rank"].records(metrics.EXPERT_TOKENS):
        phase = ("prefill", "decode").index(record.attributes["moe.phase"])
        counts[phase, record.layers] += record.counts_per_row_index
    return counts


def tokens_of(hooked):
    """Token rows by phase, or by why they are excluded."""
    totals = {}
    for record in hooked.exporters["rank"].records(metrics.TOKENS):
        key = record.attributes.get("moe.phase") or record.attributes["moe.excluded"]
        totals[key] = totals.get(key, 0) + record.value
    return {key: total for key, total in totals.items() if total}
