"""The optional login: asked for only where the settings say so, and then nothing else is shown."""

import sys

import pytest

from moescope.dashboard import login


@pytest.fixture
def asks_for_login(monkeypatch):
    monkeypatch.setenv("MOESCOPE_DASHBOARD_LOGIN", "1")


@pytest.fixture
def with_provider(asks_for_login, monkeypatch):
    monkeypatch.setattr(login, "_find_problem", lambda: "")
    return lambda *, is_logged_in: monkeypatch.setattr(login, "is_logged_in", lambda: is_logged_in)


def _errors(page):
    return [error.value for error in page.error]


@pytest.mark.parametrize("package", ["authlib", "httpx"])
def test_missing_package_is_named_and_nothing_is_shown(
    open_page, make_dsn, asks_for_login, monkeypatch, package
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "authlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    page = open_page("app.py", make_dsn())
    assert not page.exception
    assert f"the package {package} is not installed here: `pip install 'moescope[login]'`" in _errors(page)[0]
    assert not page.subheader


def test_missing_secrets_are_named(open_page, make_dsn, asks_for_login):
    page = open_page("app.py", make_dsn())
    assert "has no section `[auth]`" in _errors(page)[0]
    assert "MOESCOPE_DASHBOARD_LOGIN=0" in _errors(page)[0]


def test_stranger_sees_the_way_in_and_nothing_else(open_page, make_dsn, with_provider):
    with_provider(is_logged_in=False)
    page = open_page("app.py", make_dsn())
    assert not page.exception
    assert [button.label for button in page.button] == ["Log in"]
    assert [heading.value for heading in page.subheader] == ["moescope"]


def test_who_is_logged_in_sees_the_pages(open_page, make_dsn, with_provider):
    with_provider(is_logged_in=True)
    page = open_page("app.py", make_dsn())
    assert page.subheader[0].value == "No expert load has arrived yet"
    assert page.button[-1].label == "Log out"


def test_nobody_is_asked_where_the_settings_do_not_say_so(open_page, make_dsn):
    assert open_page("app.py", make_dsn()).subheader[0].value == "No expert load has arrived yet"


def test_who_is_not_asked_needs_no_way_out(open_page, make_dsn):
    assert "Log out" not in [button.label for button in open_page("app.py", make_dsn()).button]
