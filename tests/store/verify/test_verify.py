"""`store.verify` reads a data directory, whole or damaged in every way, changes nothing, and its findings are right.

Requirements: QS-41, QS-42, C-1 to C-26.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import lmdb
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warren.actors.metadata.log.row_encoding import stored_rows
from warren.store.bodies.store_engine import StoreEngine
from warren.store.bodies.store_recovery import StoreState, write_state
from warren.store.data_dir.data_dir import FORMAT, claim
from warren.store.data_dir.log_tables import LogStart, LogWrite
from warren.store.data_dir.metadata_store import Change, MetadataStore
from warren.store.data_dir.recovery_terms import RecoveryTerms
from warren.store.disk.real_disk import RealDisk
from warren.store.index.segment_file import Entries, encode
from warren.store.messages.message import Origin
from warren.store.messages.records import FRAME, Kind, Type, encode_run, encode_spans, frame, make_stub, record
from warren.store.messages.run import Run
from warren.store.verify import verify as engine
from warren.store.verify.verify_report import KEPT_OF_A_PLACE, Severity, VerifyReport

E = 16
"""Entries of a segment."""
ORDERS, AUDIT = 0x100, 0x200
"""Numbers of the two queues, without levels."""
EMPTY_TABLE = bytes(4)
PERSISTENT = Origin("", ("q",), persistent=True)
TRANSIENT = Origin("", ("q",))
STORE = "msg_store_persistent"


def content(size: int) -> bytes:
    return bytes(11) + size.to_bytes(8, "big") + b"x" * size


def message_id(queue: int, number: int) -> bytes:
    return queue.to_bytes(8, "big") + number.to_bytes(8, "big")


def embedded(first: int, count: int, origin: Origin = PERSISTENT) -> Entries:
    return Entries(Run(first, [content(5)] * count, origin, None, False, 5 * count), False)


def stored(queue: int, first: int, count: int) -> Entries:
    return Entries(
        Run(
            first,
            [make_stub(message_id(queue, n), 50) for n in range(first, first + count)],
            PERSISTENT,
            None,
            False,
            50 * count,
        ),
        True,
    )


def publish(queue: int, entries: Entries) -> list[bytes]:
    return record(Type.PUBLISH, queue, encode_run(*entries))


def ack(queue: int, *spans: range) -> list[bytes]:
    return record(Type.ACK, queue, [encode_spans(spans)])


def retire(file: int) -> list[bytes]:
    return record(Type.RETIRE, file, [])


def frames(*payloads: Sequence[bytes], kind: int = Kind.RECORDS) -> bytes:
    joined = [b"".join(parts) for parts in payloads]
    return b"".join(frame(kind, payload) + payload for payload in joined)


class Directory:
    """A data directory as a broker leaves it, written with the broker's engines. Its virtual host `/` has two queues.

    orders    0 to 15 in 0.idx, 0 to 3 acked; 16 to 31 in 1.idx, the bodies of 20 to 31 in the message store;
              after a kill also 32 to 39 in the journal, 32 and 33 acked
    audit     0 to 7 in 0.idx, all bodies in the message store
    """

    def __init__(self, path: Path, is_clean: bool) -> None:
        self.path = path
        self.is_clean = is_clean
        claimed = claim(str(path), "warren@test")
        self.vhost = Path(claimed.directory.make_vhost("/"))
        self.place = f"vhosts/{self.vhost.name}"
        metadata = MetadataStore(claimed.directory.metadata)
        metadata.apply(
            [
                Change("vhosts", ("/",), {}),
                self.queue_row("orders", 1),
                self.queue_row("audit", 2),
                Change(
                    "exchanges",
                    ("/", "x"),
                    {"type": "direct", "auto_delete": False, "internal": False, "arguments": EMPTY_TABLE},
                ),
                Change("bindings", ("/", "x", "queue", "orders", "k", EMPTY_TABLE), {}),
                Change("bindings", ("/", "amq.topic", "queue", "audit", "k", EMPTY_TABLE), {}),
            ]
        )
        metadata.close()
        claimed.release()
        (self.vhost / "config").write_bytes(E.to_bytes(2, "big"))
        self.write("queues/100/0.idx", self.segment([embedded(0, 16)], [range(0, 4)]))
        self.write("queues/100/1.idx", self.segment([embedded(16, 4), stored(ORDERS, 20, 12)]))
        self.write("queues/200/0.idx", self.segment([stored(AUDIT, 0, 8)]))
        self.fill_store()
        states = [
            part
            for queue, number in ((ORDERS, 32), (AUDIT, 8))
            for part in record(Type.STATE, queue, [number.to_bytes(8, "big")])
        ]
        if is_clean:
            self.write("journal/000003.wal", frames([*states, *retire(3)]))
        else:
            self.write(
                "journal/000002.wal",
                frames(
                    [*states, *retire(2)],
                    publish(ORDERS, embedded(32, 4)),
                    publish(ORDERS, embedded(36, 4)),
                    ack(ORDERS, range(32, 34)),
                ),
            )
        self.put_terms(
            {1: self.terms(32, 28, 680, {0: 12, 1: 16}), 2: self.terms(8, 8, 400, {0: 8})} if is_clean else {}
        )

    @staticmethod
    def queue_row(name: str, number: int) -> Change:
        return Change(
            "queues",
            ("/", name),
            {
                "queue_id": f"{number:014x}" + "f" * 18,
                "auto_delete": False,
                "type": "classic",
                "arguments": EMPTY_TABLE,
            },
        )

    @staticmethod
    def segment(pieces: list[Entries], acks: list[range] = []) -> bytes:  # noqa: B006
        return b"".join(encode(pieces, acks, 0)[0])

    @staticmethod
    def terms(next_number: int, count: int, size: int, segments: dict[int, int]) -> dict:
        return {
            "next_seq_id": next_number,
            "next_deliver_seq_id": 0,
            "persistent_count": count,
            "persistent_bytes": size,
            "segments": segments,
        }

    def put_terms(self, terms: dict) -> None:
        shutil.rmtree(self.vhost / "recovery", ignore_errors=True)
        environment = RecoveryTerms(str(self.vhost / "recovery"))
        environment.put_all(terms)
        environment.close()

    def opened_store(self) -> StoreEngine:
        store = StoreEngine(
            RealDisk(str(self.vhost)), STORE, str(self.vhost / STORE / "index"), file_limit=1100, boot_id="boot"
        )
        ids = [message_id(ORDERS, number) for number in range(20, 32)] + [
            message_id(AUDIT, number) for number in range(8)
        ]
        store.recover({"c"}, lambda: [ids])
        store.register("c")
        return store

    def fill_store(self) -> None:
        """Fill the message store. Eight messages that no queue refers to stand in between."""
        store = self.opened_store()
        for queue, first, count in ((ORDERS, 20, 12), (AUDIT, 100, 8), (AUDIT, 0, 8)):
            store.write("c", [(message_id(queue, number), content(50)) for number in range(first, first + count)])
            self.work(store)
        store.remove("c", [message_id(AUDIT, number) for number in range(100, 106)])
        if self.is_clean:
            store.remove("c", [message_id(AUDIT, number) for number in range(106, 108)])
            store.detach("c")
            store.close()
        else:
            self.work(store)
            store.abandon()

    @staticmethod
    def work(store: StoreEngine) -> None:
        sync = store.take_sync(everything=True)
        if sync is not None:
            sync.run()
            store.finish_sync(sync)

    def write(self, name: str, data: bytes) -> None:
        path = self.vhost / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def flip(self, name: str, offset: int, bits: int = 1) -> None:
        data = bytearray((self.vhost / name).read_bytes())
        data[offset] ^= bits
        (self.vhost / name).write_bytes(data)

    def verify(self, boot_id: str = "boot") -> VerifyReport:
        before = tree(self.path)
        with engine.opened(str(self.path)) as path:
            report = engine.verify(path, lambda tables: stored_rows(tables).stale, boot_id=boot_id)
        assert tree(self.path) == before, "verify has changed something"
        assert report.as_dict()["path"] == str(self.path)
        return report

    def found(self, boot_id: str = "boot") -> list[tuple[str, str, int | None, str]]:
        """(severity, place within the virtual host, offset, what was found) of each finding."""
        return [
            (finding.severity.name, finding.place.removeprefix(f"{self.place}/"), finding.offset, finding.found)
            for finding in self.verify(boot_id).findings
        ]

    def only(self, severity: str, place: str, text: str, offset: int | None = None) -> str:
        """Assert that there is this finding and no other as bad or worse; returns its outcome."""
        findings = list(self.verify().findings)
        worst = [finding for finding in findings if finding.severity >= Severity[severity]]
        assert [finding.place.removeprefix(f"{self.place}/") for finding in worst] == [place], findings
        assert worst[0].severity is Severity[severity]
        assert text in worst[0].found, worst
        assert worst[0].offset == offset
        return worst[0].outcome


def tree(path: Path) -> dict[str, tuple]:
    """Every name below a directory with its content and time of change."""
    return {
        str(found): (found.stat().st_mtime_ns, found.read_bytes() if found.is_file() else None)
        for found in sorted(path.rglob("*"))
    }


@pytest.fixture(params=["clean", "killed"])
def any_stop(request, tmp_path) -> Directory:
    return Directory(tmp_path / "data", request.param == "clean")


@pytest.fixture
def clean(tmp_path) -> Directory:
    return Directory(tmp_path / "data", True)


@pytest.fixture
def killed(tmp_path) -> Directory:
    return Directory(tmp_path / "data", False)


class TestWhole:
    def test_after_a_clean_stop(self, clean):
        """After a clean stop nothing is found, and everything is counted."""
        report = clean.verify()
        assert clean.found() == []
        assert report.is_fine and report.format == FORMAT
        (vhost,) = report.vhosts
        assert (vhost.name, vhost.stopped, vhost.journal_files) == ("/", "clean", 1)
        assert [
            (queue.name, queue.messages, queue.segment_bytes, queue.journal_messages) for queue in vhost.queues
        ] == [("audit", 8, 400, 0), ("orders", 28, 680, 0)]
        assert [(file.name, file.size, file.live) for file in vhost.files] == [
            ("1.rdq", 1188, 1188),
            ("2.rdq", 1188, 396),
            ("3.rdq", 396, 396),
        ]

    def test_after_a_kill(self, killed):
        """Messages in the journal are counted with those in segments, and acks in the journal apply to both."""
        report = killed.verify()
        assert killed.found() == []
        orders = next(queue for queue in report.vhosts[0].queues if queue.name == "orders")
        assert report.vhosts[0].stopped == "unclean"
        assert (orders.segment_messages, orders.journal_messages, orders.journal_bytes, orders.messages) == (
            28,
            6,
            30,
            34,
        )

    def test_after_a_restart_of_the_machine(self, killed):
        """After a restart of the machine all files are scanned, because the index may be damaged then (queue-and-store
        section 11.4).
        """
        assert killed.found("another boot") == [
            (
                "NOTE",
                f"{STORE}/index",
                None,
                "the machine was restarted after the store had ended uncleanly, so the index may be damaged",
            )
        ]
        assert killed.verify("another boot").is_fine

    def test_entries_in_journal_and_segment_count_once(self, killed):
        """After a kill between a flush and the end of the journal's file, entries that are in journal and segment count
        once (C-12). Some of them are acked in the journal alone.
        """
        killed.write("journal/000003.wal", frames(publish(ORDERS, embedded(8, 8)), ack(ORDERS, range(8, 10))))
        orders = killed.verify().vhosts[0].queues[1]
        assert killed.found() == []
        assert (orders.segment_messages, orders.journal_messages) == (26, 6)

    def test_levels_of_a_priority_queue_are_one_queue(self, clean):
        clean.write("queues/105/0.idx", clean.segment([embedded(0, 3)]))
        clean.put_terms(
            {
                1: {"levels": {0: clean.terms(32, 28, 680, {0: 12, 1: 16}), 5: clean.terms(3, 3, 15, {0: 3})}},
                2: clean.terms(8, 8, 400, {0: 8}),
            }
        )
        assert clean.found() == []
        assert [queue.messages for queue in clean.verify().vhosts[0].queues] == [8, 31]


class TestJournal:
    NAME = "journal/000002.wal"

    def ends(self, directory: Directory) -> list[int]:
        """Where the frames of the journal end."""
        data, found = (directory.vhost / self.NAME).read_bytes(), [0]
        while found[-1] < len(data):
            found.append(found[-1] + FRAME.size + FRAME.unpack_from(data, found[-1])[3])
        return found[1:]

    def test_a_torn_tail_is_normal(self, killed):
        """After a kill, a frame of the journal that was not written to its end is reported only as a note
        (C-15, C-11).
        """
        last = self.ends(killed)[-2]
        os.truncate(killed.vhost / self.NAME, last + 17)
        assert "it has nothing that was confirmed" in killed.only("NOTE", self.NAME, "a torn tail of 17 bytes", last)
        assert killed.verify().is_fine

    def test_a_tail_of_zeros_is_normal(self, killed):
        """C-26: a file system may leave zeros behind the last record after a crash, so `verify` reports only a note."""
        size = self.ends(killed)[-1]
        os.truncate(killed.vhost / self.NAME, size + 5000)
        killed.only("NOTE", self.NAME, "a torn tail of 5,000 bytes: zeros", size)

    def test_a_last_frame_with_a_wrong_checksum(self, killed):
        """A last frame with a wrong checksum is reported: it may be torn, or damaged long after it was confirmed."""
        last = self.ends(killed)[-2]
        killed.flip(self.NAME, last + FRAME.size + 20)
        assert "if the power failed while they were written" in killed.only(
            "WARNING", self.NAME, "wrong checksum", last
        )

    @pytest.mark.parametrize("at", [0, 1, 3, 4, 5, 7, 9, 12, 40])
    def test_damage_in_the_middle(self, killed, at):
        """Whichever byte of a frame is damaged, its size included, the frames behind it are found and counted."""
        second = self.ends(killed)[0]
        killed.flip(self.NAME, second + at, 0x40)
        outcome = killed.only(
            "ERROR", self.NAME, "behind it 2 whole frames, with 4 messages and 2 acknowledgements", second
        )
        assert "replays all whole frames" in outcome
        assert killed.verify().vhosts[0].queues[1].messages == 32, "all but the four of the damaged frame"

    def test_a_torn_tail_that_something_follows(self, killed):
        last = self.ends(killed)[-2]
        os.truncate(killed.vhost / self.NAME, last + 17)
        killed.write("journal/000003.wal", frames(ack(ORDERS, range(34, 35))))
        killed.only("ERROR", self.NAME, "17 damaged bytes", last)

    def test_a_missing_file(self, killed):
        killed.write("journal/000005.wal", frames(ack(ORDERS, range(34, 35))))
        assert "messages and acknowledgements in them are lost" in killed.only(
            "ERROR", "journal/000003.wal", "2 files of the journal are missing, up to 000004.wal"
        )

    def test_no_file_at_all(self, killed):
        (killed.vhost / self.NAME).unlink()
        killed.only("ERROR", "journal", "there is no file in it, although queues have messages")

    def test_retired_files_do_not_count(self, killed):
        """Journal files that were retired and not yet deleted do not count, not even damage in them (C-13)."""
        killed.write("journal/000001.wal", frames(publish(ORDERS, embedded(100, 4)))[:-1])
        killed.only("NOTE", "journal/000001.wal", "1 retired files")
        assert killed.verify().vhosts[0].queues[1].messages == 34

    def test_a_deleted_queue_leaves_nothing(self, killed):
        killed.write("journal/000003.wal", frames(record(Type.DELETE, ORDERS, [])))
        assert killed.verify().vhosts[0].queues[1].journal_messages == 0

    def test_what_no_warren_wrote(self, killed):
        size = self.ends(killed)[-1]
        with open(killed.vhost / self.NAME, "ab") as file:
            file.write(frames([b"\x63" * 30]))
        assert "cannot start this virtual host" in killed.only(
            "ERROR", self.NAME, "a whole frame that cannot be understood", size
        )

    def test_messages_published_twice(self, killed):
        killed.write("journal/000003.wal", frames(publish(ORDERS, embedded(38, 4))))
        killed.only("ERROR", "journal/000003.wal", "messages 38 to 41 of queue 100 are published a second time", 0)

    @pytest.mark.parametrize("name", ["copy.wal", "notes.txt"])
    def test_foreign_files(self, killed, name):
        killed.write(f"journal/{name}", b"")
        assert killed.only("WARNING", f"journal/{name}", "it is no file of the journal") == "it is left alone"

    def test_after_a_clean_stop_no_tail_is_torn(self, clean):
        os.truncate(clean.vhost / "journal/000003.wal", 20)
        clean.only("WARNING", "journal/000003.wal", "although the virtual host was stopped cleanly", 0)

    def test_something_in_it_after_a_clean_stop(self, clean):
        clean.write("journal/000004.wal", frames(publish(ORDERS, embedded(32, 1))))
        assert any(
            place == "journal" and "although the virtual host was stopped cleanly" in text
            for _, place, _, text in clean.found()
        )


class TestSegments:
    NAME = "queues/100/0.idx"

    def test_a_torn_tail_is_normal_after_a_kill(self, killed):
        """D-9, C-11: after a kill, a segment that ends inside a frame is a note, because the journal has the entry."""
        os.truncate(killed.vhost / self.NAME, (killed.vhost / self.NAME).stat().st_size - 1)
        assert "the journal still has every confirmed message" in killed.only(
            "NOTE", self.NAME, "a torn tail of 27 bytes", (killed.vhost / self.NAME).stat().st_size - 27
        )

    def test_and_not_after_a_clean_stop(self, clean):
        os.truncate(clean.vhost / self.NAME, (clean.vhost / self.NAME).stat().st_size - 1)
        assert [severity for severity, place, _, _ in clean.found()] == ["ERROR", "ERROR"], (
            "the frame, and the counts that are not those of the terms"
        )

    def test_damage_in_the_middle(self, any_stop):
        """Damage in the middle of a segment is reported, and the four acks and four messages behind it are counted."""
        with open(any_stop.vhost / self.NAME, "wb") as file:
            file.write(
                any_stop.segment([embedded(0, 4)])
                + any_stop.segment([embedded(4, 8)])
                + any_stop.segment([embedded(12, 4)], [range(0, 4)])
            )
        at = len(any_stop.segment([embedded(0, 4)]))
        any_stop.flip(self.NAME, at + 50)
        error = next(finding for finding in any_stop.verify().findings if finding.offset is not None)
        assert error.severity is Severity.ERROR and error.offset == at
        assert (
            "behind it 2 whole frames with 4 messages and 4 acknowledgements that the journal does not have"
            in error.found
        )
        assert "rewrites it with its whole frames only" in error.outcome and "kept as 0.idx.damaged" in error.outcome
        assert any_stop.verify().vhosts[0].queues[1].segment_messages == 16 + 4

    def test_a_hole_that_a_power_cut_left(self, killed):
        """A hole that a power cut left in a segment is reported only as a note: of two appends that were not synced the
        later one reached the disk, and the journal has both (C-26).
        """
        with open(killed.vhost / "queues/100/2.idx", "wb") as file:
            file.write(bytes(200) + killed.segment([embedded(36, 4)]))
        assert "the journal still has everything behind them" in killed.only(
            "NOTE", "queues/100/2.idx", "200 bytes of zeros, and 1 whole frames behind them", 0
        )
        with open(killed.vhost / "queues/100/2.idx", "wb") as file:
            file.write(bytes(200) + killed.segment([embedded(40, 4)]))
        killed.only("ERROR", "queues/100/2.idx", "1 whole frames with 4 messages", 0)

    @pytest.mark.parametrize(
        ("name", "text"),
        [("0.idx.damaged", "a damaged segment as it was"), ("0.idx.new", "which a crash interrupted")],
    )
    def test_what_salvage_leaves(self, killed, name, text):
        killed.write(f"queues/100/{name}", b"?")
        killed.only("NOTE", f"queues/100/{name}", text)

    def test_a_last_frame_with_a_wrong_checksum(self, killed):
        killed.flip("queues/100/1.idx", 100)
        killed.only("WARNING", "queues/100/1.idx", "wrong checksum", 0)

    def test_messages_of_another_segment(self, any_stop):
        any_stop.write("queues/100/1.idx", any_stop.segment([embedded(16, 20)]))
        findings = any_stop.found()
        assert (
            "ERROR",
            "queues/100/1.idx",
            0,
            "messages 16 to 35 do not belong into this segment, which is for 16 to 31",
        ) in findings

    def test_a_block_that_lies(self, killed):
        data = killed.segment([embedded(16, 4)])
        payload = (15).to_bytes(8, "big") + data[FRAME.size + 8 :]
        killed.write("queues/100/1.idx", frame(Kind.ENTRIES, payload) + payload)
        killed.only("ERROR", "queues/100/1.idx", "states 4 messages, 15 to 19, and the block has 4, 16 to 19", 0)

    def test_acknowledgements_of_unknown_messages(self, killed):
        killed.write("queues/100/1.idx", killed.segment([embedded(16, 4)], [range(18, 24)]))
        killed.only("WARNING", "queues/100/1.idx", "4 acknowledgements of messages that it does not have")

    def test_what_no_warren_wrote(self, killed):
        killed.write("queues/100/1.idx", frames([b"?" * 50], kind=Kind.ENTRIES) + frames([b"?"], kind=Kind.RECORDS))
        assert [text.split(":")[0] for severity, _, _, text in killed.found() if severity == "ERROR"] == [
            "a whole frame that cannot be understood"
        ] * 2

    def test_an_empty_one(self, killed):
        """An empty segment file is reported only as a note: it was made, and nothing was written to it yet (C-18)."""
        killed.write("queues/100/2.idx", b"")
        killed.only("NOTE", "queues/100/2.idx", "it is empty")

    @pytest.mark.parametrize("name", ["old.idx", "01.idx", "journal.jif"])
    def test_foreign_files(self, killed, name):
        killed.write(f"queues/100/{name}", b"")
        assert killed.only("WARNING", f"queues/100/{name}", "it is no index segment") == "it is left alone"

    def test_transient_messages_do_not_count(self, killed):
        """Transient messages may stand in segments; none survives a restart (queue-and-store section 4.10)."""
        killed.write("queues/100/2.idx", killed.segment([embedded(40, 4, TRANSIENT)]))
        assert killed.found() == []
        assert killed.verify().vhosts[0].queues[1].messages == 34

    def test_only_so_many_findings_of_a_place(self, killed):
        killed.write("queues/100/1.idx", frames(*[[b"?" * 50]] * 100, kind=Kind.ENTRIES))
        findings = list(killed.verify().findings)
        assert len(findings) == KEPT_OF_A_PLACE + 1
        assert findings[-1].found == f"{100 - KEPT_OF_A_PLACE} more findings of this severity"


class TestBodies:
    NAME = f"{STORE}/1.rdq"
    RECORD = 69 + 30

    def test_a_damaged_record_that_a_queue_refers_to(self, any_stop):
        """If a queue refers to a message whose record is damaged, the finding names the message and where its record
        stands (D-19).
        """
        any_stop.flip(self.NAME, 2 * self.RECORD + 60)
        error = next(finding for finding in any_stop.verify().findings if finding.place.endswith("1.rdq"))
        assert (error.severity, error.offset) == (Severity.ERROR, 2 * self.RECORD)
        assert f"queues refer to what was in them: message {message_id(ORDERS, 22).hex()}" in error.found
        assert ("ERROR", "queues/100") in [found[:2] for found in any_stop.found()]

    def test_damage_in_garbage_is_a_note(self, any_stop):
        any_stop.flip(f"{STORE}/2.rdq", 2 * self.RECORD + 60)
        any_stop.only(
            "NOTE", f"{STORE}/2.rdq", "99 damaged bytes, which no queue is known to refer to", 2 * self.RECORD
        )

    def test_a_damaged_size(self, killed):
        """A damaged size of a record costs that record only, whether all files are scanned (after a restart of the
        machine) or not.
        """
        killed.flip(self.NAME, 2 * self.RECORD + 5)
        error = next(finding for finding in killed.verify("another boot").findings if finding.place.endswith("1.rdq"))
        assert (error.severity, error.offset) == (Severity.ERROR, 2 * self.RECORD)
        for boot_id in ("boot", "another boot"):
            assert (
                "ERROR",
                "queues/100",
                None,
                "the bodies of 1 messages are not in the message store, which is damaged",
            ) in killed.found(boot_id)

    def test_a_torn_tail_is_normal_after_a_kill(self, killed):
        """C-19, C-1: after a kill, a data file that ends inside a record is a note."""
        with open(killed.vhost / STORE / "3.rdq", "ab") as file:
            file.write((500).to_bytes(8, "big") + bytes(100))
        killed.only("NOTE", f"{STORE}/3.rdq", "a torn tail of 108 bytes", 4 * self.RECORD)

    def test_missing_bodies_are_normal_after_a_kill(self, killed):
        """Bodies that are missing after a kill are normal, and nothing else is damaged (C-3, C-10)."""
        killed.write("queues/200/1.idx", killed.segment([stored(AUDIT, 16, 3)]))
        outcome = killed.only(
            "NOTE", "queues/200", "the bodies of 3 messages are not in the message store, as a crash may leave it"
        )
        assert "they are dropped" in outcome
        assert killed.verify().vhosts[0].queues[0].missing_bodies == 3

    def test_missing_bodies_are_not_normal_after_a_clean_stop(self, clean):
        clean.write("queues/200/0.idx", clean.segment([stored(AUDIT, 0, 9)]))
        clean.put_terms({1: clean.terms(32, 28, 680, {0: 12, 1: 16}), 2: clean.terms(9, 9, 450, {0: 9})})
        clean.only(
            "ERROR",
            "queues/200",
            "the bodies of 1 messages are not in the message store, although it was stopped cleanly",
        )

    def test_a_missing_file(self, any_stop):
        (any_stop.vhost / self.NAME).unlink()
        findings = any_stop.found()
        assert (
            "ERROR",
            self.NAME,
            None,
            "it is missing, and in the index of the store it has 1,188",
        ) in findings
        assert any(
            found[:2] == ("ERROR", "queues/100") and "the bodies of 12 messages" in found[3] for found in findings
        )

    def test_a_file_that_was_cut(self, any_stop):
        os.truncate(any_stop.vhost / self.NAME, 500)
        assert (
            "ERROR",
            self.NAME,
            None,
            "it has 500 bytes, and in the index of the store it has 1,188",
        ) in any_stop.found()

    def test_an_interrupted_combine(self, killed):
        """A combination that was killed before the rename is reported only as a note (QS-31, C-20)."""
        killed.write(f"{STORE}/1.rdt", b"half")
        killed.only("NOTE", f"{STORE}/1.rdt", "the copy that combines two files, which a crash interrupted")

    def test_an_intent(self, killed):
        """A combination that was killed between the rename and the commit is reported only as a note, and both files
        are scanned (QS-31).
        """
        with lmdb.open(str(killed.vhost / STORE / "index"), max_dbs=5) as environment:
            with environment.begin(meta := environment.open_db(b"meta"), write=True) as transaction:
                transaction.put(b"intents", msgpack.packb([(1, 2)]))
            assert meta
        killed.only("NOTE", f"{STORE}/index", "1.rdq, 2.rdq were about to be combined or deleted")
        assert sum(file.live for file in killed.verify().vhosts[0].files) == 20 * self.RECORD

    def test_an_index_that_is_gone_costs_nothing(self, killed, tmp_path):
        """QS-42: a missing index is a note, because the store builds it again from the files."""
        shutil.rmtree(killed.vhost / STORE / "index")
        assert "no message is lost" in killed.only("NOTE", f"{STORE}/index", "it is missing")

    def test_an_index_that_is_gone_after_a_clean_stop(self, clean):
        """If somebody removed the directory of the index after a clean stop, no message is lost (QS-42)."""
        shutil.rmtree(clean.vhost / STORE / "index")
        clean.only("WARNING", f"{STORE}/index", "it is missing")

    def test_an_index_of_another_time(self, clean):
        write_state(RealDisk(str(clean.vhost)), STORE, StoreState(True, 77, "boot", ["c"]))
        clean.only("WARNING", f"{STORE}/index", "it is not the one that the store was left with")

    def test_a_damaged_index(self, any_stop):
        """A damaged index is reported without asking LMDB, which would end the process."""
        data = any_stop.vhost / STORE / "index" / "data.mdb"
        os.truncate(data, data.stat().st_size // 2)
        assert "builds the index again; no message is lost" in any_stop.only(
            "ERROR", f"{STORE}/index", "the LMDB file data.mdb is damaged"
        )

    @pytest.mark.parametrize(
        ("damage", "text"),
        [(lambda path: path.unlink(), "it is missing"), (lambda path: path.write_bytes(b"?"), "it is damaged")],
    )
    def test_a_damaged_state(self, clean, damage, text):
        damage(clean.vhost / STORE / "state")
        findings = clean.found()
        assert ("WARNING", f"{STORE}/state", None, text) in findings
        assert any(
            found[1] == STORE and "it was not closed cleanly, although the queues were" in found[3]
            for found in findings
        )

    def alter(self, directory: Directory, change) -> None:
        store = directory.opened_store()
        change(store)
        store.detach("c")
        store.close()

    def test_too_many_references(self, clean):
        """QS-26: a body without references is kept as garbage."""
        self.alter(clean, lambda store: store.write("c", [(message_id(AUDIT, 3), b"")]))
        clean.only("WARNING", f"{STORE}/index", "1 messages have more references than queues refer to them")

    def test_too_few_references(self, clean):
        clean.write("queues/200/1.idx", clean.segment([stored(AUDIT, 16, 1)]))
        clean.put_terms({1: clean.terms(32, 28, 680, {0: 12, 1: 16}), 2: clean.terms(17, 9, 450, {0: 8, 1: 1})})
        self.alter(
            clean, lambda store: (store.write("c", [(message_id(AUDIT, 16), content(50))]), self.work_and_remove(store))
        )
        assert any("1 messages have fewer references" in found[3] for found in clean.found())

    def work_and_remove(self, store: StoreEngine) -> None:
        Directory.work(store)
        store.remove("c", [message_id(AUDIT, 16)])

    def test_wrong_sizes_in_the_index(self, clean):
        """QS-26: the report compares live bytes and file sizes in the index with those in the files."""
        with lmdb.open(str(clean.vhost / STORE / "index"), max_dbs=5) as environment:
            with environment.begin(files := environment.open_db(b"files"), write=True) as transaction:
                transaction.put((1).to_bytes(4, "big"), (7).to_bytes(8, "big") + (1188).to_bytes(8, "big"))
            assert files
        clean.only(
            "WARNING",
            f"{STORE}/index",
            "of 1 files it has wrong sizes; of 1.rdq 7 live bytes of 1,188, where there are 1,188 of 1,188",
        )

    def test_locations_that_lead_elsewhere(self, clean):
        with lmdb.open(str(clean.vhost / STORE / "index"), max_dbs=5) as environment:
            locations, places = environment.open_db(b"locations"), environment.open_db(b"places")
            with environment.begin(write=True) as transaction:
                for table, key in ((locations, message_id(ORDERS, 20)), (places, (1).to_bytes(4, "big") + bytes(8))):
                    transaction.delete(key, db=table)
                where = (1).to_bytes(4, "big") + (3).to_bytes(8, "big")
                transaction.put(
                    message_id(ORDERS, 20), (1).to_bytes(4, "big") + where + (99).to_bytes(8, "big"), db=locations
                )
                transaction.put(where, message_id(ORDERS, 20), db=places)
        findings = clean.found()
        assert any(
            found[:2] == ("ERROR", self.NAME) and "1 messages are not where the index locates them" in found[3]
            for found in findings
        )

    def test_locations_that_their_files_do_not_know(self, clean):
        with lmdb.open(str(clean.vhost / STORE / "index"), max_dbs=5) as environment:
            with environment.begin(places := environment.open_db(b"places"), write=True) as transaction:
                transaction.delete((1).to_bytes(4, "big") + bytes(8))
            assert places
        assert any(
            found[:2] == ("ERROR", f"{STORE}/index") and "in the order of the files" in found[3]
            for found in clean.found()
        )

    @pytest.mark.parametrize("name", ["1.rdq.bak", "07.rdq"])
    def test_foreign_files(self, killed, name):
        killed.write(f"{STORE}/{name}", b"")
        assert killed.only("WARNING", f"{STORE}/{name}", "it is no file of a message store") == "it is left alone"


class TestVhost:
    def test_config_is_missing(self, killed):
        (killed.vhost / "config").unlink()
        assert any(found[:2] == ("ERROR", "config") for found in killed.found())

    @pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\x40\x01", b"\0\x10\0"])
    def test_config_is_damaged(self, killed, data):
        """D-2: a `config` that is not two bytes is an error."""
        killed.write("config", data)
        assert any(found[:2] == ("ERROR", "config") and "should be two bytes" in found[3] for found in killed.found())

    def test_config_of_another_segment_size(self, killed):
        killed.write("config", (32).to_bytes(2, "big"))
        assert any("do not belong into this segment" in found[3] for found in killed.found())

    @pytest.mark.parametrize(
        ("terms", "text"),
        [
            ({"persistent_count": 29}, "have 29 messages, where there are 28"),
            ({"persistent_bytes": 1}, "have 1 bytes of bodies, where there are 680"),
            ({"next_seq_id": 31}, "have 31 as the next number, where 32 is"),
            ({"segments": {0: 12}}, "have wrong counts for segments 1.idx"),
            ({"segments": {0: 12, 1: 16, 2: 1}}, "have wrong counts for segments 2.idx"),
        ],
    )
    def test_terms_that_say_something_else(self, clean, terms, text):
        clean.put_terms({1: {**clean.terms(32, 28, 680, {0: 12, 1: 16}), **terms}, 2: clean.terms(8, 8, 400, {0: 8})})
        clean.only("ERROR", "queues/100", text)

    def test_terms_without_counts(self, clean):
        clean.put_terms({1: {"next_seq_id": 32}, 2: clean.terms(8, 8, 400, {0: 8})})
        clean.only("ERROR", "recovery", "recovery terms of queue 'orders' lack some of")

    def test_terms_of_one_queue_are_missing(self, clean):
        """If the terms of one queue are missing, because a kill came between the two stores of a stop, the whole stop
        counts as unclean (C-21).
        """
        clean.put_terms({1: clean.terms(32, 28, 680, {0: 12, 1: 16})})
        clean.only("NOTE", "recovery", "1 queues have no recovery terms, although the message store was closed cleanly")
        assert clean.verify().vhosts[0].stopped == "unclean"

    def test_terms_do_not_know_a_level(self, clean):
        clean.write("queues/105/0.idx", clean.segment([embedded(0, 3)]))
        clean.only("ERROR", "queues/105", "it is missing from the recovery terms of queue 'orders'")

    def test_terms_that_are_damaged(self, clean):
        data = clean.vhost / "recovery" / "data.mdb"
        os.truncate(data, 4096)
        assert any(found[:2] == ("ERROR", "recovery") and "data.mdb is damaged" in found[3] for found in clean.found())

    def test_terms_of_no_queue(self, clean):
        clean.put_terms({1: clean.terms(32, 28, 680, {0: 12, 1: 16}), 2: clean.terms(8, 8, 400, {0: 8}), 9: {}})
        clean.only("NOTE", "recovery", "recovery terms of queue 9, which is not in the metadata")

    def test_a_queue_that_the_metadata_do_not_know(self, killed):
        """A queue that the metadata do not have is reported, with the warning that the next start deletes its messages
        (C-17).
        """
        killed.write("queues/700/0.idx", killed.segment([stored(0x700, 0, 5)]))
        outcome = killed.only("WARNING", "queues/700", "queue 7 is not in the metadata, and has 5 messages here")
        assert outcome == "they are deleted"

    def test_a_queue_that_only_the_journal_knows(self, killed):
        killed.write("journal/000003.wal", frames(publish(0x700, embedded(0, 5))))
        killed.only("WARNING", "queues/700", "has 5 messages here")

    def test_a_deletion_that_was_interrupted(self, killed):
        """QS-23, C-16: the tombstone of a queue's directory is a note."""
        killed.write("queues/700.deleted/0.idx", b"")
        killed.only("NOTE", "queues/700.deleted", "a queue whose deletion a crash interrupted")

    @pytest.mark.parametrize("name", ["notes", "0700", "1_0", "AB"])
    def test_what_is_no_directory_of_a_queue(self, killed, name):
        killed.write(f"queues/{name}/0.idx", b"")
        assert killed.only("WARNING", f"queues/{name}", "it is no directory of a queue") == "it is left alone"

    @pytest.mark.parametrize("name", ["queues/abc", "journal", "config", STORE])
    def test_a_file_in_place_of_a_directory_or_the_other_way_round(self, killed, name):
        path = killed.vhost / name
        if path.is_file():
            path.unlink()
            path.mkdir()
        else:
            shutil.rmtree(path, ignore_errors=True)
            path.touch()
        assert engine.total_bytes(str(killed.path)) >= 0
        assert any(
            severity == "ERROR" and place.startswith(name) and "it cannot be read: " in text
            for severity, place, _, text in killed.found()
        )

    def test_foreign_files(self, killed):
        killed.write("notes.txt", b"")
        killed.only("WARNING", "notes.txt", "it is nothing that warren keeps")

    def test_another_name(self, killed):
        killed.write("name", b"other")
        killed.only("WARNING", "name", "it names 'other'")

    def test_one_that_was_never_used(self, killed):
        shutil.rmtree(killed.vhost)
        killed.vhost.mkdir()
        killed.write("name", b"/")
        assert killed.found() == []
        assert killed.verify().vhosts[0].stopped == "new"

    def test_one_without_a_directory(self, killed):
        shutil.rmtree(killed.vhost)
        assert [(severity, text) for severity, _, _, text in killed.found()] == [
            ("NOTE", "virtual host '/' has no directory, so nothing is in its 2 durable queues")
        ]

    def test_one_that_the_metadata_do_not_know(self, killed):
        (killed.path / "vhosts" / ("0" * 32)).mkdir()
        killed.only("WARNING", f"vhosts/{'0' * 32}", "it belongs to no virtual host of the metadata")

    def test_foreign_directories(self, killed):
        (killed.path / "vhosts" / "backup").mkdir()
        assert killed.only("WARNING", "vhosts/backup", "it is no directory of a virtual host") == "it is left alone"

    def test_a_file_that_cannot_be_read(self, killed, monkeypatch):
        """A place that the disk refuses to read is reported, and everything else is checked."""
        real = os.open

        def refuse(name, *arguments, **options):
            if str(name).endswith("1.idx"):
                raise OSError(5, "Input/output error", name)
            return real(name, *arguments, **options)

        monkeypatch.setattr(os, "open", refuse)
        killed.only("ERROR", "queues/100/1.idx", "it cannot be read: Input/output error")

    def test_one_whose_deletion_was_interrupted(self, killed):
        (killed.path / "vhosts" / ("0" * 32 + ".deleted")).mkdir()
        killed.only("NOTE", f"vhosts/{'0' * 32}.deleted", "a virtual host whose deletion a crash interrupted")


