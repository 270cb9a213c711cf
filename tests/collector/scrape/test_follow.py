from hypothesis import given
from hypothesis import strategies as st

from moescope.collector.scrape.page import Page, parse_page
from moescope.schemas import metrics as m
from tests.collector.scrape.conftest import Told


def vllm(generated: int, first_tokens: int = 0, *, hits: int = 0, running: int | None = 0) -> Page:
    text = f'vllm:generation_tokens_total{{engine="0"}} {generated}\n'
    for le in ("0.1", "+Inf"):
        text += f'vllm:time_to_first_token_seconds_bucket{{engine="0",le="{le}"}} {first_tokens}\n'
    text += f'vllm:time_to_first_token_seconds_count{{engine="0"}} {first_tokens}\n'
    text += f'vllm:time_to_first_token_seconds_sum{{engine="0"}} {first_tokens * 0.05}\n'
    text += f'vllm:prefix_cache_hits_total{{engine="0"}} {hits}\n'
    if running is not None:
        text += f'vllm:num_requests_running{{engine="0"}} {running}\n'
    return parse_page(text)


DECODE = f"{m.TOKENS.name} decode"
HITS = f"{m.PREFIX_CACHE_TOKENS.name} hit"


def test_the_first_page_only_says_where_totals_stand(told: Told):
    window = told.follow(vllm(79, 13, hits=23, running=5)).window()

    assert window == {m.REQUESTS_RUNNING.name: 5}


def test_a_page_that_says_the_same_adds_nothing(told: Told):
    told.follow(vllm(79, 13)).window()

    assert told.follow(vllm(79, 13)).window() == {m.REQUESTS_RUNNING.name: 0}


def test_a_page_that_did_not_come_is_made_up_for(told: Told):
    told.follow(vllm(0), vllm(13))

    assert told.follow(vllm(79)).window()[DECODE] == 79


def test_after_a_restart_totals_count_from_zero(told: Told):
    told.follow(vllm(1000, hits=3)).window()

    window = told.follow(vllm(79, 13, hits=5)).window()

    assert window[DECODE] == 79 - 13
    assert window[HITS] == 5, "a total that is larger than before the restart counts from zero too"
    assert window[m.TIME_TO_FIRST_TOKEN.name][0] == 13


def test_a_process_that_is_known_to_be_another_one_counts_from_zero(told: Told):
    told.follow(vllm(13))
    follower = told.followers["0"]

    follower.follow(vllm(79).where(lambda labels: labels.get("engine") == "0"), has_restarted=True)

    assert told.window()[DECODE] == 79


def test_other_buckets_are_a_restart(told: Told):
    told.follow(vllm(5, 5)).window()
    text = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="%s"} 7\n'
    name = "vllm:time_to_first_token_seconds"

    window = told.follow(
        parse_page(
            text % "0.5" + text % "+Inf" + f'{name}_sum{{engine="0"}} 0.7\n{name}_count{{engine="0"}} 7\n'
        )
    ).window()

    assert window[m.TIME_TO_FIRST_TOKEN.name] == (7, 0.7)


def test_a_series_that_appears_later_began_at_zero(told: Told):
    told.follow(parse_page('sglang:realtime_tokens_total{mode="decode"} 13\n'))

    told.follow(
        parse_page(
            'sglang:realtime_tokens_total{mode="decode"} 13\n'
            'sglang:realtime_tokens_total{mode="prefill_compute"} 79\n'
        )
    )

    assert told.window("") == {f"{m.TOKENS.name} prefill": 79}


def test_an_engine_that_appears_later_on_a_page_began_at_zero(told: Told):
    line = 'vllm:prefix_cache_hits_total{{engine="{}"}} {}\n'
    told.follow(parse_page(line.format(0, 5)))

    told.follow(parse_page(line.format(0, 5) + line.format(1, 23)))

    assert told.window("1") == {HITS: 23}


def test_a_series_that_vanishes_and_comes_back_goes_on_from_where_it_was(told: Told):
    line = 'sglang:realtime_tokens_total{{mode="{}"}} {}\n'
    both = line.format("decode", 13) + line.format("prefill_compute", 23)
    told.follow(parse_page(both), parse_page(line.format("decode", 13)))

    window = told.follow(parse_page(line.format("decode", 13) + line.format("prefill_compute", 36))).window(
        ""
    )

    assert window == {f"{m.TOKENS.name} prefill": 13}


def test_a_state_that_vanishes_is_told_no_longer(told: Told):
    told.follow(vllm(0, running=13)).window()

    assert told.follow(vllm(0, running=None)).window() == {}


def test_a_value_that_is_no_number_is_as_good_as_none(told: Told):
    line = 'vllm:prefix_cache_hits_total{{engine="0"}} {}\nvllm:num_requests_running{{engine="0"}} {}\n'
    line += 'vllm:num_requests_waiting{{engine="0"}} 5\n'
    told.follow(*(parse_page(line.format(*values)) for values in ((13, 1), ("NaN", "NaN"), (36, "+Inf"))))

    assert told.window() == {HITS: 23, m.REQUESTS_WAITING.name: 5}


def test_a_url_that_leads_to_several_engines_by_turns_is_named(told: Told, caplog):
    for _ in range(5):
        told.follow(vllm(1000), vllm(13))

    [said] = caplog.messages
    assert "several engines by turns" in said


@given(
    st.lists(st.tuples(st.integers(0, 23), st.integers(0, 5), st.booleans()), min_size=1, max_size=13),
)
def test_whatever_is_scraped_when_nothing_is_lost_or_doubled(steps):
    """A difference of two totals, of which the page may show one earlier than the other."""
    told = Told().follow(vllm(0))
    generated = first_tokens = 0
    for more_tokens, more_requests, is_late in steps:
        first_tokens += more_requests
        generated += more_tokens + more_requests
        shown = generated - more_requests if is_late else generated
        told.follow(vllm(shown, first_tokens))
    told.follow(vllm(generated, first_tokens))

    window = told.window()
    assert window.get(DECODE, 0) == generated - first_tokens
    assert window.get(m.TIME_TO_FIRST_TOKEN.name, (0, 0))[0] == first_tokens
