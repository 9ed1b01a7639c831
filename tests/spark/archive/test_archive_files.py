"""The files that an archive's task writes: their names follow from the offsets, each has one date, and a full disk is
survived.
"""

import errno
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.spark.archive.parquet_files import FileWriter, _by_date, file_path
from warren.spark.errors import SparkSourceError

SCHEMA = pa.schema([("seq", pa.int64()), ("body", pa.binary()), ("arrived", pa.timestamp("us", tz="UTC"))])
AT = 1_763_800_000_000
DAYS = [datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)]


def batch(numbers, arrived):
    rows = [{"seq": number, "body": b"x", "arrived": arrived(number)} for number in numbers]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def write(target, covers, gaps, batches, queue="a/b", gaps_behind=0):
    given = range(covers.start + gaps, covers.stop - gaps_behind)
    writer = FileWriter(str(target), queue, "9f" * 16, covers, given, AT, "zstd")
    return list(writer.write(iter(batches)))


def files(target):
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_names():
    path = file_path("a/b=c", "9f3a0000aaaa", "2026-11-23", 7, 12)
    assert path == f"queue=a%2Fb%3Dc/date=2026-11-23/9f3a0000-{7:020}-{12:020}.parquet"


def test_a_file_ends_with_its_day_and_all_numbers_are_accounted_for(tmp_path):
    batches = [batch(range(10, 20), lambda n: DAYS[n >= 15]), batch([21, 25], lambda n: DAYS[1])]
    found = write(tmp_path, range(5, 30), 5, batches)
    assert [(f.first, f.next, f.rows, f.gone, f.gaps) for f in found] == [(5, 15, 5, 0, 5), (15, 30, 7, 8, 0)]
    assert [f.path for f in found] == files(tmp_path)
    assert [f.path.split("/")[1] for f in found] == ["date=2026-11-22", "date=2026-11-23"]
    assert pyarrow.parquet.read_metadata(tmp_path / found[1].path).num_rows == 7
    assert (found[0].arrived_least, found[1].arrived_most) == (DAYS[0], DAYS[1])


def test_a_gap_behind_the_last_day_belongs_to_that_day(tmp_path):
    """A file counts the gaps within its own numbers, or the first one would have less than no message that is gone."""
    found = write(tmp_path, range(5, 60), 5, [batch(range(10, 28), lambda n: DAYS[n >= 15])], gaps_behind=30)
    assert [(f.first, f.next, f.rows, f.gone, f.gaps) for f in found] == [(5, 15, 5, 0, 5), (15, 60, 13, 2, 30)]


@given(
    st.lists(
        st.none() | st.datetimes(datetime(1999, 12, 30), datetime(2000, 1, 3), timezones=st.just(UTC)), max_size=30
    )
)
@example([datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)])
def test_dates_are_those_that_each_message_has_by_itself(arrivals):
    """The dates, which are computed by column, are those that a simple function computes for each message."""
    found = [
        (date, row["seq"])
        for date, part in _by_date(batch(range(len(arrivals)), lambda n: arrivals[n]), AT)
        for row in part.to_pylist()
    ]
    instead = datetime.fromtimestamp(AT / 1000, UTC)
    assert found == [((each or instead).date().isoformat(), number) for number, each in enumerate(arrivals)]


def test_a_string_that_messages_share_is_there_once_and_every_reader_sees_strings(tmp_path):
    """A task gives dictionaries, each batch its own; the file has plain columns, and its row group one dictionary."""
    shared = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([*SCHEMA, ("queue", shared), ("type", shared), ("headers", pa.map_(pa.string(), pa.string()))])
    batches = [
        pa.RecordBatch.from_pylist(
            [
                {"seq": n, "body": b"x", "queue": "q", "type": kind, "headers": [("a", str(n))]}
                for n, kind in enumerate(kinds, first)
            ],
            schema=schema,
        )
        for first, kinds in ((0, ["a", None, "b"]), (3, ["c", "a"]), (5, [None, None]))
    ]
    (found,) = write(tmp_path, range(7), 0, batches)
    file = pyarrow.parquet.ParquetFile(tmp_path / found.path)
    assert file.schema_arrow.field("type").type == pa.string()
    rows = file.read().to_pylist()
    assert rows == [row for batch in batches for row in batch.to_pylist()]
    group = file.metadata.row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert all(columns[name].has_dictionary_page for name in ("queue", "type", "headers.key_value.key"))
    # The bodies differ, and nobody seeks a range of them.
    assert not columns["body"].has_dictionary_page and not columns["body"].is_stats_set
    assert columns["seq"].statistics.max == 6 and columns["type"].statistics.null_count == 3


def test_sought_columns_have_bloom_filters(tmp_path):
    """Columns by which messages are sought have Bloom filters, so that a reader skips row groups without the value; a
    column of nulls has none (SP-92).
    """
    schema = pa.schema([*SCHEMA, ("message_id", pa.string()), ("correlation_id", pa.string())])
    rows = [{"seq": n, "body": b"", "message_id": f"m-{n}"} for n in range(10)]
    (found,) = write(tmp_path, range(10), 0, [pa.RecordBatch.from_pylist(rows, schema=schema)])
    group = pyarrow.parquet.read_metadata(tmp_path / found.path).row_group(0)
    lengths = [group.column(place).to_dict()["bloom_filter_length"] for place in range(5)]
    assert [bool(length) for length in lengths] == [False, False, False, True, False] and lengths[3] < 100


def test_a_task_that_runs_again_replaces_its_files_by_equal_ones(tmp_path):
    batches = [batch(range(10), lambda n: None)]
    first = write(tmp_path, range(10), 0, batches)
    content = (tmp_path / first[0].path).read_bytes()
    assert write(tmp_path, range(10), 0, batches) == first
    assert files(tmp_path) == [first[0].path] and (tmp_path / first[0].path).read_bytes() == content
    assert "date=2025-11-22" in first[0].path  # The message's arrival is not known, so this is the date of the trigger.


def test_a_range_without_messages_is_noted_without_a_file(tmp_path):
    (found,) = write(tmp_path, range(3, 9), 2, [])
    assert (found.path, found.first, found.next, found.rows, found.gone, found.gaps) == (None, 3, 9, 0, 4, 2)
    assert files(tmp_path) == []


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    def full(self, *arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pa.parquet.ParquetWriter, "write_table", full)
    with pytest.raises(SparkSourceError) as caught:
        write(tmp_path, range(10), 0, [batch(range(10), lambda n: None)])
    assert caught.value.code == "E14" and "Messages before number 0 are safe" in str(caught.value)
    assert files(tmp_path) == []
