import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.openmetrics.exposition import generate_latest

from moescope.collector.scrape.page import Series, parse_page
from moescope.collector.scrape.tables import choose_table
from moescope.schemas.errors import PageError

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_openmetrics_with_exemplars_reads_as_the_text_format_does():
    registry = CollectorRegistry()
    Counter("vllm:generation_tokens", "x", registry=registry).inc(23)
    histogram = Histogram("vllm:time_to_first_token_seconds", "x", buckets=(0.1, 1), registry=registry)
    histogram.observe(0.5, {"trace_id": "13"})

    page = parse_page(generate_latest(registry, "allow-utf-8").decode(), OPENMETRICS)

    assert Series("vllm:generation_tokens_total").total(page) == 23
    assert Series("vllm:time_to_first_token_seconds_bucket", {"le": "1.0"}).total(page) == 1


def test_a_name_whose_colon_was_escaped_on_the_way_is_known():
    registry = CollectorRegistry()
    Counter("vllm:generation_tokens", "x", registry=registry).inc(23)
    text = generate_latest(registry, "underscores").decode()

    page = parse_page(text, OPENMETRICS)

    assert "vllm_generation_tokens_total" in text
    assert Series("vllm:generation_tokens_total").total(page) == 23


@pytest.mark.parametrize("body", ["<html>busy</html>", '{"detail": "Not Found"}', "a b c d", "\x00\x01"])
def test_what_is_no_page_is_refused(body: str):
    with pytest.raises(PageError, match="this is no Prometheus page") as refusal:
        parse_page(body)

    assert refusal.value.reason == "not_metrics"


def test_an_openmetrics_page_that_was_cut_is_refused():
    with pytest.raises(PageError):
        parse_page("# TYPE a counter\na_total 13\n", "application/openmetrics-text")


def test_an_empty_page_is_refused():
    with pytest.raises(PageError, match="no metrics"):
        parse_page("# HELP nothing here\n")


def test_a_page_of_something_else_names_the_engines_that_are_known():
    page = parse_page("node_load1 0.5\n")

    with pytest.raises(PageError, match="no metric of vLLM, SGLang or Dynamo"):
        choose_table(page)
    with pytest.raises(PageError, match="no metric of sglang"):
        choose_table(parse_page("vllm:num_requests_running 1\n"), "sglang")


def test_a_label_that_is_not_there_counts_as_empty():
    page = parse_page('n{priority="",a="1"} 13\nn{priority="7",a="1"} 5\nn{a="2"} 10\n')

    assert Series("n", {"priority": ""}).total(page) == 23
    assert Series("n", {"priority": "9"}).total(page) is None
