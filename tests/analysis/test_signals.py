"""What a gateway is told: known numbers from a store, each with age and confidence, and nothing guessed."""

import json

import pytest
from jsonschema import Draft202012Validator

from moescope.analysis.endpoint_signals import describe_endpoint, find_limits
from moescope.analysis.signals import SignalReader
from moescope.analysis.store import open_store
from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from moescope.schemas.signals import Confidence, EndpointLimits
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet

FLEET = KnownFleet(num_ranks=7, num_layers=3, minutes=3)
SETTINGS = Settings(rank_hour_price=3.5)
NOW_MS = FLEET.end_s * 1000 + 13_000
LIMITS = (
    EndpointLimits("known-fleet", "", 1_048_576, ("text", "image")),
    EndpointLimits("known-fleet", "blue", 8_192),
    EndpointLimits("gone-fleet", "0", 79),
)


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    return known.make_telemetry_store(tmp_path_factory.mktemp("signals") / "store", FLEET)


@pytest.fixture(scope="module")
def signals(dsn):
    reader = SignalReader(dsn, SETTINGS, LIMITS, clock_ms=lambda: NOW_MS)
    yield reader.read()
    reader.close()


@pytest.fixture
def endpoint(signals):
    return next(one for one in signals.endpoints if one.service == FLEET.service)


def test_answer_is_what_its_schema_says(signals):
    for service in (None, "known-fleet", "elsewhere"):
        printed = json.loads(json.dumps(signals.to_dict(service), allow_nan=False))
        assert list(Draft202012Validator(read_report_schema("signals")).iter_errors(printed)) == []
    assert signals.to_dict("elsewhere")["endpoints"] == []


def test_every_signal_of_the_schema_is_there(endpoint):
    schema = read_report_schema("signals")["properties"]["endpoints"]["items"]["properties"]
    printed = endpoint.to_dict()
    for kind in ("load", "state", "economics"):
        assert [*printed[kind]] == [*schema[kind]["properties"]]


def test_minute_says_how_many_processes_reported(dsn):
    store = open_store(dsn)
    rows = store.query("routing_signals", start_ms=0, end_ms=NOW_MS).to_pylist()
    store.close()
    assert [row["processes"] for row in rows] == [FLEET.num_ranks + 2] * FLEET.minutes, (
        "with a front end and a scheduler"
    )


def test_endpoint_says_who_it_is(endpoint):
    assert (endpoint.ep_group, endpoint.role, endpoint.host) == ("0", "mixed", "node-0")
    assert endpoint.instance == "known-fleet-0-frontend"


def test_caches_are_two_numbers_and_what_is_free_is_what_nobody_holds(endpoint):
    load = endpoint.load
    assert (load["kda_slots_free"].value, load["kda_slots_limit"].value) == (128 - 79, 128)
    assert (load["mla_blocks_free"].value, load["mla_blocks_limit"].value) == (7_919 - 2_302, 7_919)
    assert load["kda_slots_free"].unit == "{slot}"
    assert load["kda_slots_free"].age_seconds == 13
    assert load["kda_slots_free"].confidence is Confidence.MEDIUM, "one window a minute"


def test_load_and_latency_are_those_of_the_known_requests(endpoint):
    load = endpoint.load
    assert (load["requests_running"].value, load["requests_waiting"].value) == (23, 7)
    assert load["decode_tokens_per_second"].value == pytest.approx(FLEET.tokens_per_minute / 60)
    assert load["decode_best_tokens_per_second"].value == pytest.approx(FLEET.tokens_per_minute / 60)
    assert load["decode_headroom_ratio"].value == pytest.approx(0, abs=1e-9)
    assert 0.25 < load["ttft_p50_seconds"].value <= 0.5, "in the bucket of the good ones"
    assert load["ttft_p50_seconds"].observations == 3 * (known.GOOD_REQUESTS + known.SLOW_REQUESTS)
    assert load["ttft_p50_seconds"].confidence is Confidence.HIGH
    assert load["tpot_p90_seconds"].value == pytest.approx(known.TPOT_SECONDS, rel=0.5)


def test_prefix_and_cost_cover_the_window(endpoint):
    assert endpoint.state["prefix_hit_ratio"].value == pytest.approx(0.83)
    assert endpoint.state["prefix_partial_hit_ratio"].value == pytest.approx(0.13)
    good_tokens = 3 * known.GOOD_REQUESTS * known.OUTPUT_TOKENS
    cost = 3.5 * FLEET.num_ranks * 3 / 60 / good_tokens * 1000
    assert endpoint.economics["cost_per_thousand_good_tokens"].value == pytest.approx(cost)


def test_limits_are_those_of_the_group_or_of_its_deployment(endpoint):
    assert endpoint.limits == LIMITS[0]
    assert find_limits(LIMITS, "known-fleet", "blue") == LIMITS[1]
    assert find_limits(LIMITS, "unknown-fleet", "0") is None
    eligibility = endpoint.to_dict()["eligibility"]
    assert (eligibility["status"], eligibility["max_context_tokens"]) == ("configured", 1_048_576)


def test_endpoint_that_is_configured_and_silent_is_not_left_out(signals):
    gone = next(one for one in signals.endpoints if one.service == "gone-fleet")
    assert gone.load["decode_tokens_per_second"].confidence is Confidence.NONE
    assert gone.to_dict()["eligibility"]["max_context_tokens"] == 79


