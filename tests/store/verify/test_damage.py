"""A virtual host with any one byte damaged: messages in whole frames and records survive every later start."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warren.store.bodies.walk_records import walk_records
from warren.store.data_dir.data_dir import DataDir
from warren.store.data_dir.file_limits import FileLimits
from warren.store.data_dir.recovery_terms import RecoveryTerms, take_terms
from warren.store.data_dir.vhost_dir import DamagedConfig, open_vhost
from warren.store.disk.real_disk import RealDisk
from warren.store.disk.walk_frames import walk_frames
from warren.store.index.segment_file import BLOCK
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.records import Kind, Type, decode_runs, decode_spans, records
from warren.store.verify.verify_journal import check_journal
from warren.store.verify.verify_report import Findings, Severity
from warren.store.verify.verify_segments import QueueIndexFiles, check_index

from ..sim_vhost import SimVhost

#: Queue id -> highest priority.
QUEUES = {1: None, 2: 2}
LIMITS = FileLimits(journal=900, store=700, segment_entries=16, embed_below=60)
BOOT = "boot"
STORED = b"stored"


def content(mark: int, size: int) -> bytes:
    return (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + size.to_bytes(8, "big")
        + b"\x10\x00\x02\xce"
        + mark.to_bytes(8, "big")
        + bytes(range(size))
    )


class Vhost(SimVhost):
    """A virtual host on a real disk.

    Every third message of queue 1 goes to the message store; queue 2 has priorities. Some messages are acknowledged,
    some are in segments, and the rest are in the journal.
    """

    def __init__(self, root: Path, boot_id: str = BOOT) -> None:
        disk = RealDisk(DataDir(str(root)).vhost("/"))
        super().__init__(root, QUEUES, disk=disk, limits=LIMITS, boot_id=boot_id)

    def fill(self) -> None:
        mark = 0
        for turn in range(12):
            for queue in self.queues.values():
                contents = [content(mark + index, 100 if index == 2 else 5) for index in range(3)]
                mark += 3
                queue.publish(contents, priority=turn % 3)
            self.write_all()
            if turn % 4 == 1:
                self.queue.ack([got.tag for got in self.queue.fetch(2)])
                self.write_all()

    def end(self, is_clean: bool) -> None:
        if is_clean:
            self.stop()
        self.kill()

    def take_all(self) -> set[tuple[int, bytes]]:
        """Every message, delivered and not acknowledged, so that all are ready again at the next start."""
        found = set()
        for number, queue in self.queues.items():
            contents = [got.content for got in queue.fetch(1 << 30)]
            assert len(contents) == len(set(contents)), "delivered twice"
            found |= {(number, got) for got in contents}
        return found


def directory(root: Path) -> Path:
    """The directory of the virtual host in a data directory."""
    return Path(DataDir(str(root)).vhost("/"))


def messages_at(path: Path, at: int) -> tuple[set[bytes], set[int]]:
    """What the frame or record around a byte has: messages (`STORED` if in the message store) and acked numbers."""
    disk = RealDisk(str(path.parent))
    file = disk.open(path.name)
    try:
        if path.suffix == ".rdq":
            part = next(found for found in walk_records(file) if at < found.offset + found.total_size)
            return {file.read(part.offset + 29, part.total_size - 30)}, set()
        frame = next(found for found in walk_frames(file) if at < found.end)
    finally:
        file.close()
    published: set[bytes] = set()
    acked: set[int] = set()
    if path.suffix == ".idx":
        entries = [] if frame.kind == Kind.ACKS else [frame.payload[BLOCK.size :]]
        acked = (
            {number for span in decode_spans(frame.payload) for number in span} if frame.kind == Kind.ACKS else set()
        )
    else:
        said = list(records(frame.payload))
        entries = [entry.body for entry in said if entry.type is Type.PUBLISH]
        acked = {
            number for entry in said if entry.type is Type.ACK for span in decode_spans(entry.body) for number in span
        }
    for entry in entries:
        for run, is_stored in decode_runs(entry):
            published |= {STORED} if is_stored else set(run.contents)
    return published, acked


@pytest.fixture(scope="module", params=["clean", "killed"])
def template(request, tmp_path_factory) -> tuple[Path, bool, set, set]:
    """The data directory, whether it was stopped cleanly, the messages in it, and all messages ever published."""
    path = tmp_path_factory.mktemp(request.param) / "data"
    vhost = Vhost(path)
    vhost.start()
    vhost.fill()
    vhost.end(request.param == "clean")
    check = path.parent / "check"
    shutil.copytree(path, check)
    other = Vhost(check)
    other.start()
    held = other.take_all()
    other.end(False)
    assert len(held) == 72 - 6
    everything = {
        (queue, content(mark, 100 if mark % 3 == 2 else 5))
        for mark in range(72)
        for queue in QUEUES
        if (mark // 3) % 2 == queue - 1
    }
    assert held < everything
    return path, request.param == "clean", held, everything


@pytest.mark.parametrize("boot_id", [BOOT, "another boot"])
@given(data=st.data())
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_byte(template, boot_id, tmp_path, caplog, data):
    """Whichever byte of journal, segments or message store is damaged, the messages in whole frames and records are
    there at every later start.
    """
    source, is_clean, held, everything = template
    root = tmp_path / "data"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root)
    names = sorted(
        str(found.relative_to(root))
        for found in root.rglob("*")
        if found.suffix in (".wal", ".idx", ".rdq") and found.stat().st_size
    )
    victim = root / data.draw(st.sampled_from(names))
    whole = victim.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    concerned, acked = messages_at(victim, at)
    victim.write_bytes(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
    caplog.clear()
    previous = None
    for stop in (False, True, False):
        vhost = Vhost(root, boot_id)
        vhost.start()
        found = vhost.take_all()
        lost = held - found
        assert found <= everything
        assert all(message in concerned or STORED in concerned and len(message) > 100 for _, message in lost), (
            "more is lost than was damaged"
        )
        assert found <= held or acked, "something came back whose acknowledgement was not damaged"
        # A start that counts references again may find bodies of messages that were acknowledged in the damaged bytes.
        assert previous is None or found == previous or acked and found > previous
        previous = found
        vhost.end(stop)
    said = [
        record.getMessage()
        for record in caplog.records
        if record.name == "warren.store" and "is damaged" in record.getMessage()
    ]
    if previous is not None and held - previous and victim.suffix != ".rdq":
        assert any(str(victim) in line for line in said)


@pytest.mark.parametrize("boot_id", [BOOT, "another boot"])
def test_damaged_acknowledgements_give_back_messages_that_count(template, boot_id, tmp_path, caplog):
    """Messages whose acks were damaged come back after a clean stop and are counted, although the terms of that stop
    count fewer. Those with bodies in the store have lost them until a start counts references again.
    """
    source, _, held, everything = template
    root = tmp_path / "data"
    shutil.copytree(source, root)
    victim = directory(root) / "queues/100/0.idx"
    whole = victim.read_bytes()
    acked = messages_at(victim, len(whole) - 3)[1]
    assert acked, "the last frame has acknowledgements"
    victim.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    starts = []
    for stop in (False, True, False):
        vhost = Vhost(root, boot_id)
        vhost.start()
        starts.append(vhost.take_all())
        assert len(vhost.queue) == 0
        vhost.end(stop)
    assert held < starts[0] <= starts[1] == starts[2] <= everything
    assert not any("is damaged" in record.getMessage() and " -" in record.getMessage() for record in caplog.records)


def test_a_message_that_looks_like_frames(tmp_path):
    """A message holds a copy of a journal: its frames are never taken for the journal's, wherever the damage is."""
    inner = Vhost(tmp_path / "inner")
    inner.start()
    inner.queue.publish([content(number, 5) for number in range(40)])
    inner.write_all()
    inner.kill()
    said = Path(inner.path, "journal/000001.wal").read_bytes()
    outer = Vhost(tmp_path / "outer")
    outer.limits = replace(LIMITS, embed_below=1 << 20, journal=1 << 20)
    outer.start()
    for body in (b"before", said * 2, b"after"):
        outer.queue.publish([bytes(11) + len(body).to_bytes(8, "big") + body])
        outer.write_all()
    outer.kill()
    path = Path(outer.path)
    journal = path / "journal/000001.wal"
    whole = journal.read_bytes()
    start = whole.index(said) - 120
    for at in [*range(start, start + 140), *range(start + 140, start + 2 * len(said), 97)]:
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        replayed = JournalEngine(RealDisk(str(path)), "journal").recover()
        got = [message.content[19:] for run in replayed[1 << 8].embedded.runs for message in run.messages()]
        assert set(got) <= {b"before", said * 2, b"after"} and len(got) >= 2
    for size in range(start + 140, start + 2 * len(said), 97):
        journal.write_bytes(whole[:size])
        replayed = JournalEngine(RealDisk(str(path)), "journal").recover()
        assert [message.content[19:] for run in replayed[1 << 8].embedded.runs for message in run.messages()] == [
            b"before"
        ]


