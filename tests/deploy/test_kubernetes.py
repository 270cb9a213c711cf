"""The Helm chart: rendered by the real Helm, valid by Kubernetes' own schemas, and as closed as it says."""

import re

import pytest
import yaml

from moescope.schemas.settings import load_settings, setting_rows
from tests.deploy.grafana_boards import BOARDS, DEPLOY
from tests.deploy.kubernetes_tools import complaints, read_manifests, run_helm

pytestmark = pytest.mark.tools

CHART = DEPLOY / "kubernetes" / "moescope"
SECRET = ("--set", "secrets.existingSecret=moescope-secrets")
EVERYTHING = (
    *SECRET,
    *("--set", "serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboards.enabled=true"),
    *("--set", "dashboard.ingress.enabled=true,dashboard.ingress.host=moescope.example"),
    *("--set", "dashboard.ingress.tlsSecret=tls,alerts.alertmanagerUrl=http://alertmanager:9093"),
    *("--set", "dashboard.login.existingSecret=moescope-login"),
    *("--set", "alerts.prometheusUrl=http://prometheus:9090,settings.MOESCOPE_IMBALANCE_RATIO=3"),
    *("--set", "prometheusRule.labels.release=kps,serviceMonitor.labels.release=kps"),
    *("--set", "nodeSelector.pool=telemetry,podAnnotations.team=serving,imagePullSecrets[0].name=pull"),
)
VARIANTS = {
    "least": SECRET,
    "everything": EVERYTHING,
    "direct": (*EVERYTHING, "--set", "collector.mode=direct,collector.replicas=3"),
    "own ClickHouse": (
        *EVERYTHING,
        *(
            "--set",
            "clickhouse.enabled=false,clickhouse.external.host=ch.example,clickhouse.external.secure=true",
        ),
        *(
            "--set",
            "clickhouse.external.httpPort=8443,clickhouse.external.nativePort=9440,collector.mode=direct",
        ),
    ),
    "no collector": (
        *SECRET,
        "--set",
        "collector.enabled=false,alerts.enabled=false,dashboard.enabled=false",
    ),
}


@pytest.fixture(scope="module")
def render(tmp_path_factory):
    """Manifests of the chart with some values; each set is rendered once."""
    home, made = tmp_path_factory.mktemp("helm"), {}

    def rendered(*options: str) -> list[dict]:
        if options not in made:
            done = run_helm("template", "fleet", str(CHART), "--namespace", "serving", *options, home=home)
            assert done.returncode == 0, done.stderr
            made[options] = read_manifests(done.stdout)
        return made[options]

    return rendered


@pytest.fixture(scope="module")
def refusal(tmp_path_factory):
    """What Helm says to values that it does not take."""
    home = tmp_path_factory.mktemp("helm")

    def refused(*options: str) -> str:
        done = run_helm("template", "fleet", str(CHART), *options, home=home)
        assert done.returncode != 0, done.stdout
        return done.stderr

    return refused


def pods_of(manifests: list[dict]) -> dict[str, dict]:
    """Pod templates by component."""
    return {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"][
            "spec"
        ]
        for one in manifests
        if one["kind"] in {"Deployment", "StatefulSet"}
    }


def containers_of(pod: dict) -> list[dict]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def environ_of(container: dict) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


def test_helm_finds_nothing_wrong(tmp_path):
    done = run_helm("lint", str(CHART), "--strict", *EVERYTHING, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubernetes_and_the_prometheus_operator_take_the_manifests(render):
    manifests = [one for options in VARIANTS.values() for one in render(*options)]
    assert complaints(manifests, "1.27", "1.34") == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "secrets.existingSecret is required"),
        ((*SECRET, "--set", "colector.enabled=false"), "colector"),
        ((*SECRET, "--set", "collector.mode=both"), "/collector/mode"),
        ((*SECRET, "--set", "image.tag=latest"), "/image/tag"),
        ((*SECRET, "--set", "clickhouse.image=clickhouse/clickhouse-server"), "/clickhouse/image"),
        ((*SECRET, "--set", "settings.IMBALANCE=2"), "invalid propertyName 'IMBALANCE'"),
        ((*SECRET, "--set", "clickhouse.enabled=false"), "clickhouse.external.host is required"),
        ((*SECRET, "--set", "dashboard.ingress.enabled=true"), "dashboard.ingress.host is required"),
    ],
    ids=lambda value: str(value[-1]) if value and isinstance(value, tuple) else None,
)
def test_helm_refuses_what_would_not_work_and_says_why(refusal, options, words):
    assert words in refusal(*options)


@pytest.mark.parametrize("name", VARIANTS)
def test_containers_are_closed_probed_and_know_their_settings(render, name):
    known = {row.env for row in setting_rows()}
    for part, pod in pods_of(render(*VARIANTS[name])).items():
        assert pod["automountServiceAccountToken"] is False, part
        assert pod["securityContext"]["runAsNonRoot"] is True, part
        for container in containers_of(pod):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert re.search(r":[^:]*\d", container["image"])
            environ = environ_of(container)
            assert {key for key in environ if key.startswith("MOESCOPE_")} <= known
            load_settings({key: value for key, value in environ.items() if key.startswith("MOESCOPE_")})
        for container in pod["containers"]:
            assert {"readinessProbe", "livenessProbe"} <= set(container), part


