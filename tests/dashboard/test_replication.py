"""The page of plans: nothing is planned until somebody asks, and its files are those of the command line."""

import shlex
import threading
from pathlib import Path

import pytest
import streamlit as st
from typer.testing import CliRunner

from moescope.cli import app
from moescope.planning import choices
from moescope.planning.request import OutputFormat
from moescope.schemas.attributes import Phase
from tests.analysis.known_workloads import KnownFleet

PAGE = "pages/replication.py"
FLEET = KnownFleet(
    num_ranks=8, num_layers=3, num_experts=48, minutes=8, sigma=0.5, hot={(Phase.DECODE, 2, 23): 13.0}
)
ENGINES = [OutputFormat.VLLM, OutputFormat.SGLANG, OutputFormat.TRTLLM]


@pytest.fixture(scope="module")
def dsn(make_telemetry_dsn):
    return make_telemetry_dsn(FLEET)


@pytest.fixture
def downloads(monkeypatch):
    """What the page's buttons would give away, by file name."""
    given = {}
    draw = st.download_button

    def keep(label, data, **options):
        given[options["file_name"]] = data
        return draw(label, data, **options)

    monkeypatch.setattr(st, "download_button", keep)
    return given


def make_plan(page):
    page.button(key="make_plan").click().run()
    return finish(page)


def finish(page):
    from moescope.dashboard.plan_jobs import shared_jobs

    for job in list(shared_jobs()._jobs.values()):
        assert job.wait(120)
    return page.run()


def commands(page):
    return [one.value for one in page.code if one.value.startswith("moescope plan")]


@pytest.fixture
def run_command(tmp_path, monkeypatch):
    """Run a command line as the page shows it; return the file that it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(command):
        words = shlex.split(command)
        done = CliRunner().invoke(app, words[1:])
        assert done.exception is None, done.output
        return Path(words[words.index("--output") + 1]).read_bytes()

    return run


def test_nothing_is_planned_until_somebody_asks(open_page, dsn, texts):
    from moescope.dashboard.plan_jobs import shared_jobs

    page = open_page(PAGE, dsn)
    page.select_slider(key="moved").set_value("2%").run()
    assert not page.exception
    assert "Nothing is planned until you ask" in texts(page)
    assert not shared_jobs()._jobs
    assert "8 ranks on 2 nodes, 3 layers of 48 experts, 0 redundant experts a layer now" in texts(page)


def test_plan_says_what_to_do_and_what_it_brought_on_past_windows(open_page, dsn, texts, figure_of):
    page = make_plan(open_page(PAGE, dsn, redundant="8"))
    said = texts(page)
    assert "Apply it" in page.subheader[0].value
    assert "Max / mean over 8 ranks falls from " in said
    assert "**Back-test:** planned on what was known, scored on the next window" in said
    assert "in 90 % of windows; worth it" in said
    heat = figure_of(page, "heat")
    assert [one["type"] for one in heat["data"]] == ["heatmap", "heatmap"]
    names = [one["name"] for one in figure_of(page, "ratios")["data"]]
    assert names == ["now", "with the plan", "no placement goes below", "uniform routing would show"]


@pytest.mark.parametrize("settings", [{}, {"redundant": "16"}, {"how": "scratch", "cover": "hot"}])
def test_every_download_is_what_the_command_beside_it_writes(
    open_page, dsn, downloads, run_command, settings
):
    page = make_plan(open_page(PAGE, dsn, **settings))
    assert not page.exception
    shown = [one for one in commands(page) if "--format" in one]
    assert len(shown) == len(ENGINES) + 1
    for command in shown:
        name = shlex.split(command)[-1]
        assert downloads[name].encode() == run_command(command), command


def test_each_engine_is_started_with_the_options_that_fit_the_file(open_page, dsn, texts):
    said = texts(make_plan(open_page(PAGE, dsn, redundant="8")))
    assert "--ep-num-redundant-experts 8 --init-expert-location placement-sglang.json" in said
    assert "MOESCOPE_PLACEMENT_FILE=placement-vllm.json vllm serve" in said
    assert "load_balancer: moe_load_balancer.yaml" in said


def test_settings_that_changed_since_are_said_and_the_plan_stays(open_page, dsn, texts):
    page = make_plan(open_page(PAGE, dsn, redundant="8"))
    page.slider(key="redundant").set_value(16).run()
    assert "What is below was made with other settings." in texts(page)
    assert "Take it along" in texts(page)


def test_memory_that_leaves_slots_empty_refuses_engines_and_keeps_the_plan(
    open_page, dsn, texts, downloads, monkeypatch
):
    monkeypatch.setattr(choices, "_list_budgets", lambda *_: ("250MB",))
    page = open_page(PAGE, dsn, how="scratch", redundant="8")
    page = make_plan(page.select_slider(key="budget").set_value("250MB").run())
    assert "No file for SGLang: --memory-budget leaves" in texts(page)
    assert "plan.json" in downloads
    assert "placement-sglang.json" not in downloads


def test_rules_that_no_plan_can_keep_are_said_in_a_sentence(open_page, dsn, monkeypatch):
    from moescope.dashboard import loaders_replication
    from moescope.schemas.errors import PlanError

    def refuse(*_):
        raise PlanError("48 experts do not fit 47 slots.")

    monkeypatch.setattr(loaders_replication, "make_files", refuse)
    page = make_plan(open_page(PAGE, dsn))
    assert page.error[0].value == "There is no such plan: 48 experts do not fit 47 slots."


def test_progress_is_shown_and_a_cancelled_plan_ends(open_page, dsn, monkeypatch, texts):
    from moescope.dashboard import loaders_replication

    has_begun, may_go_on = threading.Event(), threading.Event()

    def plan_slowly(load, request, progress):
        progress("back-testing", 2, 5)
        has_begun.set()
        may_go_on.wait(60)
        progress("back-testing", 3, 5)
        raise AssertionError("it went on")

    monkeypatch.setattr(loaders_replication, "make_files", plan_slowly)
    page = open_page(PAGE, dsn)
    page.button(key="make_plan").click().run()
    assert has_begun.wait(60)
    page.run()
    assert page.get("progress")[0].proto.text == "Back-testing: 2 of 5"
    page.button(key="cancel_plan").click().run()
    may_go_on.set()
    page = finish(page)
    assert "The plan was cancelled." in texts(page)
    assert page.button(key="make_plan")


def test_group_whose_placement_is_not_known_says_what_is_missing(open_page, make_dsn_unplaced, texts):
    page = open_page(PAGE, make_dsn_unplaced)
    assert not page.exception
    assert "No rank said which experts it holds" in texts(page)
    assert not page.button


@pytest.fixture(scope="module")
def make_dsn_unplaced(tmp_path_factory):
    import clickhouse_connect

    from moescope.schemas.settings import Settings
    from tests.analysis.known_workloads import make_store, write_fleet

    dsn = make_store(tmp_path_factory.mktemp("unplaced"))
    client = clickhouse_connect.get_client(dsn=dsn, database=Settings().database)
    fleet = KnownFleet(service="unplaced", num_ranks=2, num_layers=2, num_experts=8, minutes=2)
    write_fleet(client, fleet, reported_ranks=range(0))
    client.close()
    return dsn
