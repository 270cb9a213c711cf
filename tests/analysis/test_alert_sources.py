"""Who fires now, from recorded answers of every source over real sockets."""

from contextlib import ExitStack

import pytest

from moescope.analysis.alert_records import AlertSeverity, AlertState
from moescope.analysis.alert_sources import read_alerts
from moescope.analysis.alert_words import headline, quiet_words, rest
from moescope.schemas.settings import Settings
from tests.alert_endpoint import alert, known, rule, rules, serve, silence, speak

RULES = "/api/v1/rules"
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def read():
    """Read alerts from sources that answer with these rules, and an Alertmanager with these answers."""
    with ExitStack() as stack:

        def run(*sources, alertmanager=None, **settings):
            found = [
                one if isinstance(one, str) else stack.enter_context(serve({RULES: one})) for one in sources
            ]
            if alertmanager is not None:
                paths = {f"/api/v2/{name}": value for name, value in alertmanager.items()}
                settings["alertmanager_url"] = stack.enter_context(serve(paths))
            return read_alerts(Settings(alert_sources=",".join(found), **settings))

        yield run


def group(*of):
    return {"name": "moescope", "rules": list(of)}


def test_firing_comes_first_then_blind_then_pending_and_a_page_before_a_ticket(read):
    alerts = read(
        rules(
            group(
                rule("A", alert("A", "pending")),
                rule("B", alert("B", severity="ticket", since="2026-11-29T01:00:00Z")),
                rule("C", alert("C", "no_data")),
                rule("D", alert("D", since="2026-11-29T11:00:00Z"), alert("E", since="2026-11-29T10:00:00Z")),
            )
        )
    )
    assert [one.name for one in alerts.told] == ["E", "D", "B", "C", "A"]
    assert headline(alerts) == "3 alerts fire, 1 alert without data"
    assert rest(alerts).startswith("1 alert pending; 4 rules, last looked at ")


def test_alert_has_what_a_person_needs(read):
    (shown,) = read(rules(group(rule("HotExpert", alert("HotExpert", service="kimi k3", layer="40"))))).told
    assert (shown.severity, shown.state) == (AlertSeverity.PAGE, AlertState.FIRING)
    assert shown.labels == {"service": "kimi k3", "layer": "40"}
    assert shown.runbook == "HotExpert"
    assert shown.evidence.page == "expert_load"
    assert shown.evidence.params == {"service": "kimi k3", "layer": "40", "expert": "347"}
    assert shown.value == "7"
    assert shown.since.isoformat() == "2026-11-29T11:48:00.500000+00:00"
    assert shown.silence_link == ""


def test_silence_link_fills_in_what_the_alert_is_about(read):
    alerts = read(
        rules(group(rule("A", alert("A", service='odd "name"')))),
        alertmanager={"alerts": [], "silences": []},
    )
    link = alerts.told[0].silence_link
    assert "/#/silences/new?filter=%7Balertname%3D%22A%22%2Cservice%3D%22odd%20%5C%22name%5C%22%22%7D" in link


def test_rules_about_other_things_are_left_out(read):
    alerts = read(
        rules(
            group(
                rule("NodeDown", query="up == 0", annotations={"runbook_url": "https://example.org/alerts"}),
                rule("Ours", query="sum(rate(moe_tokens_total[5m])) == 0"),
                rule(
                    "Blind", query="absent(up)", annotations={"runbook_url": "http://d/alerts?runbook=Blind"}
                ),
                {"name": "recorded", "type": "recording", "query": "moe_tokens_total", "health": "ok"},
            )
        )
    )
    assert [one.name for one in alerts.rules] == ["Ours", "Blind"]


def test_every_rule_of_our_own_evaluator_is_shown(read):
    alerts = read(rules(group(rule("HotExpertHarmful", query="SELECT 1 AS value", noData="keep"))))
    assert [one.name for one in alerts.rules] == ["HotExpertHarmful"]
    assert alerts.sources[0].kind == "moescope alerts run"


def test_rule_that_cannot_be_evaluated_says_why(read):
    alerts = read(rules(group(rule("A", health="err", lastError="unknown table"))))
    assert alerts.rules[0].error == "unknown table"


LABELS = {"alertname": "A", "severity": "page", "service": "kimi-k3"}


def test_silenced_alert_stands_apart_with_who_and_why(read):
    """On the way Alertmanager's copy got a label more; it is the same alert."""
    alerts = read(
        rules(group(rule("A", alert("A", service="kimi-k3"), alert("A", service="other")))),
        alertmanager={
            "alerts": [known(LABELS | {"site": "x"}, silenced_by=["7"])],
            "silences": [silence("7", ("service", "kimi-k3", False, True))],
        },
    )
    assert [one.labels["service"] for one in alerts.told] == ["other"]
    (quiet,) = alerts.untold
    assert quiet_words(quiet) == "Silenced by ana until 29 Nov 14:00 UTC: new firmware."


def test_inhibited_alert_stands_apart(read):
    alerts = read(
        rules(group(rule("A", alert("A", service="kimi-k3")))),
        alertmanager={"alerts": [known(LABELS, inhibited_by=["f00"])], "silences": []},
    )
    assert not alerts.told
    assert "inhibited" in quiet_words(alerts.untold[0])


