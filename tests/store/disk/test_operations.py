"""Reads and writes of files are counted."""

from warren.store.disk.operations import file_operations
from warren.store.disk.real_disk import RealDisk


def test_reads_and_writes_are_counted_and_those_of_queue_indexes_also_by_themselves(tmp_path):
    disk = RealDisk(str(tmp_path))
    before = file_operations.values()
    for name in ("1.rdq", "0.idx"):
        file = disk.open(name, create=True)
        file.append([b"one", b"two"])
        file.append_synced([b"three"])
        assert file.read(0, 100) == b"onetwothree"
        file.close()
    after = file_operations.values()
    more = {name: after[name] - before[name] for name in after}
    assert (more["reads"], more["writes"], more["index_reads"], more["index_writes"]) == (2, 4, 1, 2)
    assert more["read_seconds"] > 0 and more["write_seconds"] > 0
