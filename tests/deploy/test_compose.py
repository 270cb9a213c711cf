"""The compose file: pinned, closed, asking for its secrets, and read by the real docker-compose."""

import os
import re
import subprocess
import xml.etree.ElementTree as ET

import pytest
import yaml

from moescope.schemas.settings import load_settings, setting_rows
from tests.deploy.grafana_boards import DEPLOY

FOLDER = DEPLOY / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
SECRETS = (
    "TELEMETRY_TOKEN",
    "CLICKHOUSE_WRITER_PASSWORD",
    "CLICKHOUSE_READER_PASSWORD",
    "GRAFANA_ADMIN_PASSWORD",
)
OURS = {name for name, one in SERVICES.items() if "moescope" in one["image"]}


def test_the_services_are_those_that_the_documentation_names():
    assert set(SERVICES) == {
        *("prepare", "clickhouse", "migrate", "moescope", "otel-collector", "dashboard", "alerts"),
        *("prometheus", "alertmanager", "grafana"),
    }


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_containers_cannot_write_and_nobody_is_root(name):
    service = SERVICES[name]
    tag = service["image"].removesuffix("}").rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag), service["image"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    # One service gives volumes to their owners, without a network, and ends.
    assert service["user"].split(":")[0] != "0" or (name == "prepare" and service["network_mode"] == "none")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_unless_it_is_asked_for(name):
    for published in SERVICES[name].get("ports", []):
        assert published.startswith(("127.0.0.1:", "${OTLP_BIND:-127.0.0.1}:")), published


def test_what_runs_on_has_a_health_check_and_is_waited_for():
    for name, service in SERVICES.items():
        is_once = service["restart"] == "no"
        # The Collector's image has no shell and no program to ask with.
        assert ("healthcheck" in service) is not (is_once or name == "otel-collector"), name
        for other, condition in service.get("depends_on", {}).items():
            expected = (
                "service_completed_successfully" if SERVICES[other]["restart"] == "no" else "service_healthy"
            )
            assert condition == {"condition": expected}, (name, other)


def test_settings_of_every_container_are_settings():
    for name in OURS:
        environ = SERVICES[name].get("environment", {})
        ours = {key: str(value) for key, value in environ.items() if key.startswith("MOESCOPE_")}
        load_settings({key: "10" if "PORT" in key else value for key, value in ours.items()})


def test_containers_use_the_ports_that_moescope_has():
    defaults = {row.env: row.default for row in setting_rows()}
    targets = {
        name: {int(one.rpartition(":")[2]) for one in service.get("ports", [])}
        for name, service in SERVICES.items()
    }
    assert targets["dashboard"] == {defaults["MOESCOPE_DASHBOARD_PORT"]}
    assert targets["moescope"] == {defaults["MOESCOPE_METRICS_PORT"]}
    assert targets["otel-collector"] == {
        defaults["MOESCOPE_OTLP_GRPC_PORT"],
        defaults["MOESCOPE_OTLP_HTTP_PORT"],
    }
    assert f":{defaults['MOESCOPE_ALERTS_PORT']}/readyz" in str(SERVICES["alerts"]["healthcheck"])


def test_files_that_are_mounted_exist():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]


def test_example_of_the_environment_names_every_variable_and_no_other():
    text = (FOLDER / "compose.yaml").read_text() + (FOLDER / "compose.direct.yaml").read_text()
    used = set(re.findall(r"\$\{([A-Z_]+)", text))
    listed = set(re.findall(r"^#?([A-Z_]+)=", (FOLDER / "env.example").read_text(), re.MULTILINE))
    assert listed == used | {"COMPOSE_PROJECT_NAME"}


def test_who_reads_in_clickhouse_cannot_write_and_nobody_comes_in_without_a_password():
    root = ET.parse(DEPLOY / "clickhouse" / "users.xml").getroot()
    users = {user.tag: user for user in root.find("users")}
    assert ET.parse(DEPLOY / "clickhouse" / "server.xml").getroot().tag == root.tag
    assert users.pop("default").get("remove") == "remove"
    environ = SERVICES["clickhouse"]["environment"]
    assert set(users) == {"moescope_writer", "moescope_reader"}
    for user in users.values():
        assert user.find("password").get("from_env") in environ
    reader = users["moescope_reader"]
    assert [grant.text for grant in reader.find("grants")] == ["GRANT SELECT ON moescope.*"]
    assert root.find(f"profiles/{reader.findtext('profile')}/readonly").text == "2"
    by_reader = [
        name for name, one in SERVICES.items() if "moescope_reader:" in str(one.get("environment", ""))
    ]
    by_writer = [name for name, one in SERVICES.items() if "moescope_writer:" in str(one)]
    assert (by_reader, by_writer) == (["dashboard", "alerts"], ["migrate", "moescope"])


def docker_compose(*files: str, **environ: str) -> subprocess.CompletedProcess:
    options = [word for name in files for word in ("-f", str(FOLDER / name))]
    inherited = {key: value for key, value in os.environ.items() if key not in SECRETS}
    return subprocess.run(
        ["docker-compose", *options, "config"],
        env={**inherited, **environ},
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )


FILLED = dict.fromkeys(SECRETS, "a-secret-of-a-test")


@pytest.mark.tools
@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.direct.yaml")], ids=len)
def test_real_docker_compose_reads_it(files):
    done = docker_compose(*files, **FILLED)
    assert done.returncode == 0, done.stderr
    collector = yaml.safe_load(done.stdout)["services"]["otel-collector"]
    [config] = [one for one in collector["volumes"] if "/etc/otelcol/config.yaml" in one]
    assert ("direct.yaml" in config) == (len(files) == 2)


@pytest.mark.tools
@pytest.mark.parametrize("missing", SECRETS)
def test_real_docker_compose_refuses_to_start_without_a_secret(missing):
    done = docker_compose("compose.yaml", **{key: value for key, value in FILLED.items() if key != missing})
    assert done.returncode != 0
    assert missing in done.stderr
    assert "env.example" in done.stderr


def test_prometheus_has_the_jobs_links_and_rules_of_deploy_prometheus():
    ours = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    plain = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert ours["global"] == plain["global"]
    assert ours["alerting"]["alert_relabel_configs"] == plain["alerting"]["alert_relabel_configs"]
    jobs = {one["job_name"]: one for one in ours["scrape_configs"]}
    assert {one["job_name"] for one in plain["scrape_configs"]} <= set(jobs)
    for name in ("moescope", "moescope-alerts"):
        assert jobs[name]["authorization"] == {"credentials_file": "/run/moescope/token"}
    targets = {
        target.partition(":")[0]
        for job in ours["scrape_configs"]
        for one in job.get("static_configs", [])
        for target in one["targets"]
    }
    assert targets <= {*SERVICES, "localhost"}


@pytest.mark.tools
def test_real_promtool_reads_the_configuration_of_prometheus():
    done = subprocess.run(
        ["promtool", "check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
