"""The units: commands that exist, settings that exist, and nothing wrong in the eyes of systemd itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moescope.schemas.settings import load_settings
from tests.deploy.commands import problem_with
from tests.deploy.grafana_boards import DEPLOY

FOLDER = DEPLOY / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
PROGRAM = "/opt/moescope/bin/moescope"
MOST_EXPOSED = 20
"""Of 100, by systemd's own count: the units have 15."""


def lines_of(path: Path, key: str) -> list[str]:
    return [line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith(f"{key}=")]


def environ_of(path: Path) -> dict[str, str]:
    pairs = [pair.partition("=") for line in lines_of(path, "Environment") for pair in line.split()]
    return {name: value for name, _, value in pairs if name.startswith("MOESCOPE_")}


def test_there_is_a_unit_for_each_process_that_runs_on():
    assert [path.stem for path in UNITS] == ["moescope-alerts", "moescope-dashboard", "moescope-serve"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_unit_runs_a_command_that_exists_with_settings_that_exist(unit):
    [command] = lines_of(unit, "ExecStart")
    program, *words = command.split()
    assert program == PROGRAM
    assert problem_with(words) == ""
    load_settings(environ_of(unit))
    assert lines_of(unit, "EnvironmentFile") == ["-/etc/moescope/moescope.env"]
    assert lines_of(unit, "DynamicUser") == ["yes"]


def test_settings_of_the_environment_file_and_of_the_drop_in_exist():
    commented = re.findall(r"^#(MOESCOPE_\w+)=(\S+)$", (FOLDER / "moescope.env").read_text(), re.MULTILINE)
    assert len(commented) > 5
    load_settings(dict(commented))
    assert set(environ_of(FOLDER / "network.conf")) == {"MOESCOPE_HOST", "MOESCOPE_TOKEN_FILE"}


@pytest.mark.tools
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_finds_nothing_wrong_and_little_exposed(unit, tmp_path):
    # Its program need not be installed where the tests run.
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, sys.executable))
    for arguments in (("verify",), ("security", "--offline=yes", f"--threshold={MOST_EXPOSED}")):
        done = subprocess.run(
            ["systemd-analyze", *arguments, str(copy)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert arguments != ("verify",) or done.stderr == ""
