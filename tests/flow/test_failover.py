"""What is predicted before a rank dies or slows down, against what a simulated fleet then does.

In the simulated K3 of twenty ranks, the worker that holds expert 347 is rank 7: the one that dies.
"""

import itertools
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from moescope.analysis import words
from moescope.analysis.distribution import read_distributions
from moescope.analysis.expert_load import list_scopes
from moescope.analysis.failover_facts import FailoverFacts, read_failover_facts
from moescope.analysis.failover_holders import find_holders
from moescope.analysis.failover_impact import FailoverImpact, FailoverStrategy, lose_ranks
from moescope.analysis.failover_survivors import spread_over_copies
from moescope.analysis.partial_failure import slow_down, slow_requests
from moescope.analysis.partial_failure_times import read_pass_times
from moescope.analysis.rank_io import TrafficValue, read_traffic
from moescope.analysis.store import Store, open_store
from moescope.schemas import metrics
from moescope.schemas.attributes import FailoverReason, Phase
from moescope.schemas.settings import Settings
from moescope.simulator.scenarios import DEAD_RANK, SLOW_FACTOR, SLOW_RANK
from tests.program import run_moescope
from tests.server_process import ServerProcess

SETTINGS = Settings()
MINUTE_MS = 60_000
EXPERT, WINDOW = 347, 2
DEATH, END = 6, 8
"""Minutes: two windows' drift is seen in the healthy fleet, then the rank dies between two more."""
SLOW_AT, SLOW_END = 5, 10
SPREAD = 0.083
"""Relative spread of the simulator's passes around their mean."""
TOPICS = 4
"""What moves the popularity of all experts together: the degrees of freedom of its drift."""


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path_factory.mktemp("failover") / "data").start()
    try:
        simulate(made, "dies", f"--model=kimi-k3 --ranks=20 --scenario=dead-rank@{DEATH}m --backfill={END}m")
        simulate(
            made, "slow", f"--model=gpt-oss --ranks=8 --scenario=slow-rank@{SLOW_AT}m --backfill={SLOW_END}m"
        )
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def store(server) -> Iterator[Store]:
    opened = open_store(server.dsn)
    yield opened
    opened.close()


def moescope(*arguments: str) -> subprocess.CompletedProcess:
    return run_moescope(*arguments, NO_COLOR="1")


def simulate(server: ServerProcess, service: str, options: str) -> None:
    done = moescope(
        *("simulate", "--endpoint", server.endpoint, "--service", service, *options.split()),
        *("--backfill-interval", "1m", "--duration", "0s", "--seed", "13"),
    )
    assert done.returncode == 0, done.stderr


def read(store: Store, service: str, start: int, end: int) -> FailoverFacts:
    """The facts of some minutes of a run."""
    scopes = [scope for scope in list_scopes(store) if scope.service == service]
    first = min(scope.first_ms for scope in scopes)
    facts = read_failover_facts(store, scopes, (end - start) * 60, SETTINGS, end_ms=first + end * MINUTE_MS)
    assert facts is not None
    return facts


def foretell(facts: FailoverFacts, lost: list[int]) -> FailoverImpact:
    """The simulated router chooses the next best expert where none is left."""
    return lose_ranks(
        facts.tokens,
        facts.placement.replicas,
        lost,
        top_k=facts.top_k,
        strategy=FailoverStrategy.FALLBACK,
    )


def scaled(impact: FailoverImpact, after: FailoverFacts) -> np.ndarray:
    """What was foretold, in as many assignments as there were afterwards: ``[layers, experts]``."""
    foretold = impact.tokens_after
    return foretold / foretold.sum(axis=1, keepdims=True) * after.tokens.sum(axis=1, keepdims=True)


def survivors(tokens: np.ndarray, facts: FailoverFacts, lost: list[int]) -> np.ndarray:
    """Loads of the ranks that stay ``[layers, ranks]``."""
    stay = np.setdiff1d(np.arange(len(facts.ranks)), lost)
    return spread_over_copies(tokens, facts.placement.replicas[stay])


def errors(before: FailoverFacts, after: FailoverFacts, lost: list[int]) -> dict[str, np.ndarray]:
    """Logarithms of what was seen over what was foretold."""
    foretold = scaled(foretell(before, lost), after)
    both = (foretold > 0) & (after.tokens > 0)
    loads = survivors(after.tokens, before, lost) / survivors(foretold, before, lost)
    return {
        "experts": np.log(after.tokens[both] / foretold[both]),
        "ranks of a layer": np.log(loads).ravel(),
    }


