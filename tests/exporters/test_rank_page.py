"""A rank's own page beside the delivery of its windows, which nothing here may disturb."""

import builtins
import logging
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moescope.exporters.rank_page import PageExporter, with_page
from moescope.schemas.attributes import PHASE
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.metrics import STEP_DURATION, TOKENS
from moescope.schemas.page_metrics import RANK_STEPS
from moescope.schemas.records import Attempt, Window
from moescope.schemas.settings import Settings
from moescope.schemas.topology import RankGrid
from tests.exporters.golden_pages import TINY, full_window
from tests.server_process import free_ports

IDENTITY = EngineIdentity("fleet", TINY, RankGrid("0", 1, 2), instance="one")


class FakeDelivery:
    """Takes windows as an endpoint would, and refuses them when a test says so."""

    pending_bytes = 0

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.error: Exception | None = None
        self.is_closed = False

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        if self.error is not None:
            raise self.error
        self.windows.append(window)
        return Attempt(delivered=True)

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        return Attempt(delivered=True)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def delivery() -> FakeDelivery:
    return FakeDelivery()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def exporter(delivery, port):
    made = with_page(delivery, IDENTITY, Settings(prometheus_port=port - IDENTITY.grid.ep_rank))
    yield made
    made.close()


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_without_the_setting_there_is_no_page_and_nothing_in_between(delivery):
    assert with_page(delivery, IDENTITY, Settings()) is delivery


def test_windows_are_delivered_and_added_up_on_the_page(exporter, delivery, port):
    window = full_window(TINY, 2, 1)
    assert [exporter.export(window).delivered for _ in range(2)] == [True, True]

    assert delivery.windows == [window, window]
    text = page(port)
    tokens = sum(record.value for record in window.records if record.metric is TOKENS)
    shown = [
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("moe_tokens_total{")
    ]
    assert sum(shown) == 2 * tokens
    assert 'service="fleet"' in text
    assert "moe_layer_imbalance" not in text, "one rank cannot know it"


def test_window_that_could_not_be_delivered_is_counted_once(exporter, delivery, port):
    delivery.error = ConnectionError("gone")
    window = full_window(TINY, 2, 1)
    with pytest.raises(ConnectionError):
        exporter.export(window)
    assert exporter.retry().delivered

    expected = {
        record.attributes[PHASE]: float(record.bucket_counts.sum())
        for record in window.records
        if record.metric is STEP_DURATION
    }
    shown = {
        sample.labels["phase"]: sample.value
        for family in text_string_to_metric_families(page(port))
        for sample in family.samples
        if sample.name == RANK_STEPS.prometheus_name
    }
    assert shown == expected


def test_page_and_delivery_end_together(exporter, delivery, port):
    exporter.export(full_window(TINY, 2, 1))
    exporter.close()

    assert delivery.is_closed
    with pytest.raises(urllib.error.URLError):
        page(port)


def test_busy_port_costs_one_warning_that_says_the_way_out_and_no_window(exporter, delivery, port, caplog):
    with socket.socket() as other, caplog.at_level(logging.WARNING, "moescope"):
        other.bind(("127.0.0.1", port))
        other.listen()
        for _ in range(3):
            assert exporter.export(full_window(TINY, 2, 1)).delivered

    assert len(delivery.windows) == 3
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"port {port} on 127.0.0.1 cannot be listened on" in warning
    assert "MOESCOPE_PROMETHEUS_PORT" in warning


def test_port_beyond_the_last_one_is_said(delivery, caplog):
    exporter = PageExporter(delivery, IDENTITY, "127.0.0.1", 65_536)
    assert exporter.export(full_window(TINY, 2, 1)).delivered

    assert "port 65536 on 127.0.0.1 cannot be listened on (there is no such port)" in caplog.text


def test_missing_package_costs_one_warning_that_says_how_to_install_it(
    exporter, delivery, caplog, monkeypatch
):
    real_import = builtins.__import__

    def without_prometheus_client(name, *args, **kwargs):
        if name == "prometheus_client":
            raise ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_prometheus_client)
    for _ in range(2):
        assert exporter.export(full_window(TINY, 2, 1)).delivered

    (warning,) = [record.getMessage() for record in caplog.records]
    assert "pip install prometheus-client" in warning
