"""The ledger: what clients of a cluster published, and what the broker answered and delivered.

Clients write down each thing before they do it, and each answer when they have it. The ledger compares at once what can
be compared at once, and the rest when the cluster has healed and its queues have been drained:

    P3  a confirmed persistent message of a durable queue is delivered, and comes again until it has been acked
        nothing is delivered that nobody published to that queue, and nothing is twice in a queue
    P4  a node without majority answers no declare and no confirm to what it was sent after its lease had ended
    P6  what was answered with declare-ok or bind-ok is on every node, and what was answered with delete-ok on none
    P7  each publish is answered once while its connection lives
    P8  messages of one channel to one queue keep their order, redelivered ones excepted
    P9  a message that is delivered again is flagged as redelivered

These numbers are those of the promises in docs/spec/cluster.md. Two more things are compared:

- Whoever reads a queue by number, or a stream, finds the same message under a number for ever, and a confirmed message
  under one number only.
- A confirmed message that a client has rejected is in its queue again or has become a dead letter (AB-147). It has no
  more dead letters than rejections if no node fails at the time; otherwise one may come twice, flagged as redelivered.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TextIO

from .. import bodies
from ..bodies import Key
from .published import LedgerCopy, PublishAnswer, Published

#: Seconds after which a rejected message has certainly become a dead letter on all replicas, if no node fails.
DEAD_LETTER_SECONDS = 1.0
#: Seconds from the beginning of a cut until the leases of the minority have certainly ended. They last 1.5 s.
LEASE_SECONDS = 2.0


class Violation(Exception):
    """The broker broke a promise."""


class Promises(NamedTuple):
    """Promises that only some brokers keep."""

    #: A message that was delivered before a node died is flagged as redelivered afterwards.
    flags_redelivered: bool = True
    #: A declared queue is on every node as soon as declare-ok has arrived; otherwise a moment later.
    is_visible_at_once: bool = True
    #: Messages of one channel keep their order in a queue although some go to that queue alone and some to several.
    orders_all_routes: bool = True
    #: A dead letter is not lost if a node fails.
    keeps_dead_letters: bool = True
    #: Queues are mirrored: when the master of one is lost, another node delivers again what was not settled.
    fails_over: bool = False


WARREN = Promises()
#: RabbitMQ 3.10 breaks each of them now and then. A message for one queue of another node goes straight to that queue,
#: and may overtake an earlier one for several queues, which goes by way of a delegate on that node.
RABBITMQ = Promises(
    flags_redelivered=False, is_visible_at_once=False, orders_all_routes=False, keeps_dead_letters=False
)


class Presence(Enum):
    ABSENT = "absent"
    MAYBE = "unknown"
    PRESENT = "present"


class Reader:
    """One channel that consumes."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.name = name
        self._ledger = ledger
        self._highest: dict[tuple[int, str], int] = {}
        self._acked: list[LedgerCopy] = []

    def delivered(self, queue: str, body: bytes, correlation_id: str | None, redelivered: bool) -> LedgerCopy:
        """A delivery has arrived. Raises Violation if it should not have."""
        with self._ledger.lock:
            return self._ledger.take(self, queue, body, correlation_id, redelivered)

    def begins(self, queue: str) -> None:
        """The channel is about to read a stream from its first message on."""
        for place in [place for place in self._highest if place[1] == queue]:
            del self._highest[place]

    def read(self, queue: str, offset: int, body: bytes, correlation_id: str | None) -> LedgerCopy:
        """A message of a stream has arrived. Raises Violation if it should not have."""
        with self._ledger.lock:
            return self._ledger.read(self, queue, offset, body, correlation_id)

    def in_order(self, queue: str, key: Key, redelivered: bool) -> None:
        place = key.publisher, queue
        if redelivered:
            return
        if key.number <= self._highest.get(place, 0):
            raise Violation(f"{queue}: {self.name} was sent {key} behind number {self._highest[place]} (P8)")
        self._highest[place] = key.number

    def acking(self, copy: LedgerCopy) -> None:
        with self._ledger.lock:
            copy.is_acked = True
            copy.holder = None
            self._acked.append(copy)
            self._ledger.counts["acked"] += 1

    def requeueing(self, copy: LedgerCopy) -> None:
        with self._ledger.lock:
            copy.holder = None

    def rejecting(self, copy: LedgerCopy) -> None:
        """The message is about to be rejected, so that it becomes a dead letter."""
        with self._ledger.lock:
            copy.holder = None
            self._ledger.rejecting(copy)

    def dead_letter(self, queue: str, body: bytes, correlation_id: str | None, source: str, times: int) -> LedgerCopy:
        """A message of the queue `source` has arrived as a dead letter. According to its x-death it was rejected there
        `times` times.

        Raises Violation if it was rejected fewer times. The copy that is returned is that in `queue`.
        """
        with self._ledger.lock:
            return self._ledger.dead_letter(self, queue, body, correlation_id, source, times)

    def round_trip(self) -> None:
        """The broker has answered a method that concerns the queue and that this channel sent after its latest ack. So
        the queue has received all of its acks.
        """
        with self._ledger.lock:
            for copy in self._acked:
                copy.is_surely_acked = True
            self._acked.clear()

    def ended(self) -> None:
        """The channel or its connection has ended, so the queue has its unsettled messages again."""
        self._acked.clear()


