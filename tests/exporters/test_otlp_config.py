import pytest

from moescope.exporters.otlp_config import Compression, Protocol, is_disabled, load_otlp_config
from moescope.schemas.errors import SettingError


def test_default_is_grpc_on_localhost_in_plain_text():
    config = load_otlp_config({})

    assert (config.protocol, config.endpoint, config.is_secure) == (Protocol.GRPC, "localhost:4317", False)
    assert (config.timeout_seconds, config.compression) == (10.0, Compression.NONE)


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, "http://localhost:4318/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}, "http://a:1/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1/base/"}, "http://a:1/base/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a:1/own"}, "http://a:1/own"),
        (
            {
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a:1/x",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b",
            },
            "http://a:1/x",
        ),
    ],
)
def test_http_path_is_added_to_the_general_endpoint_only(environ: dict[str, str], endpoint: str):
    config = load_otlp_config({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", **environ})

    assert config.endpoint == endpoint


@pytest.mark.parametrize(
    ("endpoint", "environ", "target", "is_secure"),
    [
        ("https://a:1", {}, "a:1", True),
        ("a:1", {}, "a:1", False),
        ("a:1", {"OTEL_EXPORTER_OTLP_INSECURE": "false"}, "a:1", True),
        ("http://a", {"OTEL_EXPORTER_OTLP_INSECURE": "false"}, "a:4317", False),
        ("http://[::1]:5", {}, "[::1]:5", False),
    ],
)
def test_scheme_decides_over_encryption(endpoint: str, environ: dict[str, str], target: str, is_secure: bool):
    config = load_otlp_config(environ, endpoint=endpoint)

    assert (config.endpoint, config.is_secure) == (target, is_secure)


@pytest.mark.parametrize(("insecure", "is_secure"), [(None, True), ("true", False), ("false", True)])
def test_endpoint_of_the_environment_without_a_scheme_is_encrypted_by_default(insecure, is_secure: bool):
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "a:1"}
    if insecure is not None:
        environ["OTEL_EXPORTER_OTLP_INSECURE"] = insecure

    assert load_otlp_config(environ).is_secure is is_secure


def test_headers_time_out_and_compression_are_read_metric_specific_first():
    config = load_otlp_config(
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "x=1",
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "authorization=Bearer%20t,x=2",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
            "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "2",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
    )

    assert dict(config.headers) == {"authorization": "Bearer t", "x": "2"}
    assert (config.timeout_seconds, config.compression) == (2.0, Compression.GZIP)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, "PROTOCOL='carrier-pigeon'.*grpc, http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_COMPRESSION": "br"}, "COMPRESSION='br'.*none, gzip"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "TIMEOUT='soon'"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "-1"}, "TIMEOUT='-1'"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://a"}, "'ftp://a' is no URL"),
    ],
)
def test_impossible_value_names_the_variable(environ: dict[str, str], words: str):
    with pytest.raises(SettingError, match=words):
        load_otlp_config(environ)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_SDK_DISABLED": "TRUE"}, True),
        ({"OTEL_SDK_DISABLED": "1"}, False),
        ({"OTEL_METRICS_EXPORTER": "none"}, True),
    ],
)
def test_standard_switches_turn_it_off(environ: dict[str, str], expected: bool):
    assert is_disabled(environ) is expected
