"""What a restart, a crash or a silent Alertmanager may not change."""

from collections.abc import Callable
from pathlib import Path

import pytest

from moescope.schemas.errors import AlertStateError, StoreUnavailableError
from tests.alerting.acting import Night

EXPR = "SELECT 'k3' AS service, '347' AS expert, 3 AS value, 1 AS is_active WHERE {at:DateTime64(3)} > 0"


@pytest.fixture
def night(tmp_path: Path, rule_file: Callable[..., Path]) -> Night:
    labels = {"severity": "page"}
    texts = {"summary": "expert {{ $labels.expert }} at {{ $value }}"}
    return Night(tmp_path, rule_file(expr=EXPR, for_="1m", labels=labels, annotations=texts))


@pytest.mark.parametrize("crash", [False, True])
def test_for_goes_on_over_a_restart(night: Night, crash: bool):
    night.store.say("347")
    night.evaluate()
    night.evaluate()
    night.restart(crash=crash)

    assert night.states() == {"347": "pending"}
    night.evaluate()
    assert night.states() == {"347": "firing"}


@pytest.mark.parametrize("crash", [False, True])
def test_what_fires_is_not_told_as_new_after_a_restart(night: Night, crash: bool):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    (before,) = night.manager.got
    night.restart(seconds=600, crash=crash)
    night.evaluate()

    first, again = night.manager.got
    assert (again["startsAt"], again["labels"]) == (before["startsAt"], first["labels"])
    assert night.hook.told() == [("347", "firing")]


def test_what_ended_meanwhile_is_told_as_resolved(night: Night):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    night.restart(seconds=600)
    night.store.say(fine=("347",))
    night.evaluate()

    assert night.hook.told() == [("347", "firing"), ("347", "resolved")]
    assert night.manager.got[-1]["endsAt"] < "2027-01-15T08:15:00"
    assert night.states() == {}


def test_nothing_is_lost_while_nobody_takes_it_and_the_process_dies(night: Night):
    night.manager.is_away = night.hook.is_away = True
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    night.store.say(fine=("347",))
    night.evaluate()
    night.restart(crash=True, seconds=60)

    assert (night.manager.got, night.hook.got) == ([], [])
    night.manager.is_away = night.hook.is_away = False
    assert night.send() == [True, True]
    assert night.hook.told() == [("347", "firing"), ("347", "resolved")]
    assert [alert["endsAt"] for alert in night.manager.got] == ["2027-01-15T08:02:00.000Z"]


def test_what_arrived_is_not_told_again(night: Night):
    night.store.say("347")
    for _ in range(4):
        night.evaluate()
    night.restart()
    night.send()

    assert night.hook.told() == [("347", "firing")]


def test_a_firing_alert_is_repeated_before_it_would_end_by_itself(night: Night):
    night.store.say("347")
    for _ in range(9):
        night.evaluate()

    ends = [alert["endsAt"] for alert in night.manager.got]
    assert len(ends) == 4  # fires at the third of nine rounds, half a minute apart, and is told once a minute
    assert ends == sorted(set(ends))
    assert night.hook.told() == [("347", "firing")]


def test_one_refused_alert_does_not_keep_the_others_from_being_told(night: Night):
    night.manager.refused = night.hook.refused = "13"
    night.store.say("347", "13", "79")
    for _ in range(3):
        night.evaluate()

    assert sorted(night.manager.told()) == [("347", ""), ("79", "")]
    assert sorted(night.hook.told()) == [("347", "firing"), ("79", "firing")]
    assert [sender.target.counts.refused for sender in night.notifier.senders] == [1, 1]


def test_a_store_that_is_away_changes_no_alert_and_is_counted(night: Night):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    night.store.error = StoreUnavailableError("nobody answers")
    for _ in range(4):
        night.evaluate()
    (keeper,) = night.runners[0].keepers

    assert (night.states(), keeper.failures, keeper.last_error) == ({"347": "firing"}, 4, "nobody answers")
    assert night.hook.told() == [("347", "firing")]
    assert len(night.manager.got) == 3, "it still stands, and is repeated"


def test_whatever_goes_wrong_with_one_rule_is_kept_to_it(night: Night):
    night.store.say("347")
    night.evaluate()
    night.store.error = RuntimeError("nobody thought of this")
    night.evaluate()
    (keeper,) = night.runners[0].keepers

    assert (night.states(), keeper.last_error) == ({"347": "pending"}, "RuntimeError: nobody thought of this")


def test_more_rows_than_a_rule_may_have_are_an_error_and_not_missing_data(night: Night):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    night.store.say(fine=tuple(map(str, range(50_001))))
    night.evaluate()
    (keeper,) = night.runners[0].keepers

    assert night.states() == {"347": "firing"}
    assert keeper.last_error.startswith("more than 50000 rows; leave out those that are fine")


def test_more_alerts_than_the_limit_are_an_error_and_wake_nobody(night: Night):
    night.store.say(*map(str, range(1001)))
    for _ in range(4):
        night.evaluate()
    (keeper,) = night.runners[0].keepers

    assert (night.manager.got, night.hook.got) == ([], [])
    assert keeper.last_error.startswith("more than 1000 alerts at once")


def test_data_that_are_missing_do_not_end_an_alert(night: Night):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    night.store.say(fine=("13",))
    night.evaluate()

    assert night.states() == {"347": "no_data"}
    assert night.hook.told() == [("347", "firing")]


def test_alerts_of_a_rule_that_is_gone_end(night: Night, rule_file: Callable[..., Path]):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    rule_file(alert="SomethingElse")
    night.restart()
    night.send()

    assert night.hook.told() == [("347", "firing"), ("347", "resolved")]
    assert night.state.events(0, night.now, 100)[-1]["reason"] == "the rule is gone"


def test_rules_look_at_the_time_less_the_delay(night: Night):
    night.evaluate()

    assert night.store.asked[-1]["at"] == f"{night.now - 13:.3f}"


def test_history_outlives_a_restart(night: Night):
    night.store.say("347")
    for _ in range(3):
        night.evaluate()
    night.restart()

    told = [(event["from"], event["to"]) for event in night.state.events(0, night.now, 100)]
    assert told == [("inactive", "pending"), ("pending", "firing")]


def test_a_state_file_belongs_to_one_process(night: Night):
    with pytest.raises(AlertStateError, match="belongs to another `moescope alerts run`"):
        night.start()


def test_a_newer_state_file_is_refused_and_left_alone(night: Night, tmp_path: Path):
    night.state._connection.execute("PRAGMA user_version = 2")
    night.state.close()

    with pytest.raises(AlertStateError, match=r"written by a newer moescope \(version 2, this one reads 1\)"):
        night.start()
    assert [path.name for path in tmp_path.glob("alerts*")] == ["alerts.sqlite"]


@pytest.mark.parametrize("damage", [b"", b"no database at all, but long enough to be looked at", None])
def test_a_damaged_state_file_is_set_aside_and_a_new_one_begun(
    night: Night, tmp_path: Path, damage: bytes | None
):
    night.store.say("347")
    night.evaluate()
    night.state.close()
    path = tmp_path / "alerts.sqlite"
    if damage is None:
        content = bytearray(path.read_bytes())
        content[4096:8192] = bytes(4096)
        path.write_bytes(content)
    else:
        path.write_bytes(damage)
    night.start()
    night.evaluate()

    assert night.states() == {"347": "pending"}
    assert len(list(tmp_path.glob("alerts.sqlite.damaged-*"))) == (0 if damage == b"" else 1)
