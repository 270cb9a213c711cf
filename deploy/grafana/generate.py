"""Write Grafana's boards from the metric registry and the documented views.

``python deploy/grafana/generate.py`` writes them, ``--check`` fails where one on disk differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from clickhouse_board import clickhouse_board
from prometheus_board import prometheus_board

FOLDER = Path(__file__).parent / "dashboards"


def boards() -> dict[str, str]:
    """Each board's file and text."""
    return {
        f"{made['uid']}.json": json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        for made in (prometheus_board(), clickhouse_board())
    }


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare; 1 where a file differs."""
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for name, text in boards().items():
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    if stale and "--check" in arguments:
        print(f"{', '.join(stale)}: differ from the registry; run: python deploy/grafana/generate.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
