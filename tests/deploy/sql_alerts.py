"""`moescope alerts run` as a process of its own, on a hastened copy of the shipped rules."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.alert_stack import get_json, hasten, wait_for
from tests.deploy.prometheus_rules import DEPLOY
from tests.server_process import free_ports

SHIPPED = DEPLOY.parent / "moescope/alerting/rules"


class SqlAlerts:
    """An evaluator that can be ended and started again with the same state."""

    def __init__(self, folder: Path, dsn: str, alertmanager_url: str) -> None:
        self.folder = folder
        folder.mkdir()
        rules = [path for path in SHIPPED.glob("*.yaml") if not path.stem.endswith("_test")]
        self.files = [folder / path.name for path in rules]
        for path, copy in zip(rules, self.files, strict=True):
            copy.write_text(yaml.safe_dump(hasten(yaml.safe_load(path.read_text())), allow_unicode=True))
        self.dsn, self.alertmanager_url = dsn, alertmanager_url
        [self.port] = free_ports(1)
        self.process: subprocess.Popen | None = None

    def start(self, delay_seconds: float) -> None:
        """Look at the store as of so long ago."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "moescope", "alerts", "run", *map(str, self.files)),
                    *("--dsn", self.dsn, "--alertmanager-url", self.alertmanager_url),
                    *("--alerts-port", str(self.port), "--state-file", str(self.folder / "state.json")),
                ],
                env={**os.environ, "MOESCOPE_ALERT_DELAY_SECONDS": str(delay_seconds)},
                stderr=log,
            )
        wait_for("the evaluator answers", self.alerts_answer)

    def alerts_answer(self) -> dict[str, Any]:
        return get_json(f"http://127.0.0.1:{self.port}/api/v1/alerts")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
