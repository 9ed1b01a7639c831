"""A model of the messages that a broker may have, and must have, after it was killed any number of times.

Clients report to the model each action before they send it, and each reply when it arrives. `crashed` and `stopped`
record how the broker ended. `check` compares the model with all messages of a queue after the next start. It raises
`Violation` for any message that is missing or must not be there.

As far as clients can know, a message in a queue is in one of these states:

| state | present after an unclean end | after a clean end |
|---|---|---|
| `HELD_BACK`: in a transaction whose commit was not sent | never | never |
| `SENT`, not confirmed | perhaps | perhaps |
| `KEPT`: confirmed, or found after a start | yes | yes |
| settled only | perhaps | perhaps |
| settled, and a later method on the same channel was answered | perhaps | no |
| settled, then a probe was published and confirmed | no: the journal keeps the order (QS-37) | no |

A *probe* is a message published, after the settlement, on the same channel to the same queue, and not settled itself.

A transient message is never present after a start. Without a dead-letter exchange, a rejected message counts as
acknowledged, and so does a purged one. With one, a queue may have to read a rejected message from the disk first.
Therefore a rejected message stays `SETTLED` and its dead letter `SENT`. After any end just one of the two is present,
as with messages that expire or are dropped from the head: these have their dead letters from the beginning.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from warren.simulation.bodies import Key

HELD_BACK, SENT, KEPT = "held back", "sent", "kept"
NOT_SETTLED, SETTLED, FLUSHED, FORGOTTEN = "not settled", "settled", "settled and heard", "settled, durably"


class Violation(Exception):
    """The broker broke a guarantee."""


class Death(NamedTuple):
    """The first entry of x-death."""

    reason: str
    queue: str
    count: int
    exchange: str
    routing_keys: tuple[str, ...]
    time: int


@dataclass(slots=True)
class Entry:
    """A message in a queue."""

    key: Key
    priority: int
    persistent: bool
    state: str
    settled: str = NOT_SETTLED
    #: A client has received the message.
    delivered: bool = False
    #: The broker may have sent the message to a client.
    maybe_delivered: bool = False
    #: The message is in this queue as a dead letter.
    died: bool = False
    #: The first entry of x-death when a client first received the message.
    death: Death | None = None
    #: For a probe: the messages that were settled on its channel before it was published.
    probe: list[Entry] | None = None
    #: The dead letter of this message.
    heir: Entry | None = None


def _is_open(queue: QueueModel, entry: Entry) -> bool:
    """Whether no consumer has settled the message, except by a reject that makes it a dead letter, nor that one."""
    heir = entry.heir
    if heir is None or queue.loses_by_itself and entry.settled != NOT_SETTLED:
        return entry.settled == NOT_SETTLED
    assert queue.heirs is not None
    return queue.heirs.entries.get(entry.key) is heir and _is_open(queue.heirs, heir)


class Found(NamedTuple):
    """A message as a client received it."""

    key: Key
    redelivered: bool
    death: Death | None


@dataclass
class QueueModel:
    """One queue. Its dead letters, if it has a dead-letter exchange, go to the queue `heirs`."""

    name: str
    #: The messages of one publisher are delivered in the order of their numbers.
    keeps_order: bool = True
    #: Messages expire, or are dropped from the head, and become dead letters.
    loses_by_itself: bool = False
    heirs: QueueModel | None = None
    entries: dict[Key, Entry] = field(default_factory=dict)
    #: The messages at the last check, in order.
    order: list[Key] = field(default_factory=list)
    #: basic.get without ack whose answer did not arrive. Any message may have been the answer.
    lost_gets: int = 0
    #: The queue had a consumer or a basic.get in this life of the broker.
    was_consumed: bool = False

    def settle(self, entry: Entry, is_reject: bool) -> None:
        entry.settled = SETTLED
        if is_reject and self.heirs is not None:
            self._inherit(entry)

    def _inherit(self, entry: Entry) -> None:
        assert self.heirs is not None
        entry.heir = Entry(entry.key, 0, entry.persistent, SENT, died=True)
        self.heirs.entries[entry.key] = entry.heir
        if self.heirs.loses_by_itself:
            self.heirs._inherit(entry.heir)

    def places(self) -> list[QueueModel]:
        """This queue, and those in which the dead letters of its messages may be."""
        return [self, *(self.heirs.places() if self.heirs is not None else ())]


class Model:
    """All queues. The clients' threads may call every method except `check` while they hold `lock`."""

    def __init__(self, queues: Iterable[QueueModel]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.lock = threading.RLock()
        #: Notified when messages are confirmed, and when a client fails.
        self.changed = threading.Condition(self.lock)
        #: The clients should end.
        self.is_over = False
        #: The broker received SIGTERM, and from then on ignores methods on connections that it is closing.
        self.is_stopping = False
        self.life = 0
        self.confirmed = self.settled = self.delivered = self.found = 0
        #: Messages that may have died before the end: each must be present in one of the places of its queue.
        self._once: list[tuple[QueueModel, Entry]] = []
        self._publishers = 0
        #: Publisher -> the highest number of its messages.
        self._published: dict[int, int] = defaultdict(int)

    # -- reports of clients ---

    def new_publisher(self) -> int:
        with self.lock:
            self._publishers += 1
            return self._publishers

    def publish(
        self, key: Key, queues: Iterable[str], priority: int, persistent: bool, state: str = SENT
    ) -> list[Entry]:
        """Record a message before it is sent. One in a transaction is `HELD_BACK` until `commit` or `roll_back`."""
        self._published[key.publisher] = key.number
        entries = []
        for name in queues:
            queue = self.queues[name]
            entry = queue.entries[key] = Entry(key, priority, persistent, state)
            entries.append(entry)
            if queue.loses_by_itself:
                queue._inherit(entry)
        return entries

    def confirm(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.state == SENT:
                entry.state = KEPT
                self.confirmed += 1
        self.changed.notify_all()

    def commit(self, entries: Iterable[Entry], settled: Iterable[tuple[str, Entry]]) -> None:
        """Record tx.commit before it is sent."""
        for entry in entries:
            entry.state = SENT
        for queue, entry in settled:
            self.settle(queue, entry)

    def roll_back(self, queue: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            del self.queues[queue].entries[entry.key]

    def deliver(self, queue: str, found: Found) -> Entry:
        """Check and record a delivery or the answer to a get."""
        entry = self._known(queue, found)
        if entry.settled in (SETTLED, FLUSHED) and self.is_stopping:
            # The broker ends connections one after the other. What it had delivered on the first ones goes back into
            # its queue, and a client that is still connected may have settled it before the first one reads its
            # delivery. Or the acknowledgement came too late, and the message is still there.
            entry.state, entry.settled = SENT, NOT_SETTLED
        if entry.settled != NOT_SETTLED:
            raise Violation(f"{queue}: {found.key} was delivered again after it had been {entry.settled}")
        if entry.state == HELD_BACK:
            raise Violation(f"{queue}: {found.key} was delivered before its transaction was committed")
        self._check_flag(queue, entry, found)
        self._check_death(queue, entry, found)
        entry.delivered = True
        self.delivered += 1
        return entry

    def settle(self, queue: str, entry: Entry, is_reject: bool = False) -> None:
        """Record an ack or a reject before it is sent."""
        self.queues[queue].settle(entry, is_reject)
        self.settled += 1

    def flushed(self, entries: Iterable[Entry]) -> None:
        """Record that a later method on the channel that settled these messages was answered."""
        for entry in entries:
            if entry.settled == SETTLED and entry.heir is None:
                entry.settled = FLUSHED

    def forgotten(self, entries: Iterable[Entry]) -> None:
        """Record that these messages must never come back."""
        for entry in entries:
            entry.settled = FORGOTTEN

    # -- the end of a life ---

    def crashed(self) -> None:
        self._note_once()
        for queue in self.queues.values():
            for entry in list(queue.entries.values()):
                if entry.probe and entry.state == KEPT and entry.settled == NOT_SETTLED and not queue.lost_gets:
                    self.forgotten(before for before in entry.probe if before.heir is None)
            for entry in list(queue.entries.values()):
                if not entry.persistent or entry.state == HELD_BACK:
                    entry.settled = FORGOTTEN
                elif entry.settled in (SETTLED, FLUSHED):
                    entry.state, entry.settled = SENT, NOT_SETTLED
                entry.maybe_delivered = True
                entry.probe = None
        self._ended()

    def _note_once(self) -> None:
        """Note the messages that must be in one place, because they were confirmed and no consumer has settled them."""
        self._once = []
        for queue in self.queues.values():
            for entry in queue.entries.values():
                if entry.heir is None or not entry.persistent or entry.state != KEPT:
                    continue
                if _is_open(queue, entry):
                    self._once.append((queue, entry))
                else:
                    entry.state = SENT  # the next end must not demand it either

    def stopped(self) -> None:
        self._note_once()
        for queue in self.queues.values():
            for entry in queue.entries.values():
                if not entry.persistent or entry.state == HELD_BACK or entry.settled == FLUSHED:
                    entry.settled = FORGOTTEN
                elif entry.settled == SETTLED:
                    entry.state, entry.settled = SENT, NOT_SETTLED
                if queue.was_consumed:
                    entry.maybe_delivered = True
                entry.probe = None
        self._ended()

    def _ended(self) -> None:
        for queue in self.queues.values():
            queue.was_consumed = False
        self.is_stopping = False
        self.life += 1

    # -- checks ---

    def check(self, name: str, found: list[Found]) -> None:
        """Compare `found`, all messages of the queue in order after a start, with the model.

        No client has published since the start but to show that all dead letters have arrived.
        """
        queue = self.queues[name]
        seen: dict[Key, None] = {}
        for one in found:
            entry = self._known(name, one)
            if one.key in seen:
                raise Violation(f"{name}: {one.key} is present twice")
            seen[one.key] = None
            if entry.settled == FORGOTTEN:
                why = (
                    "is not persistent"
                    if not entry.persistent
                    else "was held back by a transaction"
                    if entry.state == HELD_BACK
                    else "was settled, durably"
                )
                raise Violation(f"{name}: {one.key} is present, although it {why}")
            self._check_flag(name, entry, one)
            self._check_death(name, entry, one)
        missing = (
            []
            if queue.loses_by_itself
            else [
                entry
                for entry in queue.entries.values()
                if entry.key not in seen and entry.state == KEPT and entry.settled == NOT_SETTLED
            ]
        )
        if len(missing) > queue.lost_gets:
            first = [tuple(entry.key) for entry in missing[:10]]
            raise Violation(
                f"{name}: {len(missing)} messages are missing that were confirmed or found before, and not settled "
                f"({queue.lost_gets} may have been got without ack): {first}; {len(found)} are present"
            )
        self._check_order(queue, list(seen))
        queue.lost_gets = 0
        queue.order = list(seen)
        for key in [key for key in queue.entries if key not in seen]:
            del queue.entries[key]
        for entry in queue.entries.values():
            entry.state, entry.settled, entry.delivered = KEPT, NOT_SETTLED, True
        self.found += len(found)
        if name == list(self.queues)[-1]:
            for first in self.queues.values():
                self._check_places(first)
            for first in self.queues.values():
                for entry in list(first.entries.values()) if first.loses_by_itself else ():
                    first._inherit(entry)

    def _check_places(self, first: QueueModel) -> None:
        """Check that each message of the queue is in one of its places, all of which were checked before."""
        for key in first.entries:
            there = [place.name for place in first.places() if key in place.entries]
            if len(there) > 1:
                raise Violation(f"{key} is present in {' and in '.join(there)}")
        for before, entry in self._once:
            if before is first and not any(entry.key in place.entries for place in first.places()):
                raise Violation(f"{first.name}: {entry.key} was confirmed, and is neither there nor a dead letter")

    def _known(self, queue: str, found: Found) -> Entry:
        entry = self.queues[queue].entries.get(found.key)
        if entry is None:
            was = (
                "was settled or removed before"
                if found.key.number <= self._published[found.key.publisher]
                else "was never published"
            )
            raise Violation(f"{queue}: {found.key} is present, but it {was} in this queue")
        return entry

    def _check_flag(self, queue: str, entry: Entry, found: Found) -> None:
        # While the broker stops, deliveries in flight return to the queue, and a basic.get may receive them.
        # So may a dead letter that was on its way between two queues when the broker stopped.
        if found.redelivered and not (entry.delivered or entry.maybe_delivered or self.is_stopping or entry.died):
            raise Violation(f"{queue}: {found.key} is flagged as redelivered, but was never delivered")
        if entry.delivered and not found.redelivered:
            raise Violation(f"{queue}: {found.key} was delivered before, but is not flagged as redelivered")

    def _check_death(self, queue: str, entry: Entry, found: Found) -> None:
        if entry.died != (found.death is not None):
            raise Violation(
                f"{queue}: {found.key} is {'a' if entry.died else 'no'} dead letter; its x-death: {found.death}"
            )
        if entry.death is not None and entry.death != found.death:
            raise Violation(f"{queue}: the x-death of {found.key} was {entry.death} and is {found.death}")
        entry.death = found.death

    def _check_order(self, queue: QueueModel, found: list[Key]) -> None:
        """Check the order in each priority: old messages as before, then new ones in the order of each publisher."""
        place = {key: at for at, key in enumerate(queue.order)}
        by_priority: dict[int, list[Key]] = defaultdict(list)
        for key in found:
            by_priority[queue.entries[key].priority].append(key)
        priorities = [queue.entries[key].priority for key in found]
        if priorities != sorted(priorities, reverse=True):
            raise Violation(f"{queue.name}: a message of lower priority comes before one of higher priority")
        for keys in by_priority.values():
            last, newest = -1, dict[int, int]()
            for key in keys:
                at = place.get(key)
                if at is not None:
                    if newest:
                        raise Violation(
                            f"{queue.name}: {key} is older than {next(iter(newest.items()))}, but comes after it"
                        )
                    if at < last:
                        raise Violation(
                            f"{queue.name}: {key} comes after {queue.order[last]}, but came before it at the last check"
                        )
                    last = at
                elif queue.keeps_order and newest.get(key.publisher, -1) > key.number:
                    raise Violation(
                        f"{queue.name}: {key} comes after number {newest[key.publisher]} of the same publisher"
                    )
                else:
                    newest[key.publisher] = key.number