@pytest.fixture(scope="module")
def windows(store) -> list[FailoverFacts]:
    return [read(store, "dies", start, start + WINDOW) for start in range(0, END, WINDOW)]


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def test_one_command_says_what_happens_when_the_worker_holding_expert_347_fails(server, store):
    done = moescope(
        *("report", "failover", "--expert", str(EXPERT), "--dsn", server.dsn, "--service", "dies"),
        *("--window", "15m"),
    )
    text = " ".join(done.stdout.split())

    assert done.returncode == 0, done.stderr
    assert f"What happens when the worker holding expert {EXPERT} (rank {DEAD_RANK}) fails?" in text
    assert f"Rank {DEAD_RANK} is silent and may be dead." in text
    assert "Failovers are happening: in this window other copies stood in" in text
    for strategy in FailoverStrategy:
        assert f"{strategy.value}: " in text
    facts = read(store, "dies", 0, DEATH)
    impact = foretell(facts, [DEAD_RANK])
    assert find_holders(facts, EXPERT, None).home == DEAD_RANK
    lost, covered = (
        " ".join(words.integer(int(which.sum())).split()) for which in (impact.is_lost, impact.is_covered)
    )
    assert f"{lost} have no other copy and are lost" in text
    assert f"{covered} have one elsewhere" in text


def test_what_is_foretold_as_lost_is_never_chosen_again_and_what_has_a_copy_fails_over(windows):
    impact, after = foretell(windows[-2], [DEAD_RANK]), windows[-1]
    failed_over = {
        (int(np.searchsorted(after.layers, one.layer)), one.expert) for one in after.failovers.experts
    }

    assert after.tokens[impact.is_lost].sum() == 0
    assert failed_over == {(int(row), int(expert)) for row, expert in np.argwhere(impact.is_covered)}
    assert set(after.failovers.by_reason) == {FailoverReason.RANK_DOWN}
    assert windows[-2].failovers.total == 0


def failovers_of(facts: FailoverFacts) -> np.ndarray:
    counts = np.zeros(facts.tokens.shape)
    for one in facts.failovers.experts:
        counts[np.searchsorted(facts.layers, one.layer), one.expert] += one.failovers
    return counts


def test_failovers_of_each_expert_are_the_share_of_its_copies_that_died(windows):
    """An engine splits whole assignments: each of its draws is off by less than one."""
    before, after = windows[-2:]
    gone = before.placement.replicas[DEAD_RANK] / before.copies
    covered = foretell(before, [DEAD_RANK]).is_covered
    draws = WINDOW * len(Phase) * (len(before.ranks) - 1)

    off = failovers_of(after) - after.tokens * gone
    assert np.abs(off[covered]).max() <= draws


def test_failovers_are_foretold_as_well_as_a_healthy_fleet_is(windows):
    """From one window to the next, popularity drifts; the sum over n experts drifts by 1/√n of that.

    Counting noise is far below: 10⁴ assignments of an expert and more, and a clustering of 70.
    """
    before, after = windows[-2:]
    impact = foretell(before, [DEAD_RANK])
    foretold = (scaled(impact, after) * before.placement.replicas[DEAD_RANK] / before.copies)[
        impact.is_covered
    ]
    drift = rms(errors(*windows[:2], [])["experts"])
    weights = foretold / foretold.sum()

    seen = failovers_of(after).sum() / foretold.sum()
    # Four standard errors of a weighted mean, and its drift may be larger than the one before: F, below.
    allowed = 4 * drift * np.sqrt((weights**2).sum()) * largest_drift_ratio(1)
    assert abs(np.log(seen)) <= allowed
    assert allowed < 0.2, "half as many, or twice as many, would be seen"


def largest_drift_ratio(healthy_pairs: int) -> float:
    """How much larger a drift may be than those before: F of so many topics at one in a hundred."""
    return float(np.sqrt(stats.f.ppf(0.99, TOPICS, TOPICS * healthy_pairs)))


@pytest.mark.parametrize("what", ["experts", "ranks of a layer"])
def test_loads_after_the_death_are_foretold_as_well_as_a_healthy_fleet_is(windows, what: str):
    healthy = [errors(one, two, [])[what] for one, two in itertools.pairwise(windows[:-1])]
    across = errors(*windows[-2:], [DEAD_RANK])[what]

    usual = float(np.sqrt(np.mean([rms(one) ** 2 for one in healthy])))
    assert rms(across) <= largest_drift_ratio(len(healthy)) * usual