class Ledger:
    """What all clients of one cluster have sent and received. Every method may be called from any thread.

    `account` is a file for the story of the run, and `clock` returns the seconds of the run's clock.
    """

    def __init__(
        self,
        account: TextIO | None = None,
        promises: Promises = WARREN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.RLock()
        self.counts: Counter[str] = Counter()
        self.violations: list[BaseException] = []
        self.promises = promises
        self._account = account
        self._clock = clock
        self._began = clock()
        self._publishers = 0
        self._published: dict[Key, Published] = {}
        self._copies: dict[str, dict[Key, LedgerCopy]] = {}
        self._queues: dict[str, Presence] = {}
        #: By stream: the message that each offset has.
        self._offsets: dict[str, dict[int, Key]] = {}
        #: By queue: the number under which each message was read that had been confirmed by then.
        self._numbers: dict[str, dict[Key, int]] = {}
        #: Whether no node has failed since the cluster was last well, and the messages that were rejected since then.
        self._is_calm = True
        self._rejected: list[LedgerCopy] = []
        #: By node without a majority, the time at which its lease has certainly ended. It must not answer what it is
        #: sent later.
        self._alone_since: dict[str, float] = {}
        self._acks_may_be_lost = False

    def note(self, line: str) -> None:
        """Write a line of the story."""
        if self._account is not None:
            with self.lock:
                self._account.write(f"{self._clock() - self._began:8.3f}  {line}\n")
                self._account.flush()

    def failed(self, who: str, error: BaseException) -> None:
        """A client has found a violation, or has failed itself."""
        error.add_note(f"found by {who}")
        self.note(f"VIOLATION found by {who}: {error}")
        with self.lock:
            self.violations.append(error)

    def raise_violation(self) -> None:
        """Raise the first violation, if there is one."""
        if self.violations:
            raise self.violations[0]

    # -- faults ---

    def alone(self, nodes: Iterable[str], seconds: float | None = None) -> None:
        """These nodes have just lost the majority; after `seconds` their leases have certainly ended."""
        with self.lock:
            ends = self._clock() + (LEASE_SECONDS if seconds is None else seconds)
            self._alone_since.update(dict.fromkeys(nodes, ends))

    def together(self, nodes: Iterable[str] | None = None) -> None:
        """These nodes, or all, are about to belong to a majority again."""
        with self.lock:
            for node in tuple(self._alone_since) if nodes is None else nodes:
                self._alone_since.pop(node, None)

    def acks_may_be_lost(self) -> None:
        """A node has been killed, stopped or cut off, so acks that were sent may not have reached a queue."""
        with self.lock:
            self._acks_may_be_lost = True
            if self._is_calm:
                for copy in self._rejected:
                    if copy.rejected_at > self._clock() - DEAD_LETTER_SECONDS:
                        copy.is_surely_rejected = False
                self._rejected.clear()
            self._is_calm = False

    def is_well(self) -> None:
        """All nodes and all replicas are well, so what clients send from now on is not lost until a node fails."""
        with self.lock:
            self._is_calm = True

    def _refuse_without_majority(self, node: str, sent_at: float, what: str) -> None:
        since = self._alone_since.get(node)
        if since is not None and sent_at > since:
            raise Violation(f"{node} answered {what} that it was sent {sent_at - since:.1f} s after its lease (P4)")

    # -- publishing ---

    def new_publisher(self) -> int:
        """The number of a channel that publishes; its messages are numbered from 1."""
        with self.lock:
            self._publishers += 1
            return self._publishers

    def publishing(self, key: Key, queues: Sequence[str], node: str) -> None:
        """A client is about to publish to these queues."""
        with self.lock:
            message = self._published[key] = Published(key, queues, node, self._clock())
            for queue in queues:
                self._copies.setdefault(queue, {})[key] = LedgerCopy(message)
            self.counts["published"] += 1

    def answered(self, key: Key, is_ack: bool) -> None:
        """A basic.ack or basic.nack has arrived for the message."""
        with self.lock:
            message = self._published[key]
            if message.answer is not PublishAnswer.NONE:
                raise Violation(f"{key} is answered again; it was {message.answer.value} before (P7)")
            if is_ack:
                self._refuse_without_majority(message.node, message.sent_at, f"with a confirm of {key}")
            message.answer = PublishAnswer.ACK if is_ack else PublishAnswer.NACK
            self.counts["confirmed" if is_ack else "nacked"] += 1

    def answer_lost(self, keys: Iterable[Key]) -> None:
        """The connection has ended before these were answered."""
        with self.lock:
            for key in keys:
                self._published[key].answer = PublishAnswer.LOST

    def unanswered(self, node: str, keys: Sequence[Key], seconds: float) -> Violation:
        """The error for messages that were not answered in time on a connection that lives."""
        places = Counter(queue for key in keys for queue in self._published[key].queues)
        return Violation(
            f"{node} has not answered {len(keys)} publishes for {seconds:.0f} s; the first is {keys[0]} (P7); "
            f"they were for {dict(places)}"
        )

    # -- delivering ---

    def reader(self, name: str) -> Reader:
        return Reader(self, name)

    def read(self, reader: Reader, queue: str, offset: int, body: bytes, correlation_id: str | None) -> LedgerCopy:
        """A stream, or any queue, was read at this offset, which has the same message for every reader and for ever."""
        copy = self._copy(queue, body, correlation_id)
        key = copy.message.key
        there = self._offsets.setdefault(queue, {}).setdefault(offset, key)
        if there != key:
            raise Violation(f"{queue}: offset {offset} has {key} for {reader.name}, and had {there} before")
        if copy.message.answer is PublishAnswer.ACK:
            number = self._numbers.setdefault(queue, {}).setdefault(key, offset)
            if number != offset:
                raise Violation(f"{queue}: {key}, which was confirmed, had number {number} and has {offset} now")
        reader.in_order(queue, key, False)
        copy.deliveries.append(f"at {self._clock() - self._began:.3f} s to {reader.name}")
        self.counts["delivered"] += 1
        return copy

    def take(
        self, reader: Reader, queue: str, body: bytes, correlation_id: str | None, redelivered: bool
    ) -> LedgerCopy:
        copy = self._copy(queue, body, correlation_id)
        key = copy.message.key
        # After a failover the same consumer may get again what it has not settled.
        if copy.holder is reader and not (redelivered and self.promises.fails_over):
            raise Violation(f"{queue}: {key} was delivered twice to {reader.name}, which had not settled it (doubled)")
        # Compare with an unflagged delivery only if a client has read it: the redelivery to another client may be read
        # before the first delivery is.
        if copy.had_first and not redelivered and self.promises.flags_redelivered:
            raise Violation(
                f"{queue}: {key} was delivered before, {', '.join(copy.deliveries)}, and comes again to {reader.name} "
                "without the redelivered flag (P9)"
            )
        if copy.is_surely_acked and not self._acks_may_be_lost:
            raise Violation(f"{queue}: {key} was acked, and comes again although no node has failed")
        reader.in_order(queue, key, redelivered)
        copy.deliveries.append(f"at {self._clock() - self._began:.3f} s to {reader.name}")
        copy.had_first = copy.had_first or not redelivered
        copy.holder = reader
        self.counts["delivered"] += 1
        return copy

    def rejecting(self, copy: LedgerCopy) -> None:
        copy.rejections += 1
        copy.rejected_at = self._clock()
        if self._is_calm:
            copy.is_surely_rejected = True
            self._rejected.append(copy)
        self.counts["rejected"] += 1

    def dead_letter(
        self, reader: Reader, queue: str, body: bytes, correlation_id: str | None, source: str, times: int
    ) -> LedgerCopy:
        rejected = self._copy(source, body, correlation_id)
        if times > rejected.rejections:
            raise Violation(
                f"{queue}: {rejected.message.key} of {source} was rejected {rejected.rejections} times, and comes to "
                f"{reader.name} as a dead letter that was rejected {times} times (invented)"
            )
        self.counts["dead letters"] += 1
        return LedgerCopy(rejected.message)

    def _copy(self, queue: str, body: bytes, correlation_id: str | None) -> LedgerCopy:
        """The message with this body, in this queue. Raises Violation if nobody has published it there."""
        key = bodies.read(body)
        if key is None or correlation_id != f"{key.publisher}.{key.number}":
            raise Violation(
                f"{queue}: nobody published this: {len(body)} bytes {body[:40]!r}, correlation id {correlation_id}"
            )
        copy = self._copies.get(queue, {}).get(key)
        if copy is None:
            message = self._published.get(key)
            raise Violation(f"{queue}: {key} was never published to it; {message and message.queues} (invented)")
        return copy

    def check_drained(
        self, drained: Mapping[str, Sequence[LedgerCopy]], dead_letters: Sequence[LedgerCopy] = ()
    ) -> None:
        """All clients have stopped, all queues are empty, and these copies were taken out of each, and out of the queue
        of dead letters: check P3, and forget the messages.
        """
        with self.lock:
            dead = Counter(copy.message.key for copy in dead_letters)
            self._check_dead_letters(dead)
            for queue, copies in self._copies.items():
                found = Counter(copy.message.key for copy in drained.get(queue, ()))
                for key, count in found.items():
                    if count > 1:
                        raise Violation(f"{queue}: {key} was {count} times in the drained queue (doubled)")
                lost = [
                    key
                    for key, copy in copies.items()
                    if copy.message.answer is PublishAnswer.ACK
                    and not copy.is_acked
                    and key not in found
                    and not (copy.rejections and (key in dead or self._may_lose(copy)))
                ]
                if lost:
                    story = copies[lost[0]]
                    raise Violation(
                        f"{queue}: {len(lost)} confirmed messages are lost (P3); the first is {lost[0]}, published on "
                        f"{story.message.node} at {story.message.sent_at - self._began:.3f} s, delivered "
                        f"{', '.join(story.deliveries) or 'to nobody'}"
                    )
                self.counts["drained"] += len(found)
            self._copies.clear()
            self._published.clear()
            self._numbers.clear()
            self._rejected.clear()
            self._acks_may_be_lost = False

    def _may_lose(self, rejected: LedgerCopy) -> bool:
        """Whether the dead letter of this message may be lost."""
        return not (self.promises.keeps_dead_letters or rejected.is_surely_rejected)

    def _check_dead_letters(self, dead: Counter[Key]) -> None:
        """Check that no message has more dead letters than it was rejected, unless a node has failed at the time."""
        rejected = {key: copy for copies in self._copies.values() for key, copy in copies.items() if copy.rejections}
        for key, count in dead.items():
            if count > rejected[key].rejections and rejected[key].is_surely_rejected:
                raise Violation(
                    f"{key} was rejected {rejected[key].rejections} times and has {count} dead letters (doubled)"
                )

    # -- declaring ---

    def declaring(self, queue: str) -> float:
        """A client is about to declare the queue. Returns the time, for `declared`."""
        with self.lock:
            if self._queues.get(queue, Presence.ABSENT) is Presence.ABSENT:
                self._queues[queue] = Presence.MAYBE
            return self._clock()

    def declared(self, queue: str, node: str, sent_at: float) -> None:
        """The node has answered a declare, sent at `sent_at`: every node must have the queue from now on (P6)."""
        with self.lock:
            self._refuse_without_majority(node, sent_at, f"declare-ok for {queue}")
            self._queues[queue] = Presence.PRESENT
            self.counts["declared"] += 1

    def deleting(self, queue: str) -> float:
        with self.lock:
            self._queues[queue] = Presence.MAYBE
            return self._clock()

    def deleted(self, queue: str, node: str, sent_at: float) -> None:
        """The node has answered with delete-ok."""
        with self.lock:
            self._refuse_without_majority(node, sent_at, f"delete-ok for {queue}")
            self._queues[queue] = Presence.ABSENT
            self.counts["deleted"] += 1

    def looked_up(self, queue: str, node: str, is_there: bool, is_healed: bool = False) -> None:
        """A node that serves clients was asked, after the latest answer about the queue, whether it has the queue."""
        if not (is_healed or self.promises.is_visible_at_once):
            return
        with self.lock:
            known = self._queues[queue]
            self.counts["looked up"] += 1
        if known is not Presence.MAYBE and is_there != (known is Presence.PRESENT):
            raise Violation(f"{node} has {'a' if is_there else 'no'} queue {queue}, which is {known.value} (P6)")

    def bound(self, queue: str, node: str, is_routed: bool) -> None:
        """The queue was bound, and after bind-ok another node was given a message for it."""
        with self.lock:
            self.counts["bound"] += 1
            # The queue's node may have failed meanwhile, so that the queue gets nothing.
            must_be_routed = self.promises.is_visible_at_once and not self._acks_may_be_lost
        if must_be_routed and not is_routed:
            raise Violation(f"{node} does not know the binding of {queue}, which was answered with bind-ok (P6)")

    def check_queues(self, nodes: Sequence[str], is_there: Callable[[str, str], bool]) -> None:
        """The cluster has healed: compare what each node has with what was answered. Absent queues are forgotten.

        `is_there` asks a node for a queue. Nodes must agree on a queue whose declaration was not answered.
        """
        for queue, known in tuple(self._queues.items()):
            found = {node: is_there(node, queue) for node in nodes}
            for node, has_it in found.items():
                self.looked_up(queue, node, has_it, is_healed=True)
            if len(set(found.values())) > 1:
                raise Violation(f"{queue} is on some nodes only: {found} (P6)")
            with self.lock:
                if found[nodes[0]]:
                    self._queues[queue] = Presence.PRESENT
                else:
                    del self._queues[queue]
            if known is Presence.MAYBE:
                self.note(f"{queue}, whose declaration or deletion was not answered, is there: {found[nodes[0]]}")

    def queues(self) -> list[str]:
        """The queues that are there, or may be there."""
        with self.lock:
            return [queue for queue, presence in self._queues.items() if presence is not Presence.ABSENT]
