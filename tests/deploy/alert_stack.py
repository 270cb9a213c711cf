"""A real Prometheus and a real Alertmanager on loopback, with what deploy/ has for them."""

import abc
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.prometheus_rules import DEPLOY, RULE_FILES
from tests.server_process import free_ports

HASTE = 60
"""What takes a minute takes a second: `for` and the intervals of groups, in a copy of the rules."""
KEPT_HASTE = 5
"""But the time that an alert is kept: starting a server again takes seconds, however hasty the rules are."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_URL = re.compile(r"http://127\.0\.0\.1:9\d+")


def seconds(duration: str) -> int:
    """Of a duration of one unit, as 15m."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def hasten(rules: dict[str, Any]) -> dict[str, Any]:
    """The same rules in less time; expressions, labels and texts stay as they are."""
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{max(seconds(rule['for']) // HASTE, 1)}s"
            if "keep_firing_for" in rule:
                rule["keep_firing_for"] = f"{seconds(rule['keep_firing_for']) // KEPT_HASTE}s"
    return rules


def wait_for(what: str, ask: Callable[[], Any], patience_seconds: float = 400) -> Any:
    """Ask until the answer is true; who cannot be reached yet has none."""
    deadline = time.monotonic() + patience_seconds
    answer = None
    while time.monotonic() < deadline:
        try:
            if answer := ask():
                return answer
        except (urllib.error.URLError, OSError, json.JSONDecodeError):
            pass
        time.sleep(0.25)
    raise AssertionError(f"{what}: not within {patience_seconds:g} s; the last answer was {answer!r}")


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


class _Process(abc.ABC):
    """A program that can be ended and started again with the same data."""

    tool: str
    package: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen | None = None

    @abc.abstractmethod
    def arguments(self) -> list[str]:
        """What the program is started with."""

    def start(self) -> "_Process":
        binary = shutil.which(self.tool) or shutil.which(f"prometheus-{self.tool}")
        assert binary, f"{self.tool} is in Debian's package {self.package}"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([binary, *self.arguments()], stdout=log, stderr=log)
        wait_for(f"{self.tool} is ready", self._is_ready)
        return self

    def _is_ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
            return answer.status == 200

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


class Alertmanager(_Process):
    """With deploy/alertmanager/alertmanager.yml, except that it does not wait before it tells."""

    tool = "alertmanager"
    package = "prometheus-alertmanager"

    def __init__(self, folder: Path, told: str) -> None:
        super().__init__(folder)
        config = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": "0s", "group_interval": "1s"}
        text = _URL.sub(told, yaml.safe_dump(config))
        (folder / "alertmanager.yml").write_text(text)

    def arguments(self) -> list[str]:
        return [
            *(f"--config.file={self.folder / 'alertmanager.yml'}", f"--storage.path={self.folder / 'data'}"),
            *(f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address=", "--log.level=warn"),
        ]

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """As its API v2 has them: labels, annotations, startsAt, endsAt, status."""
        matcher = urllib.parse.quote(f'alertname="{name}"')
        return get_json(f"{self.url}/api/v2/alerts?filter={matcher}")

    def amtool(self, *arguments: str) -> str:
        """What people type."""
        binary = shutil.which("amtool")
        assert binary, "amtool is in Debian's package prometheus-alertmanager"
        command = [binary, f"--alertmanager.url={self.url}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


class Prometheus(_Process):
    """With deploy/prometheus/prometheus.yml, its addresses and intervals changed, and the hastened rules."""

    tool = "prometheus"
    package = "prometheus"

    def __init__(self, folder: Path, page_port: int, alertmanager_port: int) -> None:
        super().__init__(folder)
        config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
        config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"] = config["scrape_configs"][:1]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{page_port}"]}]
        [alertmanagers] = config["alerting"]["alertmanagers"]
        alertmanagers["static_configs"] = [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        for path in RULE_FILES:
            rules = hasten(yaml.safe_load(path.read_text()))
            (folder / path.name).write_text(yaml.safe_dump(rules, allow_unicode=True))

    def arguments(self) -> list[str]:
        return [
            *(
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
            ),
            *(f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"),
            # What was pending before a restart goes on at once.
            "--rules.alert.for-grace-period=0s",
        ]

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """Pending and firing ones."""
        found = get_json(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return [one for one in found if one["labels"]["alertname"] == name]

    def query(self, expression: str) -> list[dict[str, Any]]:
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        return get_json(url)["data"]["result"]
