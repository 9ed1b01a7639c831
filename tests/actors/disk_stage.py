"""`DurableStage`: a virtual host with its journal, stores and queues, on a disk that waits or fails on command."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp.fields import table_from
from warren.amqp.frames import build_content
from warren.routing.rows import QueueRow
from warren.store.data_dir.data_dir import DataDir, queue_number
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.messages.message import Origin

from .stage import PERSISTENT, PROPS, WAIT, Queue_, Stage, Stub, bodies_of

SEGMENT = 64


class HeldDisk(FaultyDisk):
    """A disk whose operations a test can stop and fail.

    From `hold` to `release` every operation of one kind waits in its thread; `waiting` counts these. After `fail` the
    next operations of that kind raise.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit)
        self.waiting = 0
        self._held = ""
        self._open = threading.Condition()
        self._faults: dict[str, deque[OSError]] = {}

    @property
    def held(self) -> int:
        # Other threads may create files during the sum, so it runs over a copy.
        return sum(len(content.data) for content in list(self._names.values()))

    def hold(self, kind: str = "sync") -> None:
        self._held = kind

    def release(self) -> None:
        with self._open:
            self._held = ""
            self._open.notify_all()

    def fail(self, kind: str, *errors: OSError) -> None:
        self._faults.setdefault(kind, deque()).extend(errors)

    def step(self, kind: str) -> None:
        with self._open:
            if kind == self._held:
                self.waiting += 1
                assert self._open.wait_for(lambda: kind != self._held, 2 * WAIT), "the test did not release the disk"
                self.waiting -= 1
        if self._faults.get(kind):
            raise self._faults[kind].popleft()
        super().step(kind)


class Asker(Stub):
    """Asks a question, and keeps the answer or the error."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome: list[Any] = []

    async def on_go(self, sender: Any, target: Any, message: tuple[Any, ...]) -> None:
        try:
            self.outcome.append(await self.ask(target, message))
        except Exception as error:
            self.outcome.append(error)


class Question:
    """An ask. `answer` waits for its answer, and raises it if it is an error."""

    def __init__(self, stage: Stage, address: Any, message: tuple[Any, ...]) -> None:
        self._stage = stage
        self._asker = stage.create(Asker)
        stage.tell(self._asker, self._asker, "go", address, message)

    @property
    def is_answered(self) -> bool:
        return bool(self._stage.actor(self._asker).outcome)

    def answer(self) -> Any:
        self._stage.until(lambda: self.is_answered)
        outcome = self._stage.actor(self._asker).outcome[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class DiskStage(Stage):
    """A stage with a disk. `quiet` waits until all messages are handled and all jobs in threads have ended."""

    disk: HeldDisk

    def __init__(self, disk: HeldDisk, **settings: Any) -> None:
        super().__init__(**settings)
        self.disk = disk

    def close(self) -> None:
        """End the broker as a kill does: no process ends in order, and everything that was written stays."""
        self.disk.release()
        super().close()
        self.disk.kill()

    def ask(self, address: Any, *message: Any) -> Question:
        return Question(self, address, message)

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for `condition`, checking it repeatedly, because other threads may make it true without
        waking the loop.
        """
        deadline = time.monotonic() + WAIT
        while not self.base.run_until(lambda: bool(condition()), 0.005):
            assert time.monotonic() < deadline, "the condition did not become true in time"

    def quiet(self) -> None:
        # The check is in this order because a job sends its result before its thread counts as idle.
        self.until(lambda: not self.base.busy_with() and not self.base.threads.calls)

    def is_held(self) -> None:
        """Wait until an operation is held at the disk and all messages are handled."""
        self.until(lambda: self.disk.waiting)
        self.settle()

    def disk_alarms(self) -> list[bool]:
        return [on for source, on, *_ in self.actor(self.alarms).take("set") if source == "disk"]


class Allowance(Stub):
    """Stands for a memory monitor: answers every report with `target`."""

    target = float("inf")

    def on_duration(self, sender: Any, queue: str, seconds: float) -> None:
        self.send(sender, ("ram_duration_target", self.target))