class TestMetadata:
    def apply(self, directory: Directory, *changes: Change) -> None:
        store = MetadataStore(str(directory.path / "metadata"))
        store.apply(changes)
        store.close()

    def test_rows_that_belong_to_nothing(self, clean):
        self.apply(clean, Change("bindings", ("/", "x", "queue", "gone", "k", EMPTY_TABLE), {}))
        assert clean.only("NOTE", "metadata", "binding '/' 'x' 'queue' 'gone' 'k'") == "it is deleted"

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"queue_id": "nonsense", "auto_delete": False, "type": "classic", "arguments": EMPTY_TABLE},
            {"queue_id": "f" * 32, "auto_delete": False, "type": "classic", "arguments": b"\0\0\0\7\1"},
        ],
    )
    def test_rows_that_cannot_be_understood(self, clean, fields):
        self.apply(clean, Change("queues", ("/", "odd"), fields))
        clean.only("ERROR", "metadata", "queue '/' 'odd' cannot be understood")

    def test_a_damaged_row_is_named_and_the_others_are_read(self, clean):
        with lmdb.open(str(clean.path / "metadata"), max_dbs=16) as environment:
            exchanges = environment.open_db(b"exchanges")
            with environment.begin(write=True) as transaction:
                key, value = next(iter(transaction.cursor(exchanges)))
                transaction.put(key, value[:-1] + b"?", db=exchanges)
        assert [
            (severity, "has a wrong checksum" in text or "belongs to a missing row" in text)
            for severity, _, _, text in clean.found()
        ] == [("ERROR", True), ("NOTE", True)]
        assert len(clean.verify().vhosts[0].queues) == 2

    def test_a_damaged_file(self, clean):
        data = clean.path / "metadata" / "data.mdb"
        os.truncate(data, data.stat().st_size // 2)
        findings = list(clean.verify().findings)
        assert (findings[0].severity, findings[0].place) == (Severity.ERROR, "metadata") and "is damaged" in findings[
            0
        ].found
        assert findings[1].outcome == "not known: the metadata are damaged, and may have named it"

    def test_a_log_of_consensus(self, clean):
        log = LogWrite(ballot=(1, "a"), entries=[(1, 1, 1, b""), (2, 1, 1, b"")], applied=1, start=LogStart(0, 0, b""))
        store = MetadataStore(str(clean.path / "metadata"))
        store.apply([], log)
        store.close()
        assert clean.found() == []
        with lmdb.open(str(clean.path / "metadata"), max_dbs=64) as environment:
            entries = environment.open_db(b"consensus_log")
            with environment.begin(write=True) as transaction:
                transaction.delete((1).to_bytes(8, "big"), db=entries)
        assert clean.only("ERROR", "metadata", "entry 1 of the log is missing") == "warren refuses to start"

    def test_two_queues_of_one_number(self, clean):
        self.apply(clean, clean.queue_row("twin", 1))
        assert any("have the same number 1" in found[3] for found in clean.found())


class TestDirectory:
    def refusal(self, path: Path, kind: type[Exception] = engine.CannotVerify) -> str:
        with pytest.raises(kind) as caught, engine.opened(str(path)):
            pass
        return str(caught.value)

    def test_in_use(self, clean):
        held = claim(str(clean.path), "warren@other")
        assert f"is in use by warren@other (process {os.getpid()} on " in self.refusal(clean.path, engine.InUse)
        held.release()
        assert clean.verify().is_fine

    def test_no_broker_can_start_meanwhile(self, clean):
        with engine.opened(str(clean.path)), open(clean.path / "lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_two_may_look_at_once(self, clean):
        with engine.opened(str(clean.path)):
            assert clean.verify().is_fine

    def test_a_copy_without_a_lock(self, clean):
        (clean.path / "lock").unlink()
        assert clean.verify().is_fine

    def test_of_a_newer_format(self, clean):
        (clean.path / "format").write_text(f"warren data directory\nformat {FORMAT + 1}\n")
        assert "was written by a newer warren" in self.refusal(clean.path)

    def test_not_warrens(self, tmp_path):
        (tmp_path / "photo.jpg").touch()
        assert "is not a data directory of warren: it holds photo.jpg" in self.refusal(tmp_path)

    def test_empty_missing_or_a_file(self, tmp_path):
        assert "no broker has used it yet" in self.refusal(tmp_path)
        assert "there is no directory" in self.refusal(tmp_path / "gone")
        (tmp_path / "file").touch()
        assert "there is no directory" in self.refusal(tmp_path / "file")

    def test_without_its_metadata(self, clean):
        shutil.rmtree(clean.path / "metadata")
        assert "has lost its metadata" in self.refusal(clean.path)


@pytest.fixture(scope="module", params=["clean", "killed"])
def template(request, tmp_path_factory) -> Directory:
    return Directory(tmp_path_factory.mktemp(request.param) / "data", request.param == "clean")


class TestAnyDamage:
    """Whichever byte is damaged, wherever a file is cut: it is reported, nothing is changed, and nothing crashes."""

    NAMES = [
        "journal",
        "queues/100/0.idx",
        "queues/100/1.idx",
        "queues/200/0.idx",
        f"{STORE}/1.rdq",
        f"{STORE}/2.rdq",
        f"{STORE}/3.rdq",
    ]

    def damaged(self, directory: Directory, data, boot_id: str, damage) -> list:
        name = data.draw(st.sampled_from(self.NAMES))
        if name == "journal":
            name = f"journal/{os.listdir(directory.vhost / 'journal')[0]}"
        path = directory.vhost / name
        whole = path.read_bytes()
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        try:
            path.write_bytes(damage(whole))
            return directory.found(boot_id)
        finally:
            path.write_bytes(whole)
            os.utime(path, ns=times)

    @given(data=st.data(), boot_id=st.sampled_from(["boot", "other"]))
    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_damaged_byte_is_found(self, template, data, boot_id):
        usual = template.found(boot_id)

        def damage(whole: bytes) -> bytes:
            at = data.draw(st.integers(0, len(whole) - 1))
            return whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]

        assert len(self.damaged(template, data, boot_id, damage)) > len(usual)

    @given(data=st.data(), boot_id=st.sampled_from(["boot", "other"]))
    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_other_damage_is_survived(self, template, data, boot_id):
        def damage(whole: bytes) -> bytes:
            start, stop = sorted((data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))))
            return (
                whole[:start]
                + data.draw(
                    st.sampled_from([b"", bytes(stop - start), b"\xff" * (stop - start), whole, whole[start:stop] * 3])
                )
                + whole[stop:]
            )

        self.damaged(template, data, boot_id, damage)