# --- without a store ----------------------------------------------------------------------------------------


def _minute(at: int, **changes):
    empty = dict.fromkeys(("prefill", "decode", "kda_free", "kda_limit", "mla_free", "mla_limit"))
    empty |= dict.fromkeys(("running", "waiting", "found", "partial"))
    counted = dict.fromkeys(("looked_up", "finished", "good_tokens", "rank_seconds"), 0)
    who = {"service": "fleet", "ep_group": "0", "role": "decode", "host": "", "instance": "", "windows": 6}
    who["processes"] = 13
    times = {"time_ms": at * 60_000, "newest_ms": (at + 1) * 60_000}
    return who | times | empty | counted | changes


def _describe(*rows, now_minute=13.0):
    return describe_endpoint(rows, [], SETTINGS, (), now_ms=round(now_minute * 60_000))


def test_signal_that_only_an_older_minute_has_is_that_old():
    endpoint = _describe(_minute(8, kda_free=7, kda_limit=79), _minute(12, decode=23.0))
    assert endpoint.load["kda_slots_free"].value == 7
    assert endpoint.load["kda_slots_free"].age_seconds == 240
    assert endpoint.load["kda_slots_free"].confidence is Confidence.LOW
    assert endpoint.load["decode_tokens_per_second"].age_seconds == 0


def test_minute_in_which_not_all_ranks_reported_yet_is_no_state_of_the_endpoint():
    """Windows of ranks end at different times: 3 of 13 ranks hold 3 / 13 of the slots, and do as much."""
    before = _minute(11, kda_free=79, kda_limit=130, decode=1300.0, running=23.0)
    begun = _minute(12, kda_free=9, kda_limit=30, decode=300.0, running=3.0, processes=3)
    begun["newest_ms"] = before["newest_ms"] + 4_000
    load = _describe(before, begun, now_minute=12.1).load
    assert (load["kda_slots_free"].value, load["kda_slots_limit"].value) == (79, 130)
    assert (load["decode_tokens_per_second"].value, load["requests_running"].value) == (1300, 23)
    assert load["decode_headroom_ratio"].value == 0
    assert load["kda_slots_free"].age_seconds == pytest.approx(6)
    assert load["kda_slots_free"].confidence is Confidence.HIGH


def test_endpoint_that_lost_ranks_for_good_says_what_is_left():
    whole = _minute(10, kda_limit=130)
    lost = [_minute(at, kda_limit=30, processes=3) for at in (11, 12)]
    assert _describe(whole, *lost).load["kda_slots_limit"].value == 30


def test_headroom_is_against_the_best_of_the_last_minutes():
    endpoint = _describe(*(_minute(at, decode=100.0) for at in range(12)), _minute(12, decode=25.0))
    assert endpoint.load["decode_best_tokens_per_second"].value == 100
    assert endpoint.load["decode_headroom_ratio"].value == 0.75
    assert endpoint.load["decode_headroom_ratio"].observations == 13


def test_best_rate_looks_back_as_far_as_its_setting_and_prefix_hits_as_far_as_theirs():
    """Whichever of the two is longer."""
    rows = [_minute(at, decode=79.0 - 6 * at, looked_up=100, found=at) for at in range(13)]
    short = Settings(signals_capacity_seconds=120, signals_window_seconds=600)
    endpoint = describe_endpoint(rows, [], short, (), now_ms=13 * 60_000)
    assert endpoint.load["decode_best_tokens_per_second"].observations == 2
    assert endpoint.load["decode_best_tokens_per_second"].value < 79 - 6 * 10
    assert endpoint.state["prefix_hit_ratio"].value == pytest.approx(sum(range(3, 13)) / 1000)


def test_reader_looks_as_far_back_as_the_longer_setting(dsn):
    """Both minutes before the newest are outside the capacity's span, and inside the window's."""
    settings = Settings(signals_capacity_seconds=60, signals_window_seconds=300)
    reader = SignalReader(dsn, settings, clock_ms=lambda: NOW_MS)
    (endpoint,) = reader.read().endpoints
    reader.close()
    assert endpoint.load["decode_best_tokens_per_second"].observations == 1
    assert endpoint.state["prefix_hit_ratio"].value == pytest.approx(0.83)
    good = known.GOOD_REQUESTS + known.SLOW_REQUESTS
    assert endpoint.state["prefix_hit_ratio"].observations == FLEET.minutes * good


def test_what_nobody_reported_has_no_value_and_is_not_zero():
    endpoint = _describe(_minute(12))
    for signal in (*endpoint.load.values(), *endpoint.state.values(), *endpoint.economics.values()):
        assert (signal.value, signal.confidence) == (None, Confidence.NONE)
    assert endpoint.limits is None
    assert endpoint.to_dict()["eligibility"]["status"] == "not configured"


def test_prefix_of_a_group_that_only_prefills_is_told_by_its_windows():
    endpoint = _describe(*(_minute(at, looked_up=100, found=79, partial=13) for at in (10, 11, 12)))
    hit = endpoint.state["prefix_hit_ratio"]
    assert (hit.value, hit.observations, hit.evidence.value) == (0.79, 3, "windows")


def test_reader_says_where_there_is_no_store(tmp_path):
    reader = SignalReader(f"chdb://{tmp_path}/nothing", SETTINGS)
    with pytest.raises(StoreUnavailableError, match="no store at"):
        reader.read()
    reader.close()
