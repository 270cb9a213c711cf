"""What is under way, and what is stored, survives a crash."""

import pyarrow as pa
import pytest

from moescope.schemas.errors import DataDirectoryError
from moescope.server.deduplication_log import repair_deduplication_logs
from moescope.server.journal import Journal
from moescope.server.landed_request import LandedRequest
from moescope.server.stored_requests import StoredRequests

SUMS = {"otel_metrics_sum": pa.table({"Value": [13.0, 23.0]})}
BOTH = {**SUMS, "otel_metrics_gauge": pa.table({"Value": [79.0]})}
REQUESTS = [LandedRequest(b"a" * 16, SUMS, 100), LandedRequest(b"b" * 16, BOTH, 100)]


def digests(first: int, last: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(first, last)]


def test_written_batch_is_read_back_as_it_was(tmp_path):
    written = Journal(tmp_path / "journal").write(REQUESTS)
    (read,) = Journal(tmp_path / "journal").unfinished()
    assert read == written
    assert read.digests == (b"a" * 16, b"b" * 16)
    gauge, sums = read.tables
    assert (gauge.name, gauge.rows, gauge.columns) == ("otel_metrics_gauge", 1, ("Value",))
    assert pa.ipc.open_stream(sums.path).read_all()["Value"].to_pylist() == [13.0, 23.0, 13.0, 23.0]


def test_removed_batch_is_gone(tmp_path):
    journal = Journal(tmp_path)
    batch = journal.write(REQUESTS)
    other = journal.write(REQUESTS[:1])
    journal.remove(batch.token)
    journal.remove(batch.token)
    assert list(journal.unfinished()) == [other]
    assert len(list(tmp_path.iterdir())) == 2


def test_batch_without_its_header_was_not_finished_and_is_thrown_away(tmp_path):
    journal = Journal(tmp_path)
    batch = journal.write(REQUESTS)
    (tmp_path / f"{batch.token}.batch").unlink()
    (tmp_path / "1.batch.tmp").write_bytes(b"{")
    assert list(Journal(tmp_path).unfinished()) == []
    assert list(tmp_path.iterdir()) == []


def test_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    calls = iter([None, None, OSError(28, "No space left on device")])

    def fsync(_):
        error = next(calls, None)
        if error:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises(OSError, match="No space left"):
            journal.write(REQUESTS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"digests": ["zz"], "tables": []}', b"\xff"])
def test_damaged_batch_is_named_with_the_way_out(tmp_path, damage):
    journal = Journal(tmp_path)
    (tmp_path / "x.batch").write_bytes(damage)
    with pytest.raises(DataDirectoryError, match=r"x\.batch .* move it away"):
        list(journal.unfinished())


def test_batch_whose_rows_are_missing_is_named(tmp_path):
    journal = Journal(tmp_path)
    journal.write(REQUESTS).tables[0].path.unlink()
    with pytest.raises(DataDirectoryError, match="misses its rows"):
        list(journal.unfinished())


def test_stored_digests_are_known_after_a_restart(tmp_path):
    stored = StoredRequests(tmp_path / "stored")
    stored.add(digests(0, 13))
    stored.add(digests(10, 23))
    again = StoredRequests(tmp_path / "stored")
    assert all(digest in again for digest in digests(0, 23))
    assert digests(23, 24)[0] not in again


def test_torn_end_of_the_file_is_cut_off(tmp_path):
    stored = StoredRequests(tmp_path / "stored")
    stored.add(digests(0, 13))
    with (tmp_path / "stored").open("ab") as file:
        file.write(b"torn")
    again = StoredRequests(tmp_path / "stored")
    again.add(digests(13, 14))
    assert all(digest in StoredRequests(tmp_path / "stored") for digest in digests(0, 14))


def test_oldest_digests_are_forgotten_and_the_file_stays_short(tmp_path):
    stored = StoredRequests(tmp_path / "stored", capacity=79)
    for number in range(1000):
        stored.add(digests(number, number + 1))
    assert digests(921, 922)[0] in stored
    assert digests(920, 921)[0] not in stored
    assert (tmp_path / "stored").stat().st_size <= 16 * (2 * 79 + 1)


@pytest.fixture
def table(tmp_path):
    folder = tmp_path / "store" / "abc" / "abc-1"
    (folder / "deduplication_logs").mkdir(parents=True)
    for part in ("20261129_1_3_1", "20261129_4_4_0", "all_7_7_0", "detached", "tmp_insert_20261129_9_9_0"):
        (folder / part).mkdir()
    return folder


def log_after_repair(tmp_path, table, text: str) -> str:
    log = table / "deduplication_logs" / "deduplication_log_1.txt"
    log.write_text(text)
    removed = repair_deduplication_logs(tmp_path)
    assert text.count("\n") + (not text.endswith("\n")) - log.read_text().count("\n") == removed
    return log.read_text()


def test_token_whose_part_is_there_or_was_merged_is_kept(tmp_path, table):
    text = "1\t20261129_2_2_0\thash\n1\t20261129_4_4_0\thash\n1\tall_7_7_0\thash\n2\t20261128_1_1_0\thash\n"
    assert log_after_repair(tmp_path, table, text) == text


@pytest.mark.parametrize(
    "orphan",
    [
        "1\t20261129_9_9_0\thash\n",  # only its temporary folder is there
        "1\t20261128_2_2_0\thash\n",  # another partition
        "1\t20261129_5_5_0\thash\n",
        "1\t20261129_4_4_0\tha",  # torn
        "rubbish\n",
    ],
)
def test_token_without_a_part_is_taken_out(tmp_path, table, orphan):
    good = "1\t20261129_4_4_0\thash\n"
    assert log_after_repair(tmp_path, table, good + orphan) == good


def test_split_that_a_crash_cut_short_is_undone(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    batch = journal.write(REQUESTS)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", lambda *_: None)
        parts = journal.split(batch)
    assert [part.digests for part in parts] == [(request.digest,) for request in REQUESTS]
    assert list(Journal(tmp_path).unfinished()) == [batch]
    assert len(Journal(tmp_path).split(batch)) == len(REQUESTS)
    assert {found.token for found in Journal(tmp_path).unfinished()} == {part.token for part in parts}
