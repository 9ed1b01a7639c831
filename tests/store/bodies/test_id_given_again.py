"""A queue's number, and with it the id of a body, may be given again after a crash (queue-and-store section 11.4)."""

from random import Random

import pytest

from warren.store.disk.faulty_disk import FaultyDisk

from ..engines import DirectBodies

FIRST, SECOND, OTHER, LAST = b"1" * 16, b"1" * 16, b"2" * 16, b"3" * 16


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


@pytest.mark.parametrize("syncs", [1, 2], ids=["before the file is given up", "before the file is deleted"])
def test_a_file_that_is_scanned_again_brings_no_earlier_body_back(tmp_path, syncs):
    """If a kill interrupts the deletion of a file, the next start scans that file alone. An earlier body in it does not
    take the place of the body that was written last, which is in a later file.
    """
    disk = FaultyDisk()

    def started(references):
        disk.kill()
        store = DirectBodies(disk, "persistent", f"{tmp_path}/index", file_limit=80, boot_id="boot")
        store.recover(False, lambda: [references])
        return store

    store = started([])
    store.write([(FIRST, b"never confirmed"), (OTHER, b"keeps the file")])
    store.write_all()
    store.engine.abandon()

    store = started([OTHER])
    store.write([(LAST, bytes(100))])
    store.write_all()
    store.write([(SECOND, b"confirmed")])
    store.write_all()
    store.remove([OTHER])
    assert store.engine.take_gc() is None, "the collection of the first file waits for a commit of its intent"
    for left in range(syncs - 1, -1, -1):
        sync = store.engine.take_sync()
        sync.run()
        store.engine.finish_sync(sync)
        if left:
            job = store.engine.take_gc()
            job.run()
            store.engine.finish_gc(job)
    store.engine.abandon()
    assert "1.rdq" in disk.list("persistent")

    store = started([SECOND, LAST])
    assert store.read([SECOND, LAST]) == [b"confirmed", bytes(100)]
    store.close()
