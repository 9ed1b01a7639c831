"""`Group`: replicas of one mirrored queue without processes, links or a log, and laws that must hold.

Each replica has its backing queue, its ring and its rule of confirms as in a broker. Frames travel in order between two
replicas and are delivered when a test says so; a test kills replicas and applies rows. The laws:

- *CL-74, I1*: a message that was confirmed is at every member that is ever in the ring, or has been removed.
- *CL-75*: a learner that is proposed for the ring has on its disk whatever was confirmed.
- *CL-77, I7*: at rest all members of the ring have the same messages under the same numbers.
- *I9*: if there was only one master, a message that it has removed is at no replica.
- *P9*: a new master offers all its messages again, flagged as redelivered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from warren.actors.context.replica_limits import ReplicaLimits
from warren.actors.queue.mirroring import DONE_TIMER
from warren.actors.statistics.histograms import NodeHistograms
from warren.mirror.backing.mirrored_queue import MirroredQueue
from warren.mirror.replication import MirrorReplication
from warren.routing.rows import Member, MirrorGroup, QueueRow
from warren.runtime.credit import CreditFlow
from warren.runtime.system.address import LoopAddress
from warren.settings import Settings
from warren.store.messages.message import Origin
from warren.store.queue.memory_queue import MemoryQueue

#: Methods of a replication whose messages have another name.
HANDLERS = {"handover": "take_handover"}


class Violation(AssertionError):
    """The replicas have broken one of the laws that the module's docstring lists."""


class Waits(Exception):
    """Raised where a replica would sleep."""


