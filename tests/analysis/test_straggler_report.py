"""Stragglers in a terminal, as JSON and as findings; and read from a store."""

import json

import jsonschema
import numpy as np
import pytest

from moescope.analysis import report
from moescope.analysis.finding import Severity
from moescope.analysis.findings import list_findings
from moescope.analysis.quality import judge_quality
from moescope.analysis.span import Span, cover, list_deployments
from moescope.analysis.store import open_store
from moescope.analysis.straggler_evidence import StragglerEvidence, StragglerRules
from moescope.analysis.straggler_findings import list_straggler_findings
from moescope.analysis.straggler_reader import read_straggler_evidence
from moescope.analysis.straggler_report import StragglerAnswer, StragglerReport, answer_from
from moescope.schemas.attributes import DispatchStage, Phase
from moescope.schemas.report_schema import read_report_schema
from moescope.schemas.settings import Settings
from tests.analysis import known_telemetry as known
from tests.analysis.known_workloads import KnownFleet
from tests.analysis.straggler_worlds import World, deepep_evidence

SPAN = Span("fleet", "0", 0, 420_000, 420_000, 60)
FLEET = KnownFleet(num_ranks=13, num_layers=5, minutes=7)
SETTINGS = Settings()


def answer(evidence: StragglerEvidence) -> StragglerAnswer:
    return answer_from(SPAN, evidence, StragglerRules(), 3)


def report_of(*evidence: StragglerEvidence) -> StragglerReport:
    return StragglerReport(tuple(answer(one) for one in evidence), None)


EVERYTHING = {
    "slow rank": World(slow={5: 2.5}).evidence(),
    "overloaded rank": World(load={5: 3.0}).evidence(),
    "slow link": World(links={(1, 6): 5e-3}).evidence("waits"),
    "slow node": World(16, 8, slow=dict.fromkeys(range(8, 16), 6.0)).evidence("waits"),
    "slow way": World(16, 8, links={(rank, 3): 0.02 for rank in range(8, 16)}).evidence("waits"),
    "published matrix": deepep_evidence(hosts=False),
    "without waits": World(slow={5: 2.5}).evidence("times experts loads"),
    "from calls": World(slow={5: 2.5}).evidence("times calls experts loads"),
    "ordinary": World(silent=(2,), knows_hosts=False).evidence(),
    "lock step": World().evidence("times"),
    "two ranks": World(2).evidence(),
    "nothing": StragglerEvidence(ranks=np.arange(0), starts_ms=np.arange(0), window_seconds=60.0),
}


def test_rank_that_fell_silent_is_named_where_no_wait_shows_it():
    made = answer_from(SPAN, World().evidence(), StragglerRules(), 3, silent_ranks=(7,))
    text = " ".join("\n".join(made.lines(100)).split())

    assert "Nobody is waited for unusually long" in text
    assert (
        "Not known: Rank 7 is silent and may be dead, which no wait shows: `moescope report failover "
        "--rank 7` says what went with it."
    ) in text
    jsonschema.validate(StragglerReport((made,), None).to_dict(), read_report_schema("stragglers"))


@pytest.mark.parametrize("name", EVERYTHING)
def test_text_fits_a_terminal_and_json_its_schema(name):
    made = report_of(EVERYTHING[name])
    assert max(len(line) for line in made.to_text(100).splitlines()) <= 100
    printed = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    jsonschema.validate(printed, read_report_schema("stragglers"))


