import urllib.request

import numpy as np
import pytest

import moescope
from moescope import ModelShape, Phase, Placement, RankGrid, Row
from moescope.collector.live_recorder import LiveRecorder
from moescope.schemas.errors import PlacementError, ShapeError, UsageError
from tests.server_process import free_ports

SHAPE = ModelShape("tiny", 2, (1,), 3, 2)


@pytest.fixture(autouse=True)
def endpoint_of_the_environment(grpc_endpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", grpc_endpoint.url)
    return grpc_endpoint


def test_recorder_counts_and_reports():
    recorder = moescope.instrument(shape=SHAPE)
    recorder.begin_step((Row.PREFILL, 13))
    recorder.record_topk(1, np.tile([[0, 2]], (13, 1)))
    recorder.add_counts(Phase.DECODE, 23, np.array([[23, 23, 0]]))

    assert recorder.flush(10)
    assert recorder.close()


def test_service_is_named_by_the_standard_variable_first(monkeypatch: pytest.MonkeyPatch):
    def service(**arguments) -> str:
        recorder = moescope.instrument(shape=SHAPE, **arguments)
        assert isinstance(recorder, LiveRecorder)
        recorder.close()
        return recorder.identity.service

    assert service() == "tiny"
    assert service(service="blue") == "blue"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=green")
    assert service(service="blue") == "green"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "red")
    assert service(service="blue") == "red"


def test_two_starts_are_two_instances():
    first, second = (moescope.instrument(shape=SHAPE) for _ in range(2))
    assert first.identity.instance != second.identity.instance
    first.close()
    second.close()


@pytest.mark.parametrize("arguments", [{}, {"model": object(), "shape": SHAPE}])
def test_neither_or_both_of_model_and_shape_is_wrong_use(arguments: dict):
    with pytest.raises(UsageError, match="takes a Transformers model, or shape="):
        moescope.instrument(**arguments)


def test_placement_is_checked_against_the_model():
    with pytest.raises(PlacementError, match="no copy"):
        Placement(np.array([[0, 1, 1, 0]]), 2, 3)
    recorder = moescope.instrument(shape=SHAPE, grid=RankGrid("0", 0, 2))
    with pytest.raises(ShapeError, match="does not fit tiny on 2 ranks"):
        recorder.set_placement(Placement(np.array([[0, 1, 2]]), 1, 3))
    recorder.close()


def test_rank_shows_its_own_page_when_a_port_is_set(monkeypatch: pytest.MonkeyPatch):
    [port] = free_ports(1)
    monkeypatch.setenv("MOESCOPE_PROMETHEUS_PORT", str(port))
    recorder = moescope.instrument(shape=SHAPE, service="blue")
    recorder.add_counts(Phase.DECODE, 23, np.array([[23, 23, 0]]))
    assert recorder.flush(10)

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    labels = '{ep_group="0",ep_rank="0",excluded="none",phase="decode",service="blue"}'
    assert f"moe_tokens_total{labels} 23.0" in page
    assert recorder.close()
