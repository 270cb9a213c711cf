from moescope.collector.optional_part import OptionalPart


def test_a_part_runs_until_it_fails_and_takes_off_what_it_put_on_once(caplog):
    done, given_up = [], []
    part = OptionalPart("passes are not timed any more", lambda: given_up.append(13))

    part.attempt(done.append, 23)
    part.attempt([].remove, 23)
    part.attempt(done.append, 79)

    assert (done, given_up, part.has_failed) == ([23], [13], True)
    assert [record.message for record in caplog.records] == [
        "moescope: passes are not timed any more; serving goes on"
    ]


def test_a_part_that_cannot_even_be_taken_off_raises_nothing():
    part = OptionalPart("passes are not timed any more", [].pop)

    part.attempt([].pop)

    assert part.has_failed
