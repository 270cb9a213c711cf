"""Prometheus and Alertmanager take what is in deploy/, by their own tools."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.prometheus_rules import DEPLOY, FOLDER, TEST_FILES

ALERTMANAGER = DEPLOY / "alertmanager/alertmanager.yml"

pytestmark = pytest.mark.tools


def run(tool: str, *arguments: str | Path, folder: Path = FOLDER) -> str:
    binary = shutil.which(tool)
    assert binary, f"{tool} is needed; Debian: apt-get install prometheus prometheus-alertmanager"
    done = subprocess.run(
        [binary, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.stem)
def test_rules_fire_when_they_must_and_are_silent_when_they_must(path: Path):
    assert "SUCCESS" in run("promtool", "test", "rules", path.name, folder=path.parent)


def test_prometheus_takes_its_configuration_and_every_rule_file():
    said = run("promtool", "check", "config", "prometheus.yml")

    assert said.count(" rules found") == len(list(FOLDER.glob("*.rules.yaml")))


def test_alertmanager_takes_its_configuration():
    assert "SUCCESS" in run("amtool", "check-config", ALERTMANAGER)


@pytest.mark.parametrize(("severity", "receiver"), [("page", "pager"), ("ticket", "tickets")])
def test_severity_decides_who_is_told(severity: str, receiver: str):
    said = run("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", f"severity={severity}")

    assert said.strip() == receiver