#: Prints how many messages a data directory has. Run with the folder of the tests of the store, and the data directory.
START = """
import sys
from importlib import import_module
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import logging; logging.basicConfig()
vhost = import_module("store.verify.test_damage").Vhost(Path(sys.argv[2]))
vhost.start()
print(len(vhost.take_all()))
"""


@pytest.mark.parametrize("name", ["recovery", "msg_store_persistent/index"])
@pytest.mark.parametrize("size", [0, 4096, 12288])
def test_a_truncated_lmdb_file(template, tmp_path, name, size):
    """LMDB would kill the process (SIGBUS), so the store builds the environment again; no message is lost (QS-42)."""
    source, _, held, _ = template
    shutil.copytree(source, tmp_path / "data")
    data = directory(tmp_path / "data") / name / "data.mdb"
    os.truncate(data, size)
    result = subprocess.run(
        [sys.executable, "-c", START, str(Path(__file__).parents[2]), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
    )
    assert (result.returncode, result.stdout) == (0, f"{len(held)}\n"), result.stderr
    assert str(data.parent) in result.stderr and "No message is lost by that" in result.stderr


@given(data=st.data())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_byte_of_the_recovery_terms(template, tmp_path, data):
    """If a byte of the recovery terms is damaged, the start uses them as they were written or not at all."""
    source, _, held, _ = template
    root = tmp_path / "data"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root)
    terms = directory(root) / "recovery" / "data.mdb"
    whole = terms.read_bytes()
    used = [at for at, byte in enumerate(whole) if byte]
    at = data.draw(st.sampled_from(used))
    terms.write_bytes(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
    vhost = Vhost(root)
    vhost.start()
    assert vhost.take_all() == held
    vhost.end(True)
    vhost.start()
    assert vhost.take_all() == held
    vhost.end(False)


def test_any_bit_of_the_free_list_of_the_recovery_terms(tmp_path):
    """Whichever bit of the free list of the recovery terms is flipped, terms can be taken and written. LMDB reads that
    list only at a commit, long after the check at the start, and fails if lengths in it contradict each other. The
    metadata and the message store's index are checked in the same way.
    """
    source, target = tmp_path / "source", tmp_path / "target"
    for turn in range(3):
        take_terms(str(source))
        leave(source, {number: {"next_seq_id": turn} for number in range(20)})
    whole = (source / "data.mdb").read_bytes()
    page_size = int.from_bytes(whole[40:44], sys.byteorder)
    metas = [(int.from_bytes(whole[at + 144 : at + 152], sys.byteorder), at) for at in (0, page_size)]
    root = max(metas)[1] + 80
    free_list = int.from_bytes(whole[root : root + 8], sys.byteorder) * page_size
    used = [at for at in range(free_list, free_list + page_size) if whole[at]]
    assert 20 < len(used) < 200
    for at in used:
        for bit in range(8):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            (target / "data.mdb").write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            for terms in (take_terms(str(target)), {1: {"next_seq_id": 1}}, {}):
                leave(target, terms)
                take_terms(str(target))


def leave(path: Path, terms: dict) -> None:
    """Write the terms as a stop does."""
    environment = RecoveryTerms(str(path))
    try:
        environment.put_all(terms)
    finally:
        environment.close()


@pytest.mark.parametrize("kind", ["cut", "emptied", "removed"])
def test_a_shortened_segment(template, tmp_path, caplog, kind):
    """A segment file that was shortened is named by a start and by `store verify`, and the next start does not name it
    again. Its journal may be gone, so only the size in a later record of the journal shows that messages are missing.
    """

    def checked(root, name):
        """What `store verify` finds in this segment."""
        disk, findings = RealDisk(str(directory(root))), Findings()
        journal = check_journal(disk, "journal", is_clean, findings, lambda size: None)
        number = int(name.parent.name, 16)
        files = QueueIndexFiles(disk, f"queues/{name.parent.name}", LIMITS.segment_entries, is_clean)
        check_index(files, journal.replayed.get(number), findings, lambda size: None, lambda message_id: None)
        return [finding for finding in findings if str(name).endswith(finding.place)]

    source, is_clean, held, _ = template
    root = tmp_path / "data"
    lost_in = set()
    for path in sorted(directory(source).rglob("*.idx")):
        name = path.relative_to(source)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(source, root)
        if kind == "removed":
            (root / name).unlink()
        else:
            os.truncate(root / name, path.stat().st_size * 2 // 3 if kind == "cut" else 0)
        findings = checked(root, name)
        vhost = Vhost(root)
        caplog.clear()
        vhost.start()
        found = vhost.take_all()
        named = [record for record in caplog.records if f"{root / name} is damaged" in record.getMessage()]
        if not held <= found:
            lost_in.add(name)
            assert len(named) == 1 and named[0].levelno == logging.ERROR
            assert any(finding.severity is Severity.ERROR for finding in findings), "store verify says: fine"
        vhost.write_all()
        vhost.end(False)
        caplog.clear()
        vhost.start()
        assert vhost.take_all() == found and "is damaged" not in caplog.text
        vhost.end(False)
    assert len(lost_in) > 1


@pytest.mark.parametrize("damaged", [b"\0\0", b"\0", b"\xff\xff", b"\0\x10\0"])
def test_a_damaged_config(template, tmp_path, caplog, damaged):
    """A damaged `config` is written again, if the usual number of entries in a segment fits what is there, and the log
    names it.
    """
    source, _, held, _ = template
    shutil.copytree(source, tmp_path / "data")
    config = directory(tmp_path / "data") / "config"
    config.write_bytes(damaged)
    vhost = Vhost(tmp_path / "data")
    vhost.start()
    assert vhost.take_all() == held and config.read_bytes() == b"\0\x10"
    vhost.end(False)
    assert f"{config} is damaged: its bytes are {damaged.hex()}" in caplog.text


def test_a_damaged_config_that_cannot_be_made_again(template, tmp_path):
    """A start whose `config` is damaged and cannot be made again stops and changes nothing: with a wrong number of
    entries it would misread the segments.
    """
    source, is_clean, _, _ = template
    shutil.copytree(source, tmp_path / "data")
    path = directory(tmp_path / "data")
    (path / "config").write_bytes(b"\0\0")
    with pytest.raises(DamagedConfig, match="idx'. Restore 'config' from a backup"):
        open_vhost(RealDisk(str(path)), str(path), QUEUES, 8)
    assert (path / "config").read_bytes() == b"\0\0"


def test_foreign_names(template, tmp_path, caplog):
    """Files with foreign names are left alone, and one line is logged."""
    source, _, held, _ = template
    root = tmp_path / "data"
    shutil.copytree(source, root)
    foreign = [
        "queues/notes",
        "queues/0700",
        "queues/AB",
        "journal/x.wal",
        "journal/1.wal",
        "queues/100/x.idx",
        "msg_store_persistent/07.rdq",
        "msg_store_persistent/x.rdt",
        "msg_store_transient/statement.txt",
        "msg_store_transient/x.rdq",
    ]
    for name in foreign:
        path = directory(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if "." not in name else path.write_bytes(b"mine")
    for stop in (True, True, False, True):
        vhost = Vhost(root)
        vhost.start()
        assert vhost.take_all() == held
        vhost.end(stop)
    assert all((directory(root) / name).exists() for name in foreign)
    text = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    for names in (
        "queues: '0700', 'AB', 'notes' left alone",
        "journal: '1.wal', 'x.wal' left alone",
        "msg_store_persistent: '07.rdq', 'x.rdt' left alone",
    ):
        assert f"{directory(root)}/{names}" in text
