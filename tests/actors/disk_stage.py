"""A virtual host with a disk on a stage: its journal, its stores and its queues, and a disk that stands still or refuses when the test says so."""

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
    """`hold`: from now on every operation of that kind waits in its thread until `release`; `waiting` says how many do. `fail`: the next of that kind raises."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit)
        self.waiting = 0
        self._held = ""
        self._open = threading.Condition()
        self._faults: dict[str, deque[OSError]] = {}

    @property
    def held(self) -> int:
        # Jobs of several processes create files while another measures.
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
                assert self._open.wait_for(lambda: kind != self._held, 2 * WAIT), "nobody releases the disk"
                self.waiting -= 1
        if self._faults.get(kind):
            raise self._faults[kind].popleft()
        super().step(kind)


class Voice(Stub):
    """Asks, and keeps the outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome: list[Any] = []

    async def on_go(self, sender: Any, target: Any, message: tuple[Any, ...]) -> None:
        try:
            self.outcome.append(await self.ask(target, message))
        except Exception as error:
            self.outcome.append(error)


class Question:
    """Something a process is asked; `answer` waits for it and raises if it is an error."""

    def __init__(self, stage: Stage, address: Any, message: tuple[Any, ...]) -> None:
        self._stage = stage
        self._voice = stage.create(Voice)
        stage.tell(self._voice, self._voice, "go", address, message)

    @property
    def is_answered(self) -> bool:
        return bool(self._stage.actor(self._voice).outcome)

    def answer(self) -> Any:
        self._stage.until(lambda: self.is_answered)
        outcome = self._stage.actor(self._voice).outcome[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class DiskStage(Stage):
    """`quiet` lets everybody do all there is to do, the disk included."""

    disk: HeldDisk

    def __init__(self, disk: HeldDisk, **settings: Any) -> None:
        super().__init__(**settings)
        self.disk = disk

    def close(self) -> None:
        """The end of the operating-system process: nobody is told to end in order, and what was written stays."""
        self.disk.release()
        super().close()
        self.disk.kill()

    def ask(self, address: Any, *message: Any) -> Question:
        return Question(self, address, message)

    def until(self, condition: Callable[[], Any]) -> None:
        """`condition` may be about other threads, which wake nobody."""
        deadline = time.monotonic() + WAIT
        while not self.base.run_until(lambda: bool(condition()), 0.005):
            assert time.monotonic() < deadline, "it did not come to pass"

    def quiet(self) -> None:
        # In this order: a job says that it is done before its thread is free.
        self.until(lambda: not self.base.busy_with() and not self.base._inbox)

    def is_held(self) -> None:
        """Wait until somebody waits for the disk, and everybody else is done."""
        self.until(lambda: self.disk.waiting)
        self.settle()

    def alarms_heard(self) -> list[bool]:
        return [on for source, on, *_ in self.actor(self.alarms).take("set") if source == "disk"]


class Allowance(Stub):
    """A memory monitor that allows `target` seconds."""

    target = float("inf")

    def on_duration(self, sender: Any, queue: str, seconds: float) -> None:
        self.send(sender, ("ram_duration_target", self.target))


class DurableStage(DiskStage):
    """The virtual host `/` with its disk. `rows` are the durable queues that were declared in an earlier life; as they are now in `self.rows`.

    The memory monitor allows `target` seconds.
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
        self.supervisor, found = self.ask(self.vhost, "start", self.context, "/", list(rows)).answer()
        self.rows = tuple(found)
        for row in found:
            self.routing.put_queue(row)

    @property
    def target(self) -> float:
        return self.actor(self.monitor).target

    @target.setter
    def target(self, seconds: float) -> None:
        """From the next report of a queue on."""
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
        """A queue of an earlier life, as it is now."""
        row = self.routing.queue("/", name)
        assert row is not None and row.state == "running"
        return Queue_(self, row)

    def restarted(self, name: str = "q") -> Queue_:
        """Wait until a queue that crashed runs again."""
        heard = self.actor(self.metadata).heard
        self.until(lambda: any(message[0] == "queue_restarted" and message[2] == name for message in heard))
        address = next(message[4] for message in heard if message[0] == "queue_restarted" and message[2] == name)
        row = replace(self.routing.queue("/", name), address=address)
        self.actor(self.metadata).take("queue_restarted")
        self.routing.put_queue(row)
        return Queue_(self, row)

    def terminate(self) -> None:
        """The vhost ends in order; `close` comes after."""
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
        """Where the vhost has what is LMDB's."""
        return DataDir(self.settings.data_dir).vhost("/")


class Publisher:
    """A channel's stand-in that publishes numbered bodies and counts its confirms."""

    def __init__(self, stage: DiskStage) -> None:
        self.stage = stage
        self.address = stage.create(Stub)
        self.published = 0
        self._confirmed: set[int] = set()

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
        origin = Origin("", (queue.row.name,), props, persistent, priority, expiration)
        entry = (
            origin,
            [build_content(1, props, body, 131072) for body in bodies],
            sum(map(len, bodies)),
            self.published + 1,
            0,
        )
        self.published += len(bodies)
        self.stage.tell(self.address, queue.address, "publish", self.address.actorAddressString, [entry])

    @property
    def confirmed(self) -> int:
        """How many were, each once (QS-18)."""
        for _, ranges in self.stage.actor(self.address).take("confirm"):
            for first, last in ranges:
                numbers = set(range(first, last + 1))
                assert not numbers & self._confirmed, "confirmed twice"
                self._confirmed |= numbers
        return len(self._confirmed)

    def await_confirms(self) -> None:
        self.stage.until(lambda: self.confirmed == self.published)


class Consumer(Stub):
    """A channel's stand-in whose socket takes everything at once. `got`: (body, redelivered) of all; acknowledges as long as `acks` is true."""

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
    """(body, redelivered) of so many messages, consumed and acknowledged; then the queue has nothing left."""
    eater = consumer(stage, queue)
    stage.until(lambda: len(eater.got) >= count)
    stage.settle()
    assert len(eater.got) == count
    stage.until(lambda: not queue.actor.backing.depth())
    queue.tell(eater.myAddress, "cancel", "c")
    stage.settle()
    return eater.got


def bodies(found: list[tuple[bytes, bool]]) -> list[bytes]:
    return [body for body, _ in found]
