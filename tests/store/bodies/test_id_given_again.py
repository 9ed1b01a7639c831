"""A queue's number, and with it the id of a body, may be given again after a crash (queue-and-store section 11.4)."""

from random import Random

from warren.store.disk.faulty_disk import FaultyDisk

from ..engines import DirectBodies

FIRST, SECOND, OTHER = b"1" * 16, b"1" * 16, b"2" * 16


def start(disk, root, references):
    """Start the store after a power cut, when it trusts nothing of its index."""
    store = DirectBodies(
        disk, "persistent", f"{root}/{len(list(root.iterdir()))}", boot_id=f"boot {len(list(root.iterdir()))}"
    )
    store.recover(False, lambda: [references])
    return store


def test_the_body_written_last_counts(tmp_path):
    """If two bodies have the same id after a crash, the one written last counts: the crash kept the first body and lost
    its record in the journal, so another message got the number.
    """
    disk = FaultyDisk()
    store = start(disk, tmp_path, [])
    store.write([(FIRST, b"never confirmed"), (OTHER, b"keeps the file")])
    store.write_all()
    store.engine.abandon()
    disk.crash(Random(1))

    store = start(disk, tmp_path, [OTHER])
    assert store.read([FIRST, OTHER]) == [None, b"keeps the file"]
    store.write([(SECOND, b"confirmed")])
    store.write_all()
    store.engine.abandon()
    disk.crash(Random(2))

    store = start(disk, tmp_path, [SECOND, OTHER])
    assert store.read([SECOND, OTHER]) == [b"confirmed", b"keeps the file"]
    store.close()