class SlowQueue(MemoryQueue):
    """A queue whose writes reach its disk when a test calls `sync`; what was published is safe from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: list[tuple[int, int]] = []
        self.synced: list[tuple[int, int]] = []

    def drain_confirmed(self):
        self.unsynced += super().drain_confirmed()
        safe, self.synced = self.synced, []
        return safe

    def sync(self) -> None:
        self.drain_unsynced()
        self.synced += self.unsynced
        self.unsynced = []

    def recover(self, before: SlowQueue) -> None:
        """Begin with the persistent messages that reached the disk of an earlier queue."""
        unsynced = {number for first, last in before.unsynced for number in range(first, last + 1)}
        for run in sorted([*before._ready.runs, *before._pending.runs], key=lambda run: run.first):
            for message in run.messages():
                if message.origin.persistent and message.tag not in unsynced:
                    self.discard(message.origin, message.tag - self._next, False)
                    self.publish(message.origin, [message.content], 10, None, False)
        self.discard(Origin("", ("orders",), True), before._next - self._next, False)

    def drain_unsynced(self) -> None:
        self.unsynced += MemoryQueue.drain_confirmed(self)


class Asked:
    """The answer to an ask. The other replica is asked at once, and much may happen until the answer is awaited."""

    def __init__(self, ask: Any) -> None:
        self._answer: Any = None
        self._error: BaseException | None = None
        try:
            if isinstance(ask, Coroutine):
                ask.send(None)
        except StopIteration as done:
            self._answer = done.value
        except BaseException as error:
            self._error = error
        else:
            self._answer = ask

    def __await__(self):
        yield from ()  # there is nothing to wait for
        if self._error is not None:
            raise self._error
        return self._answer


class FakeSignal:
    """Stands for `Signal`: a wait for something that is not so raises `Waits`."""

    def __init__(self) -> None:
        self.wakes = 0

    def wake_all(self) -> None:
        self.wakes += 1

    async def wait_for(self, condition) -> None:
        if not condition():
            raise Waits


class FakeConfirms:
    """The publishes that a replica has taken, and the numbers of those that were confirmed."""

    def __init__(self) -> None:
        #: The published runs: first number, last number, parts.
        self.published: list[tuple[int, int, list]] = []
        self.confirmed: set[int] = set()

    @property
    def unconfirmed(self):
        return [run for run in self.published if not self.confirmed.issuperset(range(run[0], run[1] + 1))]

    def begin(self) -> None: ...

    def settled(self) -> None: ...


class FakeReplica:
    """Stands for the process of a replica."""

    def __init__(self, group: Group, member: Member, row: QueueRow, earlier: FakeReplica | None = None) -> None:
        self.member = member
        self.row = row
        self.backing = SlowQueue()
        if earlier is not None:
            self.backing.recover(earlier.backing)
        self.loader = None
        self.role = SimpleNamespace(is_quiet=True, awaits_targets=False)
        self.is_alive = True
        self.has_promoted = self.is_at_rest = False
        self.credit = CreditFlow((400, 200), lambda peer, amount: None)
        self.state = SimpleNamespace(
            credit=self.credit,
            head_read=SimpleNamespace(prepare=lambda: None),
            effects=SimpleNamespace(messages_came=False),
            backing=self.backing,
            channels={},
            deduplication=None,
            confirms=FakeConfirms(),
            histograms=NodeHistograms(),
        )
        self.context = SimpleNamespace(
            lease=SimpleNamespace(has_ended=lambda clock: False),
            peers=SimpleNamespace(replica=lambda queue_id, to: to),
            metadata="metadata",
            alarms="alarms",
            replica_limits=ReplicaLimits(),
            definitions=SimpleNamespace(policies_of=lambda vhost: None, features={}),
            settings=Settings(),
        )
        self._group = group
        self.replication = MirrorReplication(self)
        self.mirrored: MirroredQueue = self.replication.backing
        #: The learner that this master has proposed to admit, and the epoch at which it did.
        self.proposed: tuple[int, Member] | None = None
        #: `copies`: the stream of this learner has begun, so it may copy the queue. `is_hasty`: a sleep raises `Waits`.
        #: `has_floors`: it has asked which numbers earlier masters may have given.
        self.copies = self.is_hasty = self.has_floors = False
        self.replies: list[object] = []
        #: How often this learner has reported to the master that its copy lags.
        self.lags = 0
        #: Numbers whose acknowledgements this master keeps while it is at rest.
        self.kept_acks: list[int] = []
        self.slept = 0
        self.slept_seconds: list[float] = []
        #: How often this replica has waited for its disk.
        self.syncs = 0
        #: How often this replica has told Metadata that its successor must begin without messages.
        self.unfit = 0
        #: The alarms of the replica's node.
        self.alarms: tuple[str, ...] = ()

    def send(self, address, message) -> None:
        if address == self.context.metadata:
            self.unfit += message[0] == "replica_unfit"
        else:
            self._group.wires.setdefault((self.member, address), deque()).append(message)

    def start_timer(self, seconds, payload=None) -> int:
        return 0

    def now(self) -> float:
        return self._group.now

    def credit_freed(self) -> None: ...

    def stop(self, reason) -> None:
        self.is_alive = False

    def spawn(self, coroutine) -> None:
        self.copies |= coroutine.__name__ == "_run"
        self.lags += coroutine.__name__ == "_report_lag"
        proposed = coroutine.cr_frame.f_locals["member"] if coroutine.__name__ == "_admit" else None
        coroutine.close()
        if proposed is not None:
            self.proposed = self.row.group.epoch, proposed
            self._group.check_proposed(proposed)

    def new_signal(self) -> FakeSignal:
        return FakeSignal()

    def ask(self, address, message, timeout=None):
        """Ask another member's replica, which does so at once, or the alarms of the node."""
        if address == self.context.alarms:
            return Asked(self.alarms)
        name, *fields = message
        return Asked(getattr(self._group.replicas[address].replication, name.removeprefix("sync_"))(*fields))

    def reply(self, sender, answer) -> None:
        self.replies.append(answer)

    reply_error = reply

    async def synced(self) -> None:
        """Count the wait. It ends at once: the disk has the messages when a test calls `sync`."""
        self.syncs += 1

    async def sleep(self, seconds) -> None:
        self.slept += 1
        self.slept_seconds.append(seconds)
        if self.is_hasty:
            raise Waits

    def acknowledged(self) -> list[int]:
        return self.kept_acks

    def rest(self) -> None:
        self.is_at_rest = True

    def go_on(self) -> None:
        self.is_at_rest = False

    def become_master(self) -> None:
        self.has_promoted = True
        deliveries = self.mirrored.fetch(3, True)
        if not all(delivery.redelivered for delivery in deliveries) or self.mirrored.requeue(
            [tag for delivery in deliveries for tag in delivery.tags]
        ) != min(3, len(self.numbers)):
            raise Violation(f"{self.member} became the master, and not all of its messages come again as redelivered")

    @property
    def numbers(self) -> dict[int, bytes]:
        """The contents of all messages of the replica by number, ready and pending."""
        found = {}
        for run in [*self.backing._ready.runs, *self.backing._pending.runs]:
            found |= {message.tag: message.content for message in run.messages()}
        return found


