"""The page of traffic: matrices whose every cell is known."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from moescope.analysis import report
from moescope.analysis.store import open_store
from tests.analysis import known_telemetry
from tests.analysis.known_telemetry import bytes_between
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/traffic.py"
FLEET = KnownFleet(num_ranks=7, num_layers=3, num_experts=79, minutes=3)


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


def _cells(trace):
    packed = trace["z"]
    shape = [int(part) for part in packed["shape"].split(",")]
    return np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"]).reshape(shape)


def _matrix(figure_of, page, key="traffic_matrix", index=0):
    return [trace for trace in figure_of(page, key)["data"] if trace["type"] == "heatmap"][index]


def test_cells_are_bytes_a_second_from_row_to_column(open_page, dsn, figure_of):
    cells = _cells(_matrix(figure_of, open_page(PAGE, dsn)))
    sent = [[bytes_between(rank, peer) / 60 for peer in range(7)] for rank in range(7)]
    np.testing.assert_allclose(cells, sent)


@pytest.mark.parametrize(("value", "cell"), [("tokens", 23 / 60), ("assignments", 79 / 60)])
def test_tokens_and_assignments_are_chosen_in_the_address(open_page, dsn, figure_of, value, cell):
    page = open_page(PAGE, dsn, matrix=value, phase="prefill")
    np.testing.assert_allclose(_cells(_matrix(figure_of, page)), np.full((7, 7), cell))
    assert "Between ranks, prefill" in [heading.value for heading in page.subheader]


def test_received_is_sent_seen_from_the_other_side(open_page, dsn, figure_of):
    sent = _cells(_matrix(figure_of, open_page(PAGE, dsn)))
    received = _cells(_matrix(figure_of, open_page(PAGE, dsn, matrix="bytes received")))
    np.testing.assert_allclose(sent, received.T)


def test_nodes_are_outlined_and_named_with_how_far_tokens_travel(open_page, dsn, figure_of, texts):
    page = open_page(PAGE, dsn, matrix="tokens")
    frames = [
        (mark["x0"], mark["x1"], mark["y0"], mark["y1"])
        for mark in figure_of(page, "traffic_matrix")["layout"]["shapes"]
        if mark["type"] == "rect"
    ]
    assert frames == [(-0.5, 3.5, -0.5, 3.5), (3.5, 6.5, 3.5, 6.5)]
    said = texts(page)
    assert "Frames are nodes: node-0 (ranks 0–3), node-1 (ranks 4–6)." in said
    assert "Of the tokens 14 % stay on their rank, 37 % go to other ranks of the node and 49 % to" in said


def test_assignments_stand_beside_the_tokens_that_travel(open_page, dsn, figure_of):
    bars = figure_of(open_page(PAGE, dsn), "deduplication")["data"]
    assert [bar["name"] for bar in bars] == ["assignments", "tokens, each sent once to a rank"]
    assert all("assignments are saved" in bar["hovertemplate"] for bar in bars)


def test_key_numbers_say_deduplication_and_what_leaves_the_node(open_page, dsn):
    shown = {metric.label: metric.value for metric in open_page(PAGE, dsn).metric}
    assert shown["Assignments a token"] == "3.43 ×"
    assert shown["Leaves the node"].endswith(" %")
    assert shown["Busiest pair"] == "6 → 5"


def test_everybody_waits_for_the_last_rank_but_itself(open_page, dsn, figure_of):
    page = open_page(PAGE, dsn)
    for index in range(2):
        cells = _cells(_matrix(figure_of, page, "wait_matrix", index))
        assert cells.sum(axis=0).argmax() == 6
        np.testing.assert_allclose(cells[:6, 6], 0.023)
        assert cells[6, 6] == 0


def test_cycles_are_shown_against_the_mean_pair_and_said_to_be_no_time(
    open_page, make_telemetry_dsn, monkeypatch, figure_of, texts
):
    identity = known_telemetry.rank_identity
    monkeypatch.setattr(
        known_telemetry, "rank_identity", lambda *args: replace(identity(*args), engine="sglang")
    )
    dsn = make_telemetry_dsn(FLEET)
    page = open_page(PAGE, dsn)
    assert "clock cycles" in texts(page)
    mean = (6 * 23_000_000 + 36 * 7_000) / 42
    cells = _cells(_matrix(figure_of, page, "wait_matrix"))
    np.testing.assert_allclose(cells[:6, 6], 23_000_000 / mean)
    assert "× the mean pair" in json.dumps(figure_of(page, "wait_matrix"), ensure_ascii=False)
    assert "seconds a minute" not in json.dumps(figure_of(page, "wait_matrix"))
    store = open_store(dsn)
    answer = report.traffic(store, window_seconds=900.0)
    store.close()
    share = 6 * 23_000_000 * 7 / (6 * 23_000_000 + 36 * 7_000)
    text = " ".join(answer.to_text().split())
    assert f"longest for rank 6: {share:.2f} × the mean rank. The engine counts clock cycles" in text
    (group,) = answer.to_dict()["groups"]
    assert "wait_seconds" not in group["waits"][0]
    assert group["waits"][0]["waits_of_mean_pair"][0][6] == pytest.approx(23_000_000 / mean)


def test_phase_that_is_not_served_is_explained(open_page, make_telemetry_dsn):
    from moescope.schemas.attributes import Phase

    fleet = KnownFleet(num_ranks=2, num_layers=2, minutes=1, phases=(Phase.DECODE,))
    page = open_page(PAGE, make_telemetry_dsn(fleet), phase="prefill")
    assert "`moe.rank.io`" in page.info[0].value
    assert not page.exception
