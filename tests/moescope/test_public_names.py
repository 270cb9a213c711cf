import subprocess
import sys

import pytest

import moescope


def test_public_face_is_short_and_pinned():
    assert sorted(moescope.__all__) == [
        "ModelShape",
        "MoescopeError",
        "NullRecorder",
        "Phase",
        "Placement",
        "RankGrid",
        "Recorder",
        "Row",
        "instrument",
    ]


@pytest.mark.parametrize("name", moescope.__all__)
def test_every_public_name_can_be_imported_and_is_listed(name: str):
    assert getattr(moescope, name).__name__ == name
    assert name in dir(moescope)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'moescope' has no attribute 'instrumnt'"):
        _ = moescope.instrumnt


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}\nimport sys; print(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_of_the_package_costs_nothing_heavy():
    assert not loaded_by("import moescope") & {"numpy", "grpc", "opentelemetry", "torch"}


def test_engine_side_needs_neither_a_database_nor_a_page():
    heavy = {"chdb", "clickhouse_connect", "pyarrow", "pandas", "streamlit", "plotly", "typer", "starlette"}

    assert not loaded_by("import moescope; moescope.instrument; import moescope.plugin") & heavy
