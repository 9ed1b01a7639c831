"""`store.verify` after a crash anywhere finds only notes and counts what recovery then finds (C-1 to C-26)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.store.verify.verify_report import Findings, Severity, VhostReport
from warren.store.verify.verify_vhost import VhostPlace, check_vhost

from ..sim_vhost import SimVhost, content

#: Queue id -> highest priority.
QUEUES = {1: None, 2: None, 3: 2}


class Node:
    """Queues on a disk that loses what was not synced, driven at random until the power or the process ends."""

    def __init__(self, root: str, random: Random) -> None:
        self.vhost = SimVhost(root, QUEUES)
        self.random = random

    def start(self) -> None:
        self.vhost.start()

    def work(self, steps: int) -> None:
        for _ in range(steps):
            queue = self.vhost.queues[self.random.choice(sorted(QUEUES))]
            size, count = self.random.choice((1, 100)), self.random.randint(1, 12)
            persistent, priority = self.random.random() < 0.7, self.random.randrange(3)
            queue.publish([content(0, size)] * count, None, persistent, priority)
            if self.random.random() < 0.2:
                queue.set_mode(self.random.choice(("lazy", "default")))
            queue.ack([got.tag for got in queue.fetch(self.random.randint(0, 15)) if self.random.random() < 0.8])
            if self.random.random() < 0.7:
                self.vhost.write_all()

    def end(self) -> None:
        """Cut the power or kill the process."""
        if self.random.random() < 0.5:
            self.vhost.kill()
        else:
            self.vhost.lose_power(self.random)

    def verify(self) -> tuple[VhostReport, Findings]:
        findings = Findings()
        vhost = self.vhost
        before = vhost.disk.operations, tree(vhost.root)
        names = {queue: str(queue) for queue in QUEUES}
        report = check_vhost(
            VhostPlace(vhost.disk, vhost.path, "vhosts/1", "/", names, vhost.boot_id), findings, lambda size: None
        )
        assert (vhost.disk.operations, tree(vhost.root)) == before, "verify has changed something"
        return report, findings

    def messages(self) -> dict[str, int]:
        """Ready messages of each queue that has any."""
        return {str(queue): len(opened) for queue, opened in self.vhost.queues.items() if len(opened)}


def tree(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def messages(report: VhostReport) -> dict[str | None, int]:
    return {
        queue.name: queue.messages - queue.missing_bodies
        for queue in report.queues
        if queue.messages - queue.missing_bodies
    }


@given(seed=st.integers(0, 1 << 32), at=st.integers(1, 60), during=st.sampled_from(["work", "stop", "start"]))
@settings(max_examples=50, deadline=None)
def test_after_a_crash(seed, at, during):
    with TemporaryDirectory() as root:
        node = Node(root, Random(seed))
        node.start()
        node.work(10)
        if during == "start":
            node.end()
        actions = {"start": node.start, "stop": node.vhost.stop, "work": lambda: node.work(10)}
        node.vhost.dies_in(actions[during], at)
        node.end()
        report, findings = node.verify()
        assert [finding for finding in findings if finding.severity > Severity.NOTE] == []
        node.start()
        assert messages(report) == node.messages()
        node.end()


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_after_a_clean_stop(seed):
    with TemporaryDirectory() as root:
        node = Node(root, Random(seed))
        node.start()
        node.work(15)
        node.vhost.stop()
        report, findings = node.verify()
        assert [finding for finding in findings if finding.place != "name"] == []
        assert report.stopped == "clean"
        node.vhost.kill()
        node.start()
        assert messages(report) == node.messages()
        node.end()
