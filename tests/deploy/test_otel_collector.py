"""The Collector's configurations: whole, and in step with what the wire, the page and the store say.

The Collector itself is no package that tests can install; what only it can say is not tested here.
"""

import re

import pytest
import yaml

from moescope.schemas import attributes as a
from moescope.schemas.metrics import METRICS
from moescope.schemas.migrate import MIGRATIONS_FOLDER
from moescope.schemas.page_metrics import (
    CONTRACT_LIMIT,
    JUDGED_METRICS,
    NOT_ON_A_PAGE,
    PAGE_FAMILIES,
    PAGE_ONLY_METRICS,
    Reading,
    label_name,
)
from tests.deploy.grafana_boards import DEPLOY

FOLDER = DEPLOY / "otel-collector"
GATEWAY, DIRECT = (yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in ("gateway", "direct"))
BOTH = pytest.mark.parametrize("config", [GATEWAY, DIRECT], ids=["gateway", "direct"])


def pipelines(config: dict) -> dict[str, dict[str, list[str]]]:
    return config["service"]["pipelines"]


@BOTH
def test_every_part_that_is_named_exists_and_every_part_that_exists_is_used(config):
    connectors = set(config.get("connectors", {}))
    for section in ("receivers", "processors", "exporters"):
        used = {name for one in pipelines(config).values() for name in one.get(section, [])}
        assert used - connectors == set(config[section]), section
    assert set(config["service"]["extensions"]) == set(config["extensions"])


@BOTH
def test_queues_are_on_disk_and_nothing_is_given_up(config):
    senders = [one for name, one in config["exporters"].items() if name != "prometheus"]
    assert senders
    for exporter in senders:
        assert exporter["sending_queue"]["storage"] in config["extensions"]
        assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert config["extensions"]["file_storage"]["fsync"] is True


@BOTH
def test_memory_is_limited_before_anything_else(config):
    entrances = [one for one in pipelines(config).values() if one["receivers"] == ["otlp"]]
    assert entrances
    assert all(one["processors"][0] == "memory_limiter" for one in entrances)


@BOTH
def test_nobody_comes_in_without_the_token(config):
    for protocol in config["receivers"]["otlp"]["protocols"].values():
        authenticator = protocol["auth"]["authenticator"]
        assert config["extensions"][authenticator]["token"] == "${env:TELEMETRY_TOKEN}"


def test_gateway_hands_on_requests_as_they_came():
    # The server knows a repeated request by its bytes.
    [pipeline] = pipelines(GATEWAY).values()
    assert pipeline["processors"] == ["memory_limiter"]
    assert "batch" not in GATEWAY["exporters"]["otlp_grpc"]["sending_queue"]


def test_index_encoded_points_go_to_the_store_only():
    routing = DIRECT["connectors"]["routing"]
    [route] = routing["table"]
    assert route["context"] == "datapoint"
    assert route["condition"] == f'attributes["{a.ENCODING}"] == "{a.ENCODING_INDEX}"'
    assert route["pipelines"] == ["metrics/store"]
    assert set(routing["default_pipelines"]) == {"metrics/store", "metrics/page"}
    assert pipelines(DIRECT)["metrics/store"]["exporters"] == ["clickhouse"]
    assert pipelines(DIRECT)["metrics/page"]["exporters"] == ["prometheus"]


def test_what_fails_on_the_way_to_the_page_is_not_told_to_the_engine():
    # It would send again what is stored already.
    for name in pipelines(DIRECT)["metrics/page"]["processors"]:
        assert DIRECT["processors"][name].get("error_mode", "ignore") == "ignore"
    assert not {"filter", "transform"} & {
        name.partition("/")[0] for name in pipelines(DIRECT)["metrics/store"].get("processors", [])
    }


def test_the_page_of_the_collector_has_the_labels_of_our_page():
    by_context = {
        one["context"]: one["statements"]
        for one in DIRECT["processors"]["transform/page"]["metric_statements"]
    }
    made = {}
    for statement in by_context["datapoint"]:
        match = re.match(r'set\(attributes\["(\w+)"\], (resource\.)?attributes\["([\w.]+)"\]\)', statement)
        if match:
            made[match[3]] = match[1]
    keys = {key for family in PAGE_FAMILIES if not family.source.is_index_encoded for key in family.keys}
    needed = keys | {a.SERVICE_NAME, a.EP_GROUP, a.EP_RANK}
    assert {key: made.get(key) for key in needed} == {key: label_name(key) for key in needed}

    [kept] = by_context["metric"]
    listed = set(re.findall(r'"([\w.]+\.[\w.]+)"', kept))
    assert listed == set(made) - {a.SERVICE_NAME, a.EP_GROUP, a.EP_RANK}
    assert keys <= listed
    assert not {a.LAYER, a.REQUEST_MODEL} & listed


def test_the_page_of_the_collector_leaves_out_what_no_page_has():
    [condition] = DIRECT["processors"]["filter/page"]["metrics"]["metric"]
    plain = {one.name for one in METRICS if not one.is_index_encoded} & set(NOT_ON_A_PAGE)
    assert plain == set(re.findall(r'name == "([\w.]+)"', condition))


def test_the_exporter_writes_into_the_tables_of_the_migrations():
    exporter = DIRECT["exporters"]["clickhouse"]
    tables = {path.stem[5 : -len("_table")] for path in MIGRATIONS_FOLDER.glob("*_otel_metrics_*_table.sql")}
    assert exporter["create_schema"] is False
    assert {one["name"] for one in exporter["metrics_tables"].values()} == tables
    assert all(one["name"] == f"otel_metrics_{kind}" for kind, one in exporter["metrics_tables"].items())


def test_alerts_that_the_direct_way_cannot_feed_are_those_that_the_page_names():
    judged = {one.prometheus_name for one in (*JUDGED_METRICS, CONTRACT_LIMIT)}
    from_collector = {one.metric.prometheus_name for one in PAGE_FAMILIES if one.reading is Reading.VALUE}
    families = {one.metric.prometheus_name for one in PAGE_FAMILIES}
    only_stored = families | {one.prometheus_name for one in PAGE_ONLY_METRICS}
    only_stored -= judged | from_collector
    blind = set()
    for path in (DEPLOY / "prometheus").glob("*.rules.yaml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                names = set(re.findall(r"\b(?:moe|moescope)_\w+", rule["expr"]))
                if names & only_stored or any(name.startswith("moescope_ingest_") for name in names):
                    blind.add(rule.get("alert") or rule["record"])
    text = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    [row] = [line for line in text.splitlines() if line.startswith("| only with a server that stores")]
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", row)) - {"RankSilent"}
    assert blind == named
