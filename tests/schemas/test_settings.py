import logging

import pytest

from moescope.schemas.errors import SettingError
from moescope.schemas.settings import Settings, load_engine_settings, load_settings, setting_rows


def test_defaults_without_an_environment():
    assert load_settings({}) == Settings()


def test_environment_is_read_by_the_type_of_the_default():
    settings = load_settings(
        {
            "MOESCOPE_SQL_PORT": "18123",
            "MOESCOPE_ENABLED": "off",
            "MOESCOPE_INTERVAL_SECONDS": "2.5",
            "MOESCOPE_EP_GROUP": "decode-0",
            "PATH": "/bin",
        }
    )

    assert (settings.sql_port, settings.enabled) == (18123, False)
    assert (settings.interval_seconds, settings.ep_group) == (2.5, "decode-0")


def test_option_wins_over_environment_and_none_does_not():
    environ = {"MOESCOPE_SQL_PORT": "18123"}

    assert load_settings(environ, sql_port=28123).sql_port == 28123
    assert load_settings(environ, sql_port=None).sql_port == 18123


def test_unknown_setting_is_refused_with_the_nearest_name():
    with pytest.raises(SettingError, match="MOESCOPE_SQLPORT; did you mean MOESCOPE_SQL_PORT"):
        load_settings({"MOESCOPE_SQLPORT": "1"})


@pytest.mark.parametrize(
    ("env", "text", "words"),
    [
        ("MOESCOPE_SQL_PORT", "eighty", "not a whole number"),
        ("MOESCOPE_SQL_PORT", "65536", "from 0 to 65535"),
        ("MOESCOPE_ENABLED", "maybe", "yes/no"),
        ("MOESCOPE_HOT_EXPERT_CONFIDENCE", "nan", "out of range"),
        ("MOESCOPE_IMBALANCE_RATIO", "0.5", "at least 1"),
    ],
)
def test_impossible_value_names_the_setting_and_what_it_takes(env: str, text: str, words: str):
    with pytest.raises(SettingError, match=f"{env}=.*{words}"):
        load_settings({env: text})


def test_option_out_of_range_is_named_as_the_option():
    with pytest.raises(SettingError, match="--sql-port=70000"):
        load_settings({}, sql_port=70000)


def test_engine_ignores_a_wrong_setting_loudly(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, logger="moescope"):
        settings = load_engine_settings({"MOESCOPE_INTERVL_SECONDS": "5", "MOESCOPE_EP_GROUP": "g"})

    assert settings.ep_group == "g"
    assert settings.interval_seconds == 10.0
    assert "did you mean MOESCOPE_INTERVAL_SECONDS" in caplog.text


def test_standard_export_interval_wins_in_an_engine():
    environ = {"OTEL_METRIC_EXPORT_INTERVAL": "2500", "MOESCOPE_INTERVAL_SECONDS": "5"}

    assert load_engine_settings(environ).interval_seconds == 2.5


def test_every_setting_has_a_help_sentence():
    for row in setting_rows():
        assert row.help.endswith("."), row.env