class DurableStage(DiskStage):
    """The virtual host `/` with its disk.

    `rows` are the durable queues of an earlier start, `self.rows` their present rows. `target` is what the memory
    monitor allows, in seconds.
    """

    def __init__(self, root: Any, disk: HeldDisk, rows: tuple[QueueRow, ...] = (), **settings: Any) -> None:
        super().__init__(disk, data_dir=str(root), **settings)
        if not disk.exists("config"):
            config = disk.open("config", create=True)
            config.append([SEGMENT.to_bytes(2, "big")])
            config.sync()
        self.monitor = self.create(Allowance)
        self.context = replace(self.context, memory_monitor=self.monitor, open_disk=lambda path: disk)
        self.vhost = self.create(VhostSupervisor)
        self.routing.recovering.add("/")
        self.supervisor, found = self.ask(self.vhost, "start", self.context, "/", list(rows), frozenset()).answer()
        self.rows = tuple(found)
        for row in found:
            self.routing.put_queue(row)
        self.routing.recovering.discard("/")
        self.tell(self.metadata, self.supervisor, "recovered")

    @property
    def target(self) -> float:
        return self.actor(self.monitor).target

    @target.setter
    def target(self, seconds: float) -> None:
        """The new target, which each queue gets at its next report."""
        self.actor(self.monitor).target = seconds

    @property
    def storage(self) -> Any:
        return self.actor(self.vhost).storage

    def declare(self, name: str = "q", durable: bool = True, **arguments: Any) -> Queue_:
        table = table_from({key.replace("_", "-"): value for key, value in arguments.items()})
        row = self.ask(
            self.supervisor,
            "start_queue",
            QueueRow("/", name, None, f"{len(self.routing.queues('/')) + 1:014x}{0:018x}", durable, arguments=table),
        ).answer()
        self.routing.put_queue(row)
        self.rows = (*self.rows, row)
        return Queue_(self, row)

    def recovered(self, name: str = "q") -> Queue_:
        """A queue of an earlier start."""
        row = self.routing.queue("/", name)
        assert row is not None and row.state == "running"
        return Queue_(self, row)

    def restarted(self, name: str = "q") -> Queue_:
        """Wait until a queue that crashed runs again."""
        received = self.actor(self.metadata).received
        self.until(lambda: any(message[0] == "queue_restarted" and message[2] == name for message in received))
        address = next(message[4] for message in received if message[0] == "queue_restarted" and message[2] == name)
        row = replace(self.routing.queue("/", name), address=address)
        self.actor(self.metadata).take("queue_restarted")
        self.routing.put_queue(row)
        return Queue_(self, row)

    def terminate(self) -> None:
        """Stop the virtual host in order; the caller closes the stage afterwards."""
        self.ask(self.vhost, "terminate").answer()

    def files_of(self, queue: Queue_) -> list[str]:
        number = queue_number(queue.id)
        return [
            f"{name}/{file}"
            for name in self.disk.list("queues")
            if int(name.partition(".")[0], 16) >> 8 == number
            for file in self.disk.list(f"queues/{name}")
        ]

    @property
    def path(self) -> str:
        """The directory with the LMDB environments of the virtual host."""
        return DataDir(self.settings.data_dir).vhost("/")


class Publisher:
    """A stub channel that publishes numbered bodies and counts its confirms."""

    def __init__(self, stage: DiskStage) -> None:
        self.stage = stage
        self.address = stage.create(Stub)
        self.published = 0
        self._confirmed: set[int] = set()
        self.refused = 0

    def publish(
        self,
        queue: Queue_,
        count: int,
        size: int = 10,
        persistent: bool = True,
        priority: int = 0,
        expiration: int | None = None,
    ) -> list[bytes]:
        bodies = [b"%d:" % number + b"x" * size for number in range(self.published, self.published + count)]
        self.send(queue, bodies, persistent, priority, expiration)
        return bodies

    def send(
        self,
        queue: Queue_,
        bodies: list[bytes],
        persistent: bool = True,
        priority: int = 0,
        expiration: int | None = None,
    ) -> None:
        props = PERSISTENT if persistent else PROPS
        origin = Origin("", (queue.row.name,), persistent, priority, expiration)
        entry = (
            origin,
            [build_content(1, props, body, 131072) for body in bodies],
            sum(map(len, bodies)),
            self.published + 1,
            True,
            0,
        )
        self.published += len(bodies)
        self.stage.tell(self.address, queue.address, "publish", self.address.actorAddressString, [entry])

    @property
    def confirmed(self) -> int:
        """How many publishes are confirmed. Asserts that none is confirmed twice (QS-18)."""
        for _, ranges in self.stage.actor(self.address).take("confirm"):
            for first, last in ranges:
                numbers = set(range(first, last + 1))
                assert not numbers & self._confirmed, "confirmed twice"
                self._confirmed |= numbers
        return len(self._confirmed)

    @property
    def answered(self) -> int:
        """How many publishes are confirmed or refused."""
        for _, ranges, *_ in self.stage.actor(self.address).take("refuse"):
            self.refused += sum(last + 1 - first for first, last in ranges)
        return self.confirmed + self.refused

    def await_confirms(self) -> None:
        self.stage.until(lambda: self.confirmed == self.published)


class Consumer(Stub):
    """A stub channel whose socket takes everything at once. It acknowledges while `acks` is true.

    `got` has its deliveries as (body, redelivered), `tags` the ack tags that it has not acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[bytes, bool]] = []
        self.tags: list[int] = []
        self.acks = True

    def on_deliver(self, sender: Any, queue_id: str, tag: str, runs: list[tuple[Any, ...]]) -> None:
        me = self.myAddress.actorAddressString
        for _, redelivered, tags, contents in runs:
            self.got += [(body, redelivered) for body in bodies_of(contents)]
            self.send(sender, ("sent", me, len(contents)))
            if tags is not None and self.acks:
                self.send(sender, ("settle", me, "ack", [tags]))
            elif tags is not None:
                self.tags += tags


def consumer(stage: Stage, queue: Queue_, acks: bool = True, prefetch: int = 0) -> Consumer:
    address = stage.create(Consumer)
    actor: Consumer = stage.actor(address)
    actor.acks = acks
    queue.consume(address, prefetch=prefetch)
    return actor


def drained(stage: Stage, queue: Queue_, count: int) -> list[tuple[bytes, bool]]:
    """Consume and acknowledge the queue's `count` messages, and return them as (body, redelivered)."""
    eater = consumer(stage, queue)
    stage.until(lambda: len(eater.got) >= count)
    stage.settle()
    assert len(eater.got) == count
    stage.until(lambda: not queue.actor.backing.totals().depth)
    queue.tell(eater.myAddress, "cancel", "c")
    stage.settle()
    return eater.got


def bodies(found: list[tuple[bytes, bool]]) -> list[bytes]:
    return [body for body, _ in found]