def test_ranks_that_take_over_are_foretold_and_would_not_be_without_their_copies(windows):
    """Over the cells (layer, rank) with a copy that takes over, the mean error shrinks with their number."""
    before, after = windows[-2:]
    stay = np.setdiff1d(np.arange(len(before.ranks)), [DEAD_RANK])
    impact = foretell(before, [DEAD_RANK])
    takes_over = ((before.placement.replicas[stay] > 0) & impact.is_covered).any(axis=2).T
    foretold = scaled(impact, after)
    seen = survivors(after.tokens, before, [DEAD_RANK])

    def mean_error(loads: np.ndarray) -> float:
        return float(np.log(seen / loads)[takes_over].mean())

    drift = rms(errors(*windows[:2], [])["ranks of a layer"])
    allowed = 4 * largest_drift_ratio(1) * drift / np.sqrt(takes_over.sum())
    kept_split = spread_over_copies(foretold, before.placement.replicas)[:, stay]
    assert abs(mean_error(survivors(foretold, before, [DEAD_RANK]))) <= allowed
    assert mean_error(kept_split) > allowed, "copies that take nothing over would be seen"


def test_what_each_survivor_received_is_what_was_foretold(store, windows):
    """Assignments that the ranks counted by peer: told by other meters than the experts' counts."""
    before, after = windows[-2:]
    traffic = read_traffic(store, after.span)
    received = np.zeros(len(before.ranks))
    for one in traffic.values():
        received[one.ranks] += one.values[TrafficValue.ASSIGNMENTS].sum(axis=0)
    exact = survivors(after.tokens, before, [DEAD_RANK]).sum(axis=0)
    foretold = survivors(scaled(foretell(before, [DEAD_RANK]), after), before, [DEAD_RANK]).sum(axis=0)
    stay = np.setdiff1d(np.arange(len(before.ranks)), [DEAD_RANK])
    drift = rms(errors(*windows[:2], [])["ranks of a layer"])

    assert received[DEAD_RANK] == 0
    np.testing.assert_allclose(received[stay], exact, rtol=1e-3)
    # A rank's drift is that of its layers, of which each drifts on its own.
    allowed = 4 * largest_drift_ratio(1) * drift / np.sqrt(len(before.layers))
    assert np.abs(np.log(received[stay] / foretold)).max() <= allowed


def test_slow_rank_makes_prefill_passes_as_long_as_foretold(store):
    """Chunks keep their size, so only the spread of the passes around their mean is left."""
    before, after = read(store, "slow", 0, SLOW_AT), read(store, "slow", SLOW_AT, SLOW_END)
    now, then = (read_pass_times(store, facts)[Phase.PREFILL] for facts in (before, after))
    passes = min(
        int(row["steps"])
        for facts in (before, after)
        for row in store.query("rank_steps", **facts.span.params()).to_pylist()
        if row["phase"] == Phase.PREFILL.value
    )

    seen = then.step_seconds / now.step_seconds
    noise = SPREAD * np.sqrt(2 / passes)
    # The routing that the passes meet drifts as well, by a few in a hundred of a rank's load.
    np.testing.assert_allclose(slow_down(now, SLOW_RANK, SLOW_FACTOR).ratio, seen, rtol=4 * noise + 0.02)


def test_slow_rank_makes_decode_passes_and_tpot_as_long_as_foretold(store):
    """Arrivals are not the same in both halves, and batches follow them.

    The simulated rate has a spread of 15 % and forgets within five minutes: means over such times differ by
    about 15 % (one sigma). A pass T(n) of the batch n = λ·T(n) changes by ε / (1 − ε) of a change of λ, with
    ε = ln(T' / T) / ln(n' / n), 0.3 here: 6.5 %. Two sigma are 13 %.
    """
    before, after = read(store, "slow", 0, SLOW_AT), read(store, "slow", SLOW_AT + 1, SLOW_END)
    times, later = read_pass_times(store, before), read_pass_times(store, after)
    slow = {phase: slow_down(one, SLOW_RANK, SLOW_FACTOR) for phase, one in times.items()}
    seen = later[Phase.DECODE].step_seconds / times[Phase.DECODE].step_seconds
    tpots = [
        next(iter(read_distributions(store, facts.span, [metrics.TIME_PER_OUTPUT_TOKEN]).values())).whole.mean
        for facts in (before, after)
    ]
    felt = slow_requests(
        (times[Phase.PREFILL], slow[Phase.PREFILL]),
        (times[Phase.DECODE], slow[Phase.DECODE]),
        ttft_seconds=1.0,
        queue_seconds=0.0,
    )

    foretold = slow[Phase.DECODE]
    assert seen.mean() > foretold.at_once.mean(), "batches grow"
    assert foretold.ratio.mean() == pytest.approx(seen.mean(), rel=0.13)
    assert felt.tpot_ratio.mean() == pytest.approx(tpots[1] / tpots[0], rel=0.13)
