from pathlib import Path

import pytest

from moescope.importing.run import import_sglang
from moescope.schemas.errors import UsageError

DUMPS = Path(__file__).parent.parent / "collector" / "recordings" / "dumps"


def refusal(path: str, **options) -> str:
    arguments = dict.fromkeys(("ep_size", "top_k", "phase", "at", "interval_seconds", "endpoint"))
    arguments |= {"service": "s", "keep_identical": False, "dry_run": True, "as_json": False, **options}
    with pytest.raises(UsageError) as error:
        import_sglang([DUMPS / path], progress=lambda *_: None, **arguments)
    return str(error.value)


def test_what_the_file_does_not_say_is_asked_for():
    assert "give --phase prefill or --phase decode" in refusal("stat", top_k=8)
    assert "with --top-k" in refusal("count2d.json", phase="decode")


def test_an_option_that_makes_no_sense_is_named():
    assert "use one of prefill, decode" in refusal("stat", phase="both")
    assert "--interval" in refusal("per_token", interval_seconds=0)
    assert "--ep-size" in refusal("per_token", ep_size=3)


def test_a_time_that_no_store_takes_is_refused_before_anything_is_sent():
    assert "write 2026-11-29T12:00:00" in refusal("per_token", at="yesterday")
    assert "too far in the past" in refusal("per_token", at="2001-01-01")
    assert "give a shorter --interval" in refusal("per_token", at="now", interval_seconds=3600)


def test_a_dry_run_reports_and_sends_nothing(capsys):
    arguments = dict.fromkeys(("ep_size", "top_k", "phase", "interval_seconds", "endpoint"))
    is_whole = import_sglang(
        [DUMPS / "per_token"],
        service="s",
        at="now",
        keep_identical=False,
        dry_run=True,
        as_json=False,
        progress=lambda *_: None,
        **arguments,
    )

    text = capsys.readouterr().out
    assert is_whole
    assert "tokens: 11 prefill, 28 decode; 1,248 assignments" in text
    assert "not sent: --dry-run" in text