def test_slow_rank_is_said_in_a_sentence_with_numbers_and_the_way_out():
    made = report_of(EVERYTHING["slow rank"])
    text = made.to_text(200)
    assert made.has_problem
    assert "Rank 5 is slow: its experts take 2.49 × what other ranks need for the same load." in text
    assert "In 5 of the newest 5 windows of 1 min, 7 of 7 in all, since 00:00 UTC." in text
    assert "Each other rank loses 45 % of its time to it" in text
    assert "No placement of experts cures it." in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("overloaded rank", "Rank 5 is overloaded, with 2.97 × the median rank's load: the others wait"),
        ("slow link", "The link from rank 6 to rank 1 is slow:"),
        ("slow node", "Node node-1 is slow: other nodes wait"),
        ("slow way", "Rank 3 has a slow link to other nodes: other nodes wait"),
        ("published matrix", "Rank 2 is slow: the others wait 4.25 k × as long for it as is usual"),
        ("published matrix", "Not known: Ranks 7, 8, 9, 10, 11, 12 and 3 more reported no waits"),
        ("published matrix", "by their waits, nodes seem to have 8 ranks each"),
        ("without waits", "Not known: No engine reports waits, nor times of dispatch and combine."),
        ("lock step", "All ranks' passes last equally long, as in lock step"),
        ("lock step", "Who is late cannot be told: 8 ranks in 7 windows of 1 min."),
        ("two ranks", "With two ranks, that one waits for the other does not say which of them is unusual."),
        ("ordinary", "Nobody is waited for unusually long: 8 ranks in 7 windows of 1 min."),
        ("ordinary", "Not known: Rank 2 reported no waits"),
    ],
)
def test_each_answer_says_what_it_found_and_what_it_cannot_know(name, said):
    assert said in report_of(EVERYTHING[name]).to_text(400)


@pytest.mark.parametrize(("name", "rank"), [("without waits", 5), ("slow link", 6), ("slow way", 3)])
def test_who_is_named_is_in_the_table(name, rank):
    assert rank in [one.rank for one in answer(EVERYTHING[name]).ranks]


def test_an_empty_store_says_what_to_do():
    assert "moescope simulate" in StragglerReport((), None).to_text()


def test_stragglers_are_findings_of_the_overview_and_doubtful_ones_warnings():
    waits_alone = answer(World(load={5: 3.0}).evidence("waits"))
    answers = [answer(EVERYTHING["slow rank"]), answer(EVERYTHING["ordinary"])]
    (finding,) = list_findings((), judge_quality([]), SETTINGS, list_straggler_findings(answers))
    assert finding.severity is Severity.PROBLEM
    assert finding.title.startswith("Rank 5 is slow: ")
    assert (finding.service, finding.ep_group) == ("fleet", "0")
    (doubtful,) = list_straggler_findings([waits_alone])
    assert doubtful.severity is Severity.WARNING
    assert doubtful.title.startswith("Rank 5 is probably slow: ")
    assert "it may as well be overloaded" in doubtful.detail


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    opened = open_store(known.make_telemetry_store(tmp_path_factory.mktemp("stragglers") / "store", FLEET))
    yield opened
    opened.close()


def test_evidence_has_every_window_and_rank_of_the_store(store):
    (deployment,) = list_deployments(store)
    evidence = read_straggler_evidence(store, cover(deployment, 900.0, ep_group="0"), SETTINGS)
    assert evidence.ranks.tolist() == list(range(13))
    assert evidence.num_windows == 7
    assert evidence.hosts[3:5] == ("node-0", "node-1")
    waits = evidence.waits[DispatchStage.COMBINE]
    assert (waits[:, :12, 12] == 0.023).all()
    assert (waits[:, 12, :12] == 7e-6).all()
    decode = evidence.times[Phase.DECODE]
    assert (decode.passes == 13).all()
    np.testing.assert_allclose(decode.pass_seconds, 0.03)
    assert (decode.pass_tokens == 79).all()
    np.testing.assert_allclose(decode.call_seconds[DispatchStage.DISPATCH], 0.0013)
    assert decode.loads.sum() == 5 * FLEET.counts(Phase.DECODE)[-5:].sum() / 5


def test_expert_times_stand_for_all_passes_though_some_are_timed(store):
    (deployment,) = list_deployments(store)
    evidence = read_straggler_evidence(store, cover(deployment, 900.0, ep_group="0"), SETTINGS)
    seconds = evidence.times[Phase.PREFILL].expert_seconds
    assert np.isnan(seconds[:2]).all(), "only the newest windows are judged"
    np.testing.assert_allclose(seconds[2:], 0.079 / 13)


def test_long_waits_that_cost_nothing_are_no_problem(store):
    made = report.stragglers(store, window_seconds=900.0, settings=SETTINGS)
    assert not made.has_problem, "3 000 × the usual wait, and 0.04 % of the time"
    (group,) = made.to_dict()["groups"]
    assert group["ranks"][0]["ep_rank"] == 12
    lenient = Settings(straggler_cost_share=0.0001)
    assert report.stragglers(store, window_seconds=900.0, settings=lenient).has_problem
