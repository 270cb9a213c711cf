"""The server's own metrics, and what they say of its readiness."""

import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas.errors import StoreUnavailableError
from tests.exporters.golden_pages import TINY, full_window
from tests.server.otlp_requests import expert_request, resource_of


@pytest.mark.tools
def test_page_is_what_prometheus_accepts(server):
    server.export(expert_request("page", [[13, 0, 23]]))
    resource = resource_of("page", "two", experts=TINY.num_experts)
    for body in OtlpPacker(resource).pack(full_window(TINY, 2, 1)):
        server.export(body)
    server.sql("SELECT 1")
    assert shutil.which("promtool"), "promtool is in the Debian package prometheus"
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=server.page(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert "gen_ai_server_time_to_first_token_seconds_bucket{" in server.page()


def test_every_metric_of_the_server_has_help_and_the_projects_prefix(server):
    lines = server.metrics.page().decode().splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    helped = {line.split()[2] for line in lines if line.startswith("# HELP ") and len(line.split()) > 4}
    assert names == helped
    assert all(name.startswith("moescope_") for name in names)
    assert len(names) == 21


def test_what_comes_in_is_counted(server):
    def value(start: str) -> float:
        return sum(
            float(line.rpartition(" ")[2]) for line in server.page().splitlines() if line.startswith(start)
        )

    starts = (
        'moescope_ingest_requests_total{outcome="stored",protocol="grpc"}',
        "moescope_ingest_points_accepted_total",
        "moescope_ingest_rows_total",
        "moescope_ingest_insert_duration_seconds_count",
        'moescope_ingest_bytes_total{protocol="grpc"}',
    )
    before = [value(start) for start in starts]
    body = expert_request("counted", [[13, 0, 23], [79, 0, 0]])
    server.export(body)
    assert [value(start) - was for start, was in zip(starts, before, strict=True)] == [1, 2, 2, 1, len(body)]


def test_versions_are_on_the_page(server):
    assert 'moescope_server_info{engine_version="' in server.page()


def test_server_whose_store_does_not_answer_is_not_ready(server, monkeypatch):
    def check(_):
        raise StoreUnavailableError("1 batch(es) could not be stored yet")

    monkeypatch.setattr("moescope.server.embedded_store.EmbeddedStore.check", check)
    try:
        urllib.request.urlopen(server.url("metrics", "/readyz"), timeout=10)
    except urllib.error.HTTPError as error:
        answer = error.code, error.read()
    assert answer == (503, b"not ready: 1 batch(es) could not be stored yet\n")
