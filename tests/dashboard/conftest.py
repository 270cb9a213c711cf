"""Pages run by Streamlit's AppTest against an embedded store with a known workload."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import moescope.dashboard

DASHBOARD = Path(moescope.dashboard.__file__).parent


@pytest.fixture
def open_page(monkeypatch):
    """Run a page, alone or through ``app.py``, with a DSN and address parameters."""
    from moescope.dashboard import loaders

    def run(file, dsn, **query_params):
        monkeypatch.setenv("MOESCOPE_DSN", dsn)
        page = AppTest.from_file(str(DASHBOARD / file), default_timeout=200)
        page.context = {"timezone": "Europe/Berlin"}
        for name, value in query_params.items():
            page.query_params[name] = value
        return page.run()

    yield run
    loaders.release_stores()


@pytest.fixture(scope="module")
def make_dsn(tmp_path_factory):
    """Write fleets into a fresh embedded store; return its DSN."""
    from tests.analysis.known_workloads import make_store

    return lambda *fleets: make_store(tmp_path_factory.mktemp("store"), *fleets)


@pytest.fixture
def texts():
    """All that a page says, as one text."""

    def read(page):
        kinds = (page.title, page.header, page.subheader, page.markdown, page.caption, page.info, page.code)
        return "\n".join(element.value for kind in kinds for element in kind)

    return read


@pytest.fixture(scope="module")
def make_telemetry_dsn(tmp_path_factory):
    """Write one fleet with its other metrics, or only some of them, into a fresh store; return its DSN."""
    from tests.analysis.known_telemetry import ALL_PARTS, make_telemetry_store

    def make(fleet, *, without=()):
        parts = [part for part in ALL_PARTS if part not in without]
        return make_telemetry_store(tmp_path_factory.mktemp("telemetry") / "store", fleet, parts)

    return make


@pytest.fixture
def figure_of():
    """The figure of one key of a page, as Plotly's browser side gets it."""

    def read(page, key):
        for chart in page.get("plotly_chart"):
            if f"-{key}" in chart.proto.id:
                return json.loads(chart.proto.spec)
        drawn = [chart.proto.id for chart in page.get("plotly_chart")]
        raise AssertionError(f"no figure {key} among {drawn}")

    return read
