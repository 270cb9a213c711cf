"""The fleet's part of a running server's metrics page."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas import metrics as m
from moescope.schemas.attributes import EXCLUDED, PHASE, Phase
from moescope.schemas.errors import MissingExtraError, StoreUnavailableError
from moescope.schemas.fleet import (
    AwaitedRank,
    FindingCount,
    FindingKind,
    FleetJudgement,
    LayerBalance,
    LookAge,
    LookKind,
)
from moescope.schemas.records import Measurement, Window
from moescope.schemas.settings import Settings
from moescope.server.fleet_page import FleetPage
from moescope.server.own_metrics import OwnMetrics
from tests.server.otlp_requests import resource_of

JUDGEMENT = FleetJudgement(
    (
        LayerBalance(
            *("fleet", "0", Phase.DECODE, np.array([1])),
            ratio=np.array([2.3]),
            net_ratio=np.array([2.13]),
            ranks=np.array([0]),
            load_share=np.array([1.0]),
        ),
    ),
    findings=(FindingCount("fleet", "0", FindingKind.LAYER_IMBALANCED, 1),),
)
TOKENS = m.TOKENS.prometheus_name


class FakeJudge:
    """Says what a test tells it to; a real one is tested with the analysis."""

    def __init__(self) -> None:
        self.dsns: list[str] = []
        self.judgement = JUDGEMENT
        self.error: Exception | None = None
        self.look_error: Exception | None = None
        self.looks: list[LookKind] = []
        self.gate = threading.Event()
        self.gate.set()
        self.judged = threading.Semaphore(0)
        self.closed = threading.Event()

    def open(self, dsn: str) -> "FakeJudge":
        self.dsns.append(dsn)
        return self

    def judge(self) -> FleetJudgement:
        try:
            assert self.gate.wait(30)
            if self.error is not None:
                raise self.error
            return self.judgement
        finally:
            self.judged.release()

    def look_closer(self) -> LookKind | None:
        if self.look_error is not None:
            raise self.look_error
        return self.looks.pop() if self.looks else None

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def judge() -> FakeJudge:
    return FakeJudge()


def tokens_request(service: str, value: int, *, end_ns: int | None = None) -> bytes:
    end_ns = time.time_ns() if end_ns is None else end_ns
    record = Measurement(m.TOKENS, value, {PHASE: "decode", EXCLUDED: "none"})
    (body,) = OtlpPacker(resource_of(service, "one")).pack(Window(end_ns - 10**9, end_ns, (record,)))
    return body


def value_of(page: str, start: str) -> float | None:
    found = [line for line in page.splitlines() if line.startswith(start)]
    return float(found[0].rpartition(" ")[2]) if found else None


def eventually(server, start: str, expected: float | None) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if value_of(server.page(), start) == expected:
            return
        time.sleep(0.05)
    raise AssertionError(f"{start} is {value_of(server.page(), start)}, not {expected}")


def test_empty_store_gives_a_valid_page(server):
    page = server.page()

    assert "moescope_server_info" in page
    assert {line.partition("{")[0] for line in page.splitlines() if line.startswith("moe_")} == {
        "moe_contract_limit_seconds"
    }
    assert "NaN" not in page


def test_stored_windows_are_added_up_and_a_repeated_request_is_not(server):
    first, second = tokens_request("added", 13), tokens_request("added", 23)
    for body in (first, second, first):
        server.export(body)

    page = server.page()
    assert (
        value_of(page, TOKENS + '{ep_group="0",ep_rank="0",excluded="none",phase="decode",service="added"}')
        == 36
    )
    assert value_of(page, 'moescope_fleet_points_left_out_total{reason="repeated"}') == 1


def test_backfill_is_stored_and_is_no_traffic(server):
    server.export(tokens_request("history", 13, end_ns=time.time_ns() - 3_600 * 10**9))

    assert 'service="history"' not in server.page()
    assert server.sql("SELECT sum(tokens) FROM token_count WHERE service = 'history'") == [[13]]


def test_page_says_what_the_analysis_says_and_how_old_that_is(make_server, judge):
    server = make_server(open_judge=judge.open, fleet_page_interval_seconds=1)
    labels = '{ep_group="0",layer="1",phase="decode",service="fleet"}'
    eventually(server, "moe_layer_imbalance_net_ratio" + labels, 2.13)

    page = server.page()
    assert value_of(page, "moe_layer_imbalance_ratio" + labels) == 2.3
    assert value_of(page, 'moe_findings{ep_group="0",kind="layer_imbalanced",service="fleet"}') == 1
    assert 0 <= value_of(page, "moescope_fleet_judgement_age_seconds") < 30
    of_the_fleet = [line for line in page.splitlines() if not line.startswith(("#", "moescope_"))]
    assert value_of(page, "moescope_fleet_series ") == len(of_the_fleet) == 6
    assert judge.dsns == [f"http://127.0.0.1:{server.ports.sql}/moescope"]


def test_failure_is_counted_and_the_page_keeps_what_was_said_before(make_server, judge):
    server = make_server(open_judge=judge.open, fleet_page_interval_seconds=1)
    eventually(server, "moescope_fleet_judgement_failures_total", 0)
    assert judge.judged.acquire(timeout=30)
    judge.error = StoreUnavailableError("nobody answers")
    eventually(server, "moescope_fleet_judgement_failures_total", 1)

    assert "moe_layer_imbalance_ratio{" in server.page()
    assert value_of(server.page(), "moescope_fleet_judgement_age_seconds") > 0


def test_closer_looks_are_taken_between_judgements_and_say_how_old_they_are(make_server, judge):
    judge.looks = [LookKind.REPLAN, LookKind.STRAGGLERS]
    judge.judgement = dataclasses.replace(
        JUDGEMENT,
        awaited=(AwaitedRank("fleet", "0", 5, "slow_rank", 3.7),),
        look_ages=(LookAge(LookKind.STRAGGLERS, 79.0),),
    )
    server = make_server(open_judge=judge.open, fleet_page_interval_seconds=1)
    labels = '{ep_group="0",ep_rank="5",kind="slow_rank",service="fleet"}'
    eventually(server, "moe_straggler_ratio" + labels, 3.7)

    assert 79 <= value_of(server.page(), 'moescope_fleet_look_age_seconds{look="stragglers"}') < 110
    assert judge.judged.acquire(timeout=30)
    assert judge.judged.acquire(timeout=30)
    page = server.page()
    assert judge.looks == []
    for kind in ("stragglers", "replan"):
        assert value_of(page, f'moescope_fleet_look_duration_seconds{{look="{kind}"}}') >= 0


def test_a_look_that_fails_is_counted_and_does_not_keep_the_page_from_its_judgements(
    make_server, judge, caplog
):
    judge.look_error = StoreUnavailableError("nobody answers")
    server = make_server(open_judge=judge.open, fleet_page_interval_seconds=1)
    for _ in range(3):
        assert judge.judged.acquire(timeout=30)

    page = server.page()
    assert value_of(page, "moescope_fleet_judgement_failures_total") >= 2
    assert "moe_layer_imbalance_ratio{" in page
    assert caplog.text.count("keeps what an earlier closer look found: nobody answers") == 1


def test_scrape_never_waits_for_the_analysis(make_server, judge):
    judge.gate.clear()
    server = make_server(open_judge=judge.open)
    server.export(tokens_request("meanwhile", 79))

    assert 'service="meanwhile"' in server.page()
    assert "moe_layer_imbalance_ratio" not in server.page()
    judge.gate.set()
    server.stop()
    assert judge.closed.wait(30)


def test_server_without_the_analysis_says_what_its_page_lacks(make_server, caplog):
    def open_judge(dsn: str):
        raise MissingExtraError("the analysis", "dashboard")

    server = make_server(open_judge=open_judge)
    server.export(tokens_request("plain", 13))

    assert 'service="plain"' in server.page()
    server.stop()  # waits for the thread that judges
    assert "says nothing of imbalance and hot experts: the analysis needs packages" in caplog.text


def test_what_was_said_too_long_ago_leaves_the_page(judge):
    metrics = OwnMetrics()
    page = FleetPage(Settings(silent_after_seconds=1, fleet_page_forget_seconds=1), metrics)
    judge.error = StoreUnavailableError("nobody answers")
    page._judgement, page._judged_at = JUDGEMENT, time.monotonic()
    assert b"moe_layer_imbalance_ratio" in page.render()

    page._judged_at -= 2
    left = {line.partition("{")[0] for line in page.render().decode().splitlines() if line[0] != "#"}
    assert left == {"moe_contract_limit_seconds"}


def test_limits_of_the_latency_contract_are_those_of_the_settings(make_server):
    page = make_server(contract_ttft_seconds=13, contract_tpot_seconds=0.23).page()

    assert value_of(page, 'moe_contract_limit_seconds{kind="ttft"}') == 13
    assert value_of(page, 'moe_contract_limit_seconds{kind="tpot"}') == 0.23


def test_own_endpoint_is_reached_with_the_servers_token(make_server, judge, tmp_path):
    token = tmp_path / "token"
    token.write_text("a token/with:what a URL has@to quote")
    server = make_server(open_judge=judge.open, token_file=str(token), host="0.0.0.0")

    (dsn,) = judge.dsns
    quoted = "a%20token%2Fwith%3Awhat%20a%20URL%20has%40to%20quote"
    assert dsn == f"http://moescope:{quoted}@127.0.0.1:{server.ports.sql}/moescope"