def test_no_secret_is_written_down(render):
    for pod in pods_of(render(*EVERYTHING)).values():
        for container in containers_of(pod):
            for entry in container["env"]:
                if "PASSWORD" in entry["name"] or "TOKEN" in entry["name"].split("_")[-1]:
                    assert entry["valueFrom"]["secretKeyRef"]["name"] == "moescope-secrets"
    assert not any(one["kind"] == "Secret" for one in render(*EVERYTHING))


def test_login_is_asked_for_where_a_secret_says_how(render):
    open_to_all, asked = (pods_of(render(*options))["dashboard"] for options in (SECRET, EVERYTHING))
    assert "MOESCOPE_DASHBOARD_LOGIN" not in environ_of(open_to_all["containers"][0])
    assert environ_of(asked["containers"][0])["MOESCOPE_DASHBOARD_LOGIN"] == "1"
    (image_home,) = re.findall(r"--home-dir (\S+)", (DEPLOY / "Dockerfile").read_text())
    mounts = {one["name"]: one["mountPath"] for one in asked["containers"][0]["volumeMounts"]}
    assert mounts["login"] == f"{image_home}/.streamlit"
    (volume,) = (one for one in asked["volumes"] if one["name"] == "login")
    assert volume["secret"] == {
        "secretName": "moescope-login",
        "items": [{"key": "secrets.toml", "path": "secrets.toml"}],
    }


def test_ports_are_those_of_the_settings(render):
    defaults = {row.env: row.default for row in setting_rows()}
    ports = {
        one["metadata"]["name"]: {port["port"] for port in one["spec"]["ports"]}
        for one in render(*EVERYTHING)
        if one["kind"] == "Service"
    }
    otlp = {defaults["MOESCOPE_OTLP_GRPC_PORT"], defaults["MOESCOPE_OTLP_HTTP_PORT"]}
    assert ports["fleet-moescope-server"] == otlp | {defaults["MOESCOPE_METRICS_PORT"]}
    assert ports["fleet-moescope-collector"] == otlp
    assert ports["fleet-moescope-dashboard"] == {defaults["MOESCOPE_DASHBOARD_PORT"]}
    assert ports["fleet-moescope-alerts"] == {defaults["MOESCOPE_ALERTS_PORT"]}


def test_the_rules_are_those_of_deploy_prometheus(render):
    rendered = [one["spec"] for one in render(*EVERYTHING) if one["kind"] == "PrometheusRule"]
    files = [
        yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "prometheus").glob("*.rules.yaml"))
    ]
    assert files
    assert rendered == files
    assert not any(one["kind"] == "PrometheusRule" for one in render(*SECRET))


def test_the_boards_are_those_of_deploy_grafana(render):
    data = {
        name: text
        for one in render(*EVERYTHING)
        if one["kind"] == "ConfigMap" and "board" in one["metadata"]["name"]
        for name, text in one["data"].items()
    }
    assert {name: text.strip() for name, text in data.items()} == {
        path.name: path.read_text(encoding="utf-8").strip() for path in BOARDS.glob("*.json")
    }


@pytest.mark.parametrize("mode", ["gateway", "direct"])
def test_the_collector_has_the_configuration_of_its_mode_and_what_that_reads(render, mode):
    manifests = render(*EVERYTHING, *(("--set", "collector.mode=direct") if mode == "direct" else ()))
    [config] = [
        one["data"]["config.yaml"]
        for one in manifests
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].endswith("-collector")
    ]
    assert config.strip() == (DEPLOY / "otel-collector" / f"{mode}.yaml").read_text().strip()
    [container] = pods_of(manifests)["collector"]["containers"]
    needed = set(re.findall(r"\$\{env:([A-Z_]+)\}", config))
    possible = set(re.findall(r"\$\{env:([A-Z_]+)", config))
    assert needed <= set(environ_of(container)) <= possible


def test_scraped_labels_stay_those_of_the_page(render):
    monitors = {
        one["metadata"]["name"]: one for one in render(*EVERYTHING) if one["kind"] == "ServiceMonitor"
    }
    assert set(monitors) == {"fleet-moescope-server", "fleet-moescope-alerts", "fleet-moescope-collector"}
    [endpoint] = monitors["fleet-moescope-server"]["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["authorization"]["credentials"] == {"name": "moescope-secrets", "key": "token"}
    assert {"action": "replace", "targetLabel": "job", "replacement": "moescope"} in endpoint["relabelings"]
    [dropped] = [one["regex"] for one in endpoint["relabelings"] if one["action"] == "labeldrop"]
    assert re.fullmatch(dropped, "service")


def test_only_the_collector_reaches_the_server_and_only_moescope_reaches_clickhouse(render):
    policies = {
        one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]["ingress"]
        for one in render(*SECRET)
        if one["kind"] == "NetworkPolicy"
    }
    assert set(policies) == set(pods_of(render(*SECRET)))
    otlp, _ = policies["server"]
    assert [one["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for one in otlp["from"]] == [
        "collector"
    ]
    [clickhouse] = policies["clickhouse"]
    [peer] = clickhouse["from"]
    assert peer["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/name": "moescope",
        "app.kubernetes.io/instance": "fleet",
    }
