"""`store.verify` after a crash anywhere: there is nothing but notes, and what it counts is what recovery then finds (C-1 to C-26)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.store.data_dir.vhost_store import VhostStore
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.messages.message import Origin
from warren.store.verify.verify_report import Findings, Severity, VhostReport
from warren.store.verify.verify_vhost import VhostPlace, check_vhost

QUEUES = {1: None, 2: None, 3: 2}
"""Queue id -> highest priority."""


def content(size: int) -> bytes:
    return bytes(11) + size.to_bytes(8, "big") + bytes(size)


class Node:
    """Queues on a disk that loses what was not synced, driven at random until the power or the process ends."""

    def __init__(self, root: str, random: Random) -> None:
        self.disk = FaultyDisk()
        self.root = root
        self.random = random
        self.boot = 0

    def start(self) -> None:
        self.store = VhostStore(
            self.disk,
            self.root,
            segment_entries=16,
            embed_below=60,
            journal_file_limit=1500,
            store_file_limit=800,
            boot_id=str(self.boot),
        )
        self.store.recover(set(QUEUES))
        self.queues = {queue: self.store.open_queue(queue, highest) for queue, highest in QUEUES.items()}

    def work(self, steps: int) -> None:
        for _ in range(steps):
            queue = self.queues[self.random.choice(sorted(QUEUES))]
            size, count = self.random.choice((1, 100)), self.random.randint(1, 12)
            origin = Origin("", ("q",), b"", persistent=self.random.random() < 0.7, priority=self.random.randrange(3))
            queue.publish(origin, [content(size)] * count, count * size, None, False)
            if self.random.random() < 0.2:
                queue.set_queue_mode(self.random.choice(("lazy", "default")))
            for delivery in queue.fetch(self.random.randint(0, 15), True):
                queue.ack([tag for tag in delivery.tags if self.random.random() < 0.8])
            if self.random.random() < 0.7:
                self.store.write_all()

    def end(self) -> None:
        """The power fails, or the process is killed."""
        self.disk.heal()
        for store in (self.store.persistent, self.store.transient):
            store.engine.abandon()
        if self.random.random() < 0.5:
            self.disk.kill()
        else:
            self.disk.crash(self.random)
            self.boot += 1

    def verify(self) -> tuple[VhostReport, Findings]:
        findings = Findings()
        before = self.disk.operations, tree(self.root)
        report = check_vhost(
            VhostPlace(self.disk, self.root, "vhosts/1", "/", {queue: str(queue) for queue in QUEUES}, str(self.boot)),
            findings,
            lambda size: None,
        )
        assert (self.disk.operations, tree(self.root)) == before, "verify has changed something"
        return report, findings


def tree(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def messages(report: VhostReport) -> dict[str | None, int]:
    return {
        queue.name: queue.messages - queue.missing_bodies
        for queue in report.queues
        if queue.messages - queue.missing_bodies
    }


@given(seed=st.integers(0, 1 << 32), at=st.integers(1, 60), during=st.sampled_from(["work", "stop", "start"]))
@settings(max_examples=150, deadline=None)
def test_after_a_crash(seed, at, during):
    with TemporaryDirectory() as root:
        node = Node(root, Random(seed))
        node.start()
        node.work(10)
        if during == "start":
            node.end()
        node.disk.fail_after(at, KeyboardInterrupt())
        with suppress(KeyboardInterrupt):
            if during == "start":
                node.start()
            elif during == "stop":
                node.store.stop()
            node.work(10 if during == "work" else 0)
        node.end()
        report, findings = node.verify()
        assert [finding for finding in findings if finding.severity > Severity.NOTE] == []
        node.start()
        assert messages(report) == {str(queue): len(opened) for queue, opened in node.queues.items() if len(opened)}
        node.end()


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=50, deadline=None)
def test_after_a_clean_stop(seed):
    with TemporaryDirectory() as root:
        node = Node(root, Random(seed))
        node.start()
        node.work(15)
        node.store.stop()
        report, findings = node.verify()
        assert [finding for finding in findings if finding.place != "name"] == []
        assert report.stopped == "clean"
        node.start()
        assert messages(report) == {str(queue): len(opened) for queue, opened in node.queues.items() if len(opened)}
        node.end()
