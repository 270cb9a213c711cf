"""One empty store for all tests of a file, and rule files made of the lines that matter."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moescope.alerting.scratch_store import ScratchStore, scratch_store


@pytest.fixture(scope="module")
def scratch() -> Iterator[ScratchStore]:
    """A migrated store that nothing was written to."""
    with scratch_store() as made:
        yield made


@pytest.fixture
def rule_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file with one rule; keys of the rule are arguments, and None leaves one out."""

    def write(name: str = "rules.yaml", **keys: object) -> Path:
        rule = {"alert": "ExpertHot", "expr": "SELECT 'k3' AS service, 1 AS value", **keys}
        lines = ["groups:", "  - name: hot", "    rules:", "      -"]
        lines += [f"        {key.rstrip('_')}: {value!r}" for key, value in rule.items() if value is not None]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write