class Group:
    """The replicas of one queue, as the module describes them."""

    def __init__(self, names: str) -> None:
        members = tuple(Member(name, "1", at) for at, name in enumerate(names, 1))
        group = MirrorGroup(ring=members, learners=(), epoch=1, reign=1, wanted=tuple(names), members=len(names))
        self.row = QueueRow("/", "orders", None, "q1", durable=True, node=names[0], group=group)
        self.wires: dict[tuple[Member, Member], deque] = {}
        self.replicas = {member: FakeReplica(self, member, self.row) for member in members}
        self.contents: dict[int, bytes] = {}
        self.confirmed: dict[bytes, int] = {}
        self.gone: set[bytes] = set()
        self.said = 0
        self.now = 0.0
        for replica in self.replicas.values():
            self.end_turn(replica)

    @property
    def master(self) -> FakeReplica:
        return self.replicas[self.row.group.master]

    def publish(self, count: int = 1, persistent: bool = True) -> None:
        """A publisher that awaits confirms publishes a run of `count` messages to the master."""
        contents = []
        parts = [("c1", self.said + 1, count, True)]
        for _ in range(count):
            self.said += 1
            contents.append(b"%d" % self.said + bytes(30))
        origin = Origin("", ("orders",), persistent)
        numbers = self.master.mirrored.publish(origin, contents, 10 * count, None, True, parts)
        self.master.state.confirms.published.append((numbers.start, numbers.stop - 1, parts))
        self.end_turn(self.master)

    def consume(self, count: int, outcome: str) -> None:
        """The master delivers `count` messages, and the consumer acks, requeues or keeps them."""
        master = self.master
        for delivery in master.mirrored.fetch(count, True):
            if outcome == "ack":
                self.gone |= set(delivery.contents)
                master.mirrored.ack(delivery.tags)
            elif outcome == "requeue":
                master.mirrored.requeue(delivery.tags)
        self.end_turn(master)

    def ack_pending(self, which: slice) -> None:
        master = self.master
        tags = list(master.mirrored.pending_numbers())[which]
        self.gone |= {message.content for message in master.mirrored.pending_messages(tags)}
        master.mirrored.ack(tags)
        self.end_turn(master)

    def purge(self) -> None:
        master = self.master
        kept = set(master.mirrored.pending_numbers())
        self.gone |= {content for number, content in master.numbers.items() if number not in kept}
        while master.mirrored.purge(2):
            pass
        self.end_turn(master)

    def end_turn(self, replica: FakeReplica) -> None:
        if not replica.is_alive:
            return
        replica.replication.end_turn()
        if replica.has_promoted or replica.member == self.row.group.master:
            here = replica.numbers
            for first, last in replica.mirrored.drain_confirmed():
                for number in range(first, last + 1):
                    self._confirmed(replica, number, here)
                replica.state.confirms.confirmed.update(range(first, last + 1))
            replica.replication.confirms_sent()

    def _confirmed(self, replica, number, here) -> None:
        content = here.get(number)
        if content is None:
            return  # the message was acked earlier, so no replica needs it
        self.confirmed[content] = number
        for member in replica.row.group.ring:
            other = self.replicas[member]
            if other.numbers.get(number) != content and content not in self.gone:
                raise Violation(f"{content!r} was confirmed, and {member} does not have it")
            waiting = [low for low, high in other.backing.unsynced if low <= number <= high]
            if waiting and other.is_alive:
                raise Violation(f"{content!r} was confirmed, and is not on the disk of {member}")

    def check_proposed(self, learner: Member) -> None:
        found = self.replicas[learner]
        for first, last in found.backing.unsynced:
            lost = {found.numbers.get(number) for number in range(first, last + 1)} & self.confirmed.keys() - self.gone
            if lost:
                raise Violation(f"{lost} were confirmed, and are not on the disk of {learner}, which is to be admitted")

    def arrive(self, pair) -> bool:
        wire = self.wires.get(pair)
        if not wire:
            return False
        message = wire.popleft()
        replica = self.replicas.get(pair[1])
        if replica is not None and replica.is_alive:
            name, *fields = message
            sender = LoopAddress(f"{pair[0].node}-{pair[0].incarnation}/gm")
            if name == "ring":
                replica.replication.receive(sender, *fields)
            else:
                getattr(replica.replication, HANDLERS.get(name, name))(*fields)
            self.end_turn(replica)
        return True

    def sync(self, replica: FakeReplica) -> None:
        replica.backing.sync()
        self.end_turn(replica)

    def run(self, tells_done: bool = True) -> None:
        """Deliver all frames and finish all writes until nothing moves. With `tells_done`, the master also tells the
        members what they may drop.
        """
        moves = True
        while moves:
            moves = False
            for pair in list(self.wires):
                while self.arrive(pair):
                    moves = True
            for replica in self.living():
                replica.backing.drain_unsynced()
                if replica.backing.unsynced:
                    self.sync(replica)
                    moves = True
                if tells_done:
                    replica.replication.timer_fired(DONE_TIMER)
                self.end_turn(replica)
            moves = moves or any(self.wires.values())

    def living(self):
        return [replica for replica in self.replicas.values() if replica.is_alive]

    def kill(self, member: Member) -> None:
        self.replicas[member].is_alive = False

    def remove(self, *gone: Member) -> None:
        """Put a row without these members into the log. No replica has applied it yet."""
        group = self.row.group
        ring = tuple(member for member in group.ring if member not in gone)
        reign = group.epoch + 1 if ring[0] != group.master else group.reign
        group = replace(group, ring=ring, epoch=group.epoch + 1, reign=reign)
        self.row = replace(self.row, group=group, node=ring[0].node)

    def transfer(self, to: Member) -> None:
        """Put a row with this member as the master into the log. No replica has applied it yet."""
        group = self.row.group
        ring = (to, *(member for member in group.ring if member != to))
        group = replace(group, ring=ring, epoch=group.epoch + 1, reign=group.epoch + 1)
        self.row = replace(self.row, group=group, node=to.node)

    def apply(self, replica: FakeReplica) -> None:
        if replica.is_alive and replica.row is not self.row:
            replica.row = self.row
            if replica.member in self.row.group.everyone:
                replica.replication.change_row()
                self.end_turn(replica)
            else:
                replica.is_alive = False

    def learn(self, name: str, earlier: FakeReplica | None = None) -> FakeReplica:
        """Add a learner, with what was on the disk of an earlier replica. The log has a row with it, which all replicas
        apply.
        """
        group = self.row.group
        member = Member(name, "1", group.members + 1)
        self.row = replace(
            self.row, group=replace(group, learners=(*group.learners, member), members=group.members + 1)
        )
        for replica in self.living():
            self.apply(replica)
        learner = self.replicas[member] = FakeReplica(self, member, self.row, earlier)
        self.end_turn(learner)
        return learner

    def admit(self, learner: FakeReplica) -> None:
        """Put a row with the learner in the ring into the log. No replica has applied it yet."""
        group = self.row.group
        learners = tuple(member for member in group.learners if member != learner.member)
        group = replace(group, ring=(*group.ring, learner.member), learners=learners, epoch=group.epoch + 1)
        self.row = replace(self.row, group=group)

    @property
    def learner(self) -> FakeReplica | None:
        """The first of the replicas that copy the queue."""
        learners = self.row.group.learners
        return self.replicas[learners[0]] if learners else None

    def forget_learner(self) -> None:
        """Put a row without the first learner into the log."""
        self.row = replace(self.row, group=replace(self.row.group, learners=self.row.group.learners[1:]))

    def copy_chunk(self, learner: FakeReplica) -> None:
        """The learner gets its next chunk from the replica that it follows; when it has everything, it tells the
        master.
        """
        copying, source = learner.replication._learner, learner.replication._ring.left
        if not learner.copies or copying is None or source is None or not self.replicas[Member(*source)].is_alive:
            return
        if copying._target.is_done:
            copying._ask_to_be_admitted()
        else:
            learner.is_hasty = True
            with suppress(Waits):
                if not learner.has_floors:
                    asyncio.run(copying._note_floors())
                    learner.has_floors = True
                if copying._comparison is None:
                    asyncio.run(copying._get_chunk(Member(*source)))
                else:
                    asyncio.run(copying._compare(copying._comparison, Member(*source)))
            learner.is_hasty = False
        self.end_turn(learner)

    def check_rest(self) -> None:
        ring = [self.replicas[member] for member in self.row.group.ring]
        first = ring[0].numbers
        for replica in ring:
            if replica.numbers != first:
                differ = sorted(set(replica.numbers.items()) ^ set(first.items()))[:5]
                raise Violation(f"{replica.member} differs from the master: {differ}")
        contents = set(first.values())
        for content in self.confirmed:
            if content not in contents and content not in self.gone:
                raise Violation(f"{content!r} was confirmed and is lost")
        if self.is_whole and self.gone & contents:
            raise Violation(f"{self.gone & contents} were removed, and are here again")

    @property
    def is_whole(self) -> bool:
        """Whether there was only one master. The removals of a master that died may be lost."""
        return self.row.group.reign == 1
