"""Reading the notes that Spark's file sink writes about the files that it has committed."""

import json
from collections import Counter

import pyarrow
import pyarrow.parquet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren.spark.archive import notes
from warren.spark.archive.notes import ArchivedFile, CommittedFiles, committed_files


class Log:
    """The log of a file sink, as Spark writes it: every `interval`th entry repeats all entries before it."""

    def __init__(self, target, interval):
        self.files = target / "_warren" / "files"
        self.entries = self.files / "_spark_metadata"
        self.entries.mkdir(parents=True)
        self.interval = interval
        self.lines = []
        self.batch = 0
        self.committed = []

    def commit(self, numbers):
        """Write one micro-batch with a file for each number."""
        fresh = []
        for number in numbers:
            entry = ArchivedFile(f"f{number}", "q", "id", number, number + 1, 1, 0, 0, 9, None, None, 0)
            name = f"part-{self.batch}-{number}.parquet"
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist([entry._asdict()]), self.files / name)
            fresh.append(json.dumps({"path": f"file:///elsewhere/{name}", "action": "add"}))
            self.committed.append(entry)
        self.lines += fresh
        is_whole = (self.batch + 1) % self.interval == 0
        name, lines = (f"{self.batch}.compact", self.lines) if is_whole else (str(self.batch), fresh)
        (self.entries / name).write_text("\n".join(["v1", *lines]))
        self.batch += 1

    def clean_up(self):
        """Delete the entries before the last one that repeats them, as Spark does."""
        whole = max((int(path.stem) for path in self.entries.glob("*.compact")), default=0)
        for path in self.entries.iterdir():
            if int(path.name.partition(".")[0]) < whole:
                path.unlink()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["commit", "commit", "commit two", "nothing", "take", "clean up"]), max_size=25))
@example(["commit"] * 11)
def test_each_note_is_read_once_and_none_is_missed(tmp_path_factory, steps):
    target = tmp_path_factory.mktemp("archive")
    log, reader, taken, reads = Log(target, 3), CommittedFiles(str(target)), [], Counter()
    read_table = notes.pa.parquet.read_table

    def counted(path):
        reads[path] += 1
        return read_table(path)

    notes.pa.parquet.read_table = counted
    try:
        for step in [*steps, "take"]:
            if step == "take":
                taken += reader.take()
                assert sorted(taken) == sorted(log.committed)
            elif step == "clean up":
                log.clean_up()
            else:
                count = {"commit": 1, "commit two": 2, "nothing": 0}[step]
                log.commit(range(len(log.committed), len(log.committed) + count))
    finally:
        notes.pa.parquet.read_table = read_table
    assert set(reads.values()) <= {1}
    assert committed_files(str(target)) == log.committed  # entries are ordered by number, so "f10" comes after "f9"


def test_an_archive_without_a_log_has_no_files(tmp_path):
    assert CommittedFiles(str(tmp_path)).take() == []