@pytest.mark.parametrize(
    ("matcher", "holds"),
    [
        (("service", "kimi-.*", True, True), True),
        (("service", "kimi", True, True), False),
        (("service", "kimi-k3", False, False), False),
        (("ep_group", "", False, True), True),
        (("ep_group", ".+", True, False), True),
    ],
)
def test_silence_of_what_alertmanager_does_not_have_yet_holds_by_its_matchers(read, matcher, holds):
    alerts = read(
        rules(group(rule("A", alert("A", "pending", service="kimi-k3")))),
        alertmanager={"alerts": [], "silences": [silence("7", matcher)]},
    )
    assert bool(alerts.untold) is holds


def test_expired_silence_holds_nothing(read):
    alerts = read(
        rules(group(rule("A", alert("A", service="kimi-k3")))),
        alertmanager={
            "alerts": [],
            "silences": [silence("7", ("service", "kimi-k3", False, True), state="expired")],
        },
    )
    assert alerts.told


def test_source_without_an_answer_is_named_and_the_others_are_shown(read):
    alerts = read(NOBODY, rules(group(rule("A", alert("A")))))
    assert [one.name for one in alerts.told] == ["A"]
    assert "http://127.0.0.1:1 gives no answer (Connection refused)" in alerts.sources[0].problem
    assert "moescope alerts run" in alerts.sources[0].problem


def test_alertmanager_without_an_answer_is_named_and_alerts_are_shown(read):
    alerts = read(rules(group(rule("A", alert("A")))), alertmanager_url=NOBODY)
    assert [one.name for one in alerts.told] == ["A"]
    assert "Silences are not known" in alerts.sources[-1].problem


def test_somebody_else_at_the_address_is_named(read):
    alerts = read({"hello": "world"}, rules(group(rule("A"))), alertmanager={"alerts": {}, "silences": "?"})
    assert "neither Prometheus nor" in alerts.sources[0].problem
    assert "no Alertmanager" in alerts.sources[-1].problem


@pytest.mark.parametrize(
    "groups",
    [None, "groups", ["group"], [{"rules": None}], [group("rule")], [group(rule("A") | {"alerts": ["x"]})]],
)
def test_answer_of_another_shape_is_named(read, groups):
    alerts = read({"data": {"groups": groups}}, rules(group(rule("B", alert("B")))))
    assert "neither Prometheus nor" in alerts.sources[0].problem
    assert [one.name for one in alerts.told] == ["B"]


@pytest.mark.parametrize("answers", [{"alerts": ["x"], "silences": []}, {"alerts": [], "silences": ["x"]}])
def test_alertmanager_of_another_shape_is_named(read, answers):
    alerts = read(rules(group(rule("A", alert("A")))), alertmanager=answers)
    assert "no Alertmanager" in alerts.sources[-1].problem
    assert [one.name for one in alerts.told] == ["A"]


def test_no_source_at_all_is_no_error(read):
    alerts = read()
    assert (alerts.told, alerts.rules, alerts.sources) == ((), (), ())


def test_login_is_sent_and_never_shown():
    seen = []
    with serve({RULES: rules()}, seen=seen) as address:
        with_login = address.replace("//", "//reader:secret@")
        alerts = read_alerts(Settings(alert_sources=with_login))
    assert seen[0][1]["Authorization"] == "Basic cmVhZGVyOnNlY3JldA=="
    assert "secret" not in alerts.sources[0].address


def test_token_goes_to_our_own_evaluator_only(tmp_path):
    token = tmp_path / "token"
    token.write_text("swordfish-swordfish\n")
    seen = []
    with serve({RULES: rules()}, seen=seen) as ours, serve({RULES: rules()}, seen=seen) as other:
        read_alerts(
            Settings(
                alert_sources=f"{ours},{other}",
                alerts_port=int(ours.rpartition(":")[2]),
                token_file=str(token),
            )
        )
    assert [headers.get("Authorization") for _, headers in seen] == ["Bearer swordfish-swordfish", None]


def test_source_that_asks_for_a_login_says_how_to_give_one():
    with serve({}, status=401) as address:
        problem = read_alerts(Settings(alert_sources=address)).sources[0].problem
    assert "asks for a login" in problem
    assert "MOESCOPE_TOKEN_FILE" in problem


@pytest.mark.parametrize(
    "words",
    [
        b"\x00\xff no http\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 99_999,
    ],
)
def test_whatever_is_said_instead_of_an_answer_is_no_answer(words):
    with speak(words) as address:
        (source,) = read_alerts(Settings(alert_sources=address)).sources
    assert f"{address} gives no answer" in source.problem


def test_password_does_not_follow_a_redirection():
    seen: list = []
    with serve({RULES: rules()}, seen=seen) as other:
        moved = f"HTTP/1.1 302 Found\r\nLocation: {other}{RULES}\r\nContent-Length: 0\r\n\r\n"
        with speak(moved.encode()) as address:
            read_alerts(Settings(alert_sources=address.replace("://", "://reader:secret@")))
    ((_, headers),) = seen
    assert "Authorization" not in headers
