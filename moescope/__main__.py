"""``moescope`` and ``python -m moescope``.

An engine's environment has moescope's core alone: there the command line says which extra it lacks, except
for ``moescope doctor``, which is most needed there and needs nothing.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from moescope.cli import run  # noqa: PLC0415 - the core install has no typer
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("moescope"):
            raise
        sys.exit(_run_without_extras())
    run()


def _run_without_extras() -> int:
    if sys.argv[1:2] == ["doctor"]:
        from moescope.doctor import run_doctor  # noqa: PLC0415 - only where it is asked for

        return run_doctor(as_json="--json" in sys.argv)
    print(  # noqa: T201 - the command line's own output
        "moescope: the command line needs packages that are not installed. "
        "Run: pip install 'moescope[all]' (moescope doctor works without)",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    main()
