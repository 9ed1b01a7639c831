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
acknowledged, and so does a purged one. Dead-lettering is at most once (AB-147) and may have to read the message from
disk first. Therefore a rejected message stays `SETTLED` and its dead letter `SENT`; after a clean end one of the two
must be present.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .messages import Key

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
    #: Most copies that may be present: a message that died just before an unclean end may die again.
    copies: int = 1


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
    #: All messages soon expire and become dead letters.
    expires: bool = False
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


class Model:
    """All queues. The clients' threads may call every method except `check` while they hold `lock`."""

    def __init__(self, queues: Iterable[QueueModel]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.lock = threading.RLock()
        #: The clients should end.
        self.is_over = False
        #: The broker received SIGTERM. It ignores methods on connections that it is closing.
        self.is_stopping = False
        self.life = 0
        self.confirmed = self.settled = self.delivered = self.found = 0
        #: Messages that died before a clean end: each must be present itself or as its dead letter.
        self._either: list[tuple[QueueModel, Entry]] = []
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
            if queue.expires:
                queue._inherit(entry)
        return entries

    def confirm(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.state == SENT:
                entry.state = KEPT
                self.confirmed += 1

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
        if entry.settled == SETTLED and self.is_stopping:
            entry.settled = NOT_SETTLED
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
        self._either.clear()
        for queue in self.queues.values():
            for entry in list(queue.entries.values()):
                if entry.probe and entry.state == KEPT and entry.settled == NOT_SETTLED and not queue.lost_gets:
                    self.forgotten(before for before in entry.probe if before.heir is None)
            for entry in list(queue.entries.values()):
                if not entry.persistent or entry.state == HELD_BACK:
                    entry.settled = FORGOTTEN
                elif entry.settled in (SETTLED, FLUSHED):
                    entry.state, entry.settled = SENT, NOT_SETTLED
                if queue.expires and entry.heir is not None:
                    entry.heir.copies += 1
                entry.maybe_delivered = True
                entry.probe = None
        self._ended()

    def stopped(self) -> None:
        self._either.clear()
        for queue in self.queues.values():
            for entry in queue.entries.values():
                was_kept = entry.state == KEPT
                if not entry.persistent or entry.state == HELD_BACK or entry.settled == FLUSHED:
                    entry.settled = FORGOTTEN
                elif entry.settled == SETTLED:
                    entry.state, entry.settled = SENT, NOT_SETTLED
                if queue.was_consumed:
                    entry.maybe_delivered = True
                is_heir_open = (
                    entry.heir is not None
                    and queue.heirs is not None
                    and queue.heirs.entries.get(entry.key) is entry.heir
                    and entry.heir.settled == NOT_SETTLED
                )
                if is_heir_open and entry.persistent and was_kept:
                    self._either.append((queue, entry))
                entry.probe = None
        self._ended()

    def _ended(self) -> None:
        for queue in self.queues.values():
            queue.was_consumed = False
        self.is_stopping = False
        self.life += 1

    # -- checks ---

    def check(self, name: str, found: list[Found]) -> list[int]:
        """Compare `found`, all messages of the queue in order after a start, with the model.

        No client has published since the start, and the messages of queues that expire are dead letters by now. Returns
        the positions in `found` of second copies. The caller must settle them, because from now on the model has one of
        each.
        """
        queue = self.queues[name]
        seen: dict[Key, int] = {}
        surplus = []
        for at, one in enumerate(found):
            entry = self._known(name, one)
            seen[one.key] = seen.get(one.key, 0) + 1
            if seen[one.key] > entry.copies:
                raise Violation(f"{name}: {one.key} is present {seen[one.key]} times")
            if seen[one.key] > 1:
                surplus.append(at)
            if entry.settled == FORGOTTEN and entry.copies == 1:
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
            if queue.expires
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
        for before, entry in self._either:
            if before.heirs is queue and entry.key not in before.entries and entry.key not in seen:
                raise Violation(
                    f"{before.name}: {entry.key} died, and is neither there nor in '{name}', "
                    "although the broker ended cleanly"
                )
        self._check_order(queue, list(seen))
        queue.lost_gets = 0
        queue.order = list(seen)
        for key in [key for key in queue.entries if key not in seen]:
            del queue.entries[key]
        for entry in queue.entries.values():
            entry.state, entry.settled, entry.delivered = KEPT, NOT_SETTLED, True
        self.found += len(found)
        return surplus

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
        if found.redelivered and not (entry.delivered or entry.maybe_delivered or self.is_stopping):
            raise Violation(f"{queue}: {found.key} is flagged as redelivered, but was never delivered")
        if entry.delivered and not found.redelivered and entry.copies == 1:
            raise Violation(f"{queue}: {found.key} was delivered before, but is not flagged as redelivered")

    def _check_death(self, queue: str, entry: Entry, found: Found) -> None:
        if entry.died != (found.death is not None):
            raise Violation(
                f"{queue}: {found.key} is {'a' if entry.died else 'no'} dead letter; its x-death: {found.death}"
            )
        if entry.death is not None and entry.death != found.death and entry.copies == 1:
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
