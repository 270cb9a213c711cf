"""``moescope alerts run``: everything put together, until SIGINT or SIGTERM."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import pyarrow as pa

from moescope.alerting.group_runner import GroupRunner
from moescope.alerting.notifier import Notifier, open_targets
from moescope.alerting.own_metrics import OwnMetrics
from moescope.alerting.page import AlertsPage
from moescope.alerting.retire import retire
from moescope.alerting.rule_file import find_rule_files, read_rule_files
from moescope.alerting.state_file import StateFile
from moescope.analysis.store import Store, open_store
from moescope.schemas.errors import StoreError
from moescope.schemas.settings import Settings
from moescope.server.access import open_gate
from moescope.server.data_directory import data_folder
from moescope.server.http_server import HttpServer
from moescope.server.listeners import Purpose, bind

ALERTS: Final = Purpose("alerts_port", "the state of alerts")
_GRACE_SECONDS: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


class LateStore:
    """A store that may not be there yet, or be away for a while: each question finds it again."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._store: Store | None = None
        self._lock = threading.Lock()

    def ask(self, sql: str, params: Mapping[str, str | float]) -> pa.Table:
        """See :meth:`moescope.analysis.store.Store.ask`."""
        return self.open().ask(sql, params)

    def open(self) -> Store:
        """The store.

        Raises:
            StoreError: it is not there.
        """
        with self._lock:
            if self._store is None:
                self._store = open_store(self._dsn)
            return self._store

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            if self._store is not None:
                self._store.close()


class AlertsServer:
    """The evaluator with its port; a context for tests and for programs that want one inside.

    Args:
        settings: everything; a port of 0 takes a free one.

    Raises:
        UsageError: rules, addresses, state file, token or port are no good; nothing was started then.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.port = 0
        self._stack = ExitStack()
        self.runners: list[GroupRunner] = []

    def __enter__(self) -> Self:
        """Start; when this returns the port answers and every group is being evaluated."""
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop: what is pending, firing or untold is in the state file."""
        self._stack.close()

    def _open(self, stack: ExitStack) -> None:
        settings = self.settings
        groups = read_rule_files(find_rule_files(settings.alert_rules))
        targets = open_targets(settings)
        gate = open_gate(settings)
        store = LateStore(settings.dsn)
        stack.callback(store.close)
        _say_if_away(store)
        listener = bind(settings, ALERTS)
        stack.callback(listener.close)
        state = StateFile(state_path(settings))
        stack.callback(state.close)
        notifier = Notifier(state, targets)
        self.runners = [GroupRunner(group, settings, store, notifier) for group in groups]
        _take_up(state, notifier, self.runners)
        page = AlertsPage(self.runners, state, OwnMetrics(self.runners, notifier), gate)
        http = HttpServer({listener: page.app})
        stack.callback(notifier.stop, _GRACE_SECONDS)
        stack.callback(_stop_all, self.runners)
        stack.callback(http.stop)
        http.start()
        self.port = _port(listener)
        for runner in self.runners:
            runner.start()
        notifier.start()


def run_alerts(settings: Settings) -> None:
    """Evaluate until SIGINT or SIGTERM.

    Raises:
        UsageError: see :class:`AlertsServer`.
    """
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        _LOG.info("%s: stopping; what is pending and firing is kept", signal.Signals(number).name)
        stop.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with AlertsServer(settings) as server:
            for line in describe(server):
                _LOG.info(line)
            stop.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def describe(server: AlertsServer) -> list[str]:
    """What runs and where, a line each."""
    settings = server.settings
    rules = sum(len(runner.keepers) for runner in server.runners)
    targets = open_targets(settings)
    told = ", ".join(target.name for target in targets) or (
        "nobody: set MOESCOPE_ALERTMANAGER_URL or MOESCOPE_ALERT_WEBHOOK_URL"
    )
    return [
        f"rules        {rules} in {len(server.runners)} group(s)",
        f"told         {told}",
        f"state        {state_path(settings)}",
        f"alerts       http://{settings.host}:{server.port}/api/v1/alerts, /api/v1/rules, /metrics, /readyz",
    ]


def state_path(settings: Settings) -> Path:
    """The file of states that the settings name, or the one in the user's data folder."""
    if settings.alert_state_file:
        return Path(settings.alert_state_file).expanduser().absolute()
    return data_folder(settings) / "alerts.sqlite"


def _take_up(state: StateFile, notifier: Notifier, runners: list[GroupRunner]) -> None:
    """Give every rule what it knew, and end the alerts of those that are gone."""
    known: dict[str, Any] = state.load()
    for runner in runners:
        for keeper in runner.keepers:
            keeper.tracked = known.pop(keeper.rule.key, {})
    now = time.time()
    for rule, tracked in known.items():
        _LOG.info("rule %s is gone; its %d alert(s) end", rule, len(tracked))
        notifier.take(rule, {}, retire(tracked, now), 0.0, now)
    lost = state.forget_targets_but([sender.target.name for sender in notifier.senders])
    if lost:
        _LOG.warning("%d alert(s) waited for somebody who is no longer told, and are forgotten", lost)


def _say_if_away(store: LateStore) -> None:
    try:
        store.open()
    except StoreError as error:
        _LOG.warning("%s Rules fail until then", error)


def _stop_all(runners: list[GroupRunner]) -> None:
    for runner in runners:
        runner.ask_to_stop()
    for runner in runners:
        runner.join(_GRACE_SECONDS)


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
