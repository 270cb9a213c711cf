"""A fleet in which nothing goes wrong for a day tells nobody anything; the hours after show that it could."""

from pathlib import Path

import pytest

from tests.deploy.simulated_pages import SimulatedPages, write_rule_test
from tests.deploy.test_promtool import run

QUIET_HOURS = 24
HOURS = 26

# For hangs only.
pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]


def test_uniform_fleet_tells_nobody_anything_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pages = SimulatedPages(tmp_path, monkeypatch, HOURS, ["cache-miss-storm@24h"])
    test = tmp_path / "day_test.yaml"
    write_rule_test(test, pages.record(), HOURS, QUIET_HOURS, ["PrefixCacheHitsCollapsed"])

    assert "SUCCESS" in run("promtool", "test", "rules", test)
