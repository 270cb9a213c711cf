"""For each thing that the simulator can plant: the Overview names it, and the page behind shows it."""

import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
from playwright.sync_api import expect

from tests.server_process import ServerProcess

pytestmark = pytest.mark.browser

_SLOWER = r"missed the latency contract|T(TFT|POT) is [\d.]+ × what it was"
_CLOCK = r"The clock of rank 2 of skewed-clock is about 3 min ahead"
_SHARED = r"Ranks 1 and 4 of duplicate-instance report under one instance id"
_SMALL, _KIMI = "gpt-oss", "kimi-k3"


@dataclass(frozen=True)
class Planted:
    """A scenario, what the Overview must say of it, the page behind, and what must stand there."""

    scenario: str
    says: str
    page: str
    shows: str
    model: str = _SMALL
    tensor_parallel: int = 1
    window: str = "15m"

    @property
    def service(self):
        return self.scenario.partition("@")[0]


SCENARIOS = (
    Planted(
        "hot-expert",
        *(r"Layer 40, \w+: .*expert 347", "expert_load", r"347", _KIMI, 4),
    ),
    Planted(
        "topic-shift@3m",
        r"of the assignments went to other experts|the placement (no longer fits|could fit)",
        *(r"replication|compare", r"[Ee]xpert"),
        window="5m",
    ),
    Planted("slow-rank", r"Rank 5 is slow", "ranks", r"Rank 5 is slow"),
    Planted("dead-rank", r"Rank 7 of dead-rank is silent", "health", r"Rank 7 of dead-rank is silent"),
    Planted("router-down@5m", r"No request in the newest \d+ min", "latency", r"TTFT"),
    Planted(
        "kda-pressure",
        r"KDA state of rank 3 is full",
        "memory",
        r"KDA state of rank 3",
        _KIMI,
        tensor_parallel=1,
    ),
    Planted("long-context@5m", _SLOWER, "latency", r"TTFT", _KIMI, 4),
    Planted("prefill-congestion@5m", _SLOWER, "latency", r"TTFT", _KIMI, 4),
    Planted(
        "cache-miss-storm@5m",
        *(r"The prefix cache finds .+ of the prompt tokens; it was", "memory", r"prompt tokens were found"),
    ),
    Planted("skewed-clock", _CLOCK, "health", _CLOCK),
    Planted(
        "duplicate-instance",
        *(_SHARED, "health", _SHARED),
    ),
    Planted("silent-rank", r"Rank 6 of silent-rank is silent", "health", r"Rank 6 of silent-rank is silent"),
)


@pytest.mark.parametrize("planted", SCENARIOS, ids=lambda planted: planted.service)
def test_overview_names_what_was_planted_and_leads_to_it(
    planted, scenario_store, open_overview, save_screenshot
):
    _simulate(scenario_store, planted)
    page = open_overview(f"?service={planted.service}&window={planted.window}")
    says = re.compile(planted.says)
    card = (
        page.locator("[data-testid=stVerticalBlock]")
        .filter(has_text=says)
        .filter(has=page.get_by_role("link", name=re.compile("Evidence")))
        .last
    )
    expect(card).to_contain_text(says)
    save_screenshot(page, f"scenario_{planted.service}")
    card.get_by_role("link", name=re.compile("Evidence")).click()
    expect(page).to_have_url(re.compile(rf"/({planted.page})\?.*service={planted.service}"))
    expect(page.get_by_text(re.compile(planted.shows)).first).to_be_visible()


def _simulate(server, planted):
    """Nine minutes up to now, right before they are looked at: who is silent is a matter of a minute."""
    subprocess.run(
        [
            *(sys.executable, "-m", "moescope", "simulate", "--model", planted.model, "--ranks", "8"),
            *("--tensor-parallel", str(planted.tensor_parallel), "--service", planted.service),
            *("--scenario", planted.scenario, "--seed", "7", "--backfill", "9m", "--duration", "0s"),
            *("--endpoint", server.endpoint),
        ],
        check=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def scenario_store(tmp_path_factory):
    """A server of its own: twelve more deployments would change what the other pages open with."""
    server = ServerProcess(tmp_path_factory.mktemp("scenarios") / "data").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def scenario_url(scenario_store, run_dashboard):
    with run_dashboard(scenario_store.dsn) as url:
        yield url


@pytest.fixture
def open_overview(chromium, scenario_url):
    """Open the Overview; its findings come after its numbers, so patience is a minute."""
    contexts = []

    def visit(path):
        context = chromium.new_context(viewport={"width": 1280, "height": 1000}, timezone_id="Europe/Berlin")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{scenario_url}/{path}")
        return page

    yield visit
    for context in contexts:
        context.close()
