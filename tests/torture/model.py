"""What a broker may and must have, after it was killed any number of times.

Clients tell the model what they do before they do it, and what they hear when they hear it; `crashed` and `stopped` tell how the broker ended; `check` compares
it with all that is in a queue after the next start. Whatever must not be is a `Violation`.

A message in a queue is in one of these states, as far as clients can know:

| state | it is there after an unclean end | after a clean one |
|---|---|---|
| `HELD_BACK`: in a transaction whose commit was not sent | never | never |
| `SENT`, not confirmed | perhaps | perhaps |
| `KEPT`: confirmed, or found after a start | yes | yes |
| settled, and nothing more | perhaps | perhaps |
| settled, and a later method on that channel was answered | perhaps | no |
| settled, and then something was published on that channel to that queue, is confirmed, and not settled itself | no: the journal keeps their order (QS-37) | no |

A transient message is never there after a start. What a queue without a dead-letter exchange is told to reject it is told to forget, like an ack, and so is what is purged.
Dead-lettering is at most once (AB-147) and may have to read a message from disk first, so a rejected one is `settled` for ever, and its dead letter `SENT`; after a clean end one
of the two must be there.
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
    """The broker did what it must not."""


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
    delivered: bool = False  # to somebody who has seen it
    maybe_delivered: bool = False  # or the broker may think so
    died: bool = False  # here as a dead letter
    death: Death | None = None  # as it was first seen
    probe: list[Entry] | None = None  # what was settled on its channel before it was published
    heir: Entry | None = None  # what became of it behind a dead-letter exchange
    copies: int = 1  # so often it may be there: it may die anew when it died shortly before an unclean end


class Found(NamedTuple):
    """A message as a client got it."""

    key: Key
    redelivered: bool
    death: Death | None


@dataclass
class QueueModel:
    """One queue. `reason` is why what leaves it becomes a dead letter in `heirs`, if it does."""

    name: str
    keeps_order: bool = True  # what one publisher sent comes in that order
    expires: bool = False  # what is in it soon becomes a dead letter by itself
    heirs: QueueModel | None = None
    entries: dict[Key, Entry] = field(default_factory=dict)
    order: list[Key] = field(default_factory=list)  # of what was there at the last check
    lost_gets: int = 0  # got without ack, the answer not heard: whichever these were
    was_consumed: bool = False  # in this life

    def settle(self, entry: Entry, is_reject: bool) -> None:
        entry.settled = SETTLED
        if is_reject and self.heirs is not None:
            self._inherit(entry)

    def _inherit(self, entry: Entry) -> None:
        assert self.heirs is not None
        entry.heir = Entry(entry.key, 0, entry.persistent, SENT, died=True)
        self.heirs.entries[entry.key] = entry.heir


class Model:
    """All queues. Every method but `check` may be called by any client's thread, each holding `lock`."""

    def __init__(self, queues: Iterable[QueueModel]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.lock = threading.RLock()
        self.is_over = False  # the clients' lives are
        self.is_stopping = (
            False  # the broker was told to stop: it hears nothing of what clients whose connections it closes still say
        )
        self.life = 0
        self.confirmed = self.settled = self.delivered = self.found = 0
        self._either: list[tuple[QueueModel, Entry]] = []  # it, or its heir
        self._publishers = 0
        self._published: dict[int, int] = defaultdict(int)  # publisher -> its highest number

    # -- what clients tell --------------------------------------------------------------------------------------------------------------------

    def new_publisher(self) -> int:
        with self.lock:
            self._publishers += 1
            return self._publishers

    def publish(
        self, key: Key, queues: Iterable[str], priority: int, persistent: bool, state: str = SENT
    ) -> list[Entry]:
        """Before it is sent. What they hold back goes with `commit` or `roll_back`."""
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
        """Before the commit is sent."""
        for entry in entries:
            entry.state = SENT
        for queue, entry in settled:
            self.settle(queue, entry)

    def roll_back(self, queue: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            del self.queues[queue].entries[entry.key]

    def deliver(self, queue: str, found: Found) -> Entry:
        """A delivery, or the answer to a get."""
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
        """Before it is sent: the message is wanted no more."""
        self.queues[queue].settle(entry, is_reject)
        self.settled += 1

    def flushed(self, entries: Iterable[Entry]) -> None:
        """A later method on the channel that settled them was answered."""
        for entry in entries:
            if entry.settled == SETTLED and entry.heir is None:
                entry.settled = FLUSHED

    def forgotten(self, entries: Iterable[Entry]) -> None:
        """They must never come back: the queue was deleted."""
        for entry in entries:
            entry.settled = FORGOTTEN

    # -- how it ended -------------------------------------------------------------------------------------------------------------------------

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

    # -- what is found ------------------------------------------------------------------------------------------------------------------------

    def check(self, name: str, found: list[Found]) -> list[int]:
        """`found` is all there is in the queue, in order, after a start and before anything was published; what is in a queue that expires has gone to its heirs by then.
        The answer are places in `found` of second copies, which should be settled: from then on the model knows each message once."""
        queue = self.queues[name]
        seen: dict[Key, int] = {}
        surplus = []
        for at, one in enumerate(found):
            entry = self._known(name, one)
            seen[one.key] = seen.get(one.key, 0) + 1
            if seen[one.key] > entry.copies:
                raise Violation(f"{name}: {one.key} is there {seen[one.key]} times")
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
                raise Violation(f"{name}: {one.key} is there, although it {why}")
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
                f"{name}: {len(missing)} messages are missing that had been confirmed or there, and not settled ({queue.lost_gets} may have been "
                f"got without ack): {first}; {len(found)} are there"
            )
        for before, entry in self._either:
            if before.heirs is queue and entry.key not in before.entries and entry.key not in seen:
                raise Violation(
                    f"{before.name}: {entry.key} died, and is neither there nor in '{name}', although the broker ended cleanly"
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
                "was settled or gone before"
                if found.key.number <= self._published[found.key.publisher]
                else "was never published"
            )
            raise Violation(f"{queue}: {found.key} is there, but it {was}, at least in this queue")
        return entry

    def _check_flag(self, queue: str, entry: Entry, found: Found) -> None:
        # While the broker stops, what was on its way to a consumer goes back, and who still gets may get it.
        if found.redelivered and not (entry.delivered or entry.maybe_delivered or self.is_stopping):
            raise Violation(f"{queue}: {found.key} says that it was delivered before, and it was not")
        if entry.delivered and not found.redelivered and entry.copies == 1:
            raise Violation(f"{queue}: {found.key} was delivered before, and does not say so")

    def _check_death(self, queue: str, entry: Entry, found: Found) -> None:
        if entry.died != (found.death is not None):
            raise Violation(
                f"{queue}: {found.key} is {'a' if entry.died else 'no'} dead letter; its x-death: {found.death}"
            )
        if entry.death is not None and entry.death != found.death and entry.copies == 1:
            raise Violation(f"{queue}: the x-death of {found.key} was {entry.death} and is {found.death}")
        entry.death = found.death

    def _check_order(self, queue: QueueModel, found: list[Key]) -> None:
        """Within a priority: what was there before in the same order, then what is new, each publisher's in the order of its numbers."""
        place = {key: at for at, key in enumerate(queue.order)}
        by_priority: dict[int, list[Key]] = defaultdict(list)
        for key in found:
            by_priority[queue.entries[key].priority].append(key)
        priorities = [queue.entries[key].priority for key in found]
        if priorities != sorted(priorities, reverse=True):
            raise Violation(f"{queue.name}: a message of a lower priority comes before one of a higher")
        for keys in by_priority.values():
            last, newest = -1, dict[int, int]()
            for key in keys:
                at = place.get(key)
                if at is not None:
                    if newest:
                        raise Violation(
                            f"{queue.name}: {key} was there before the life that published {next(iter(newest.items()))}, and comes after it"
                        )
                    if at < last:
                        raise Violation(f"{queue.name}: {key} comes after {queue.order[last]}, and came before it")
                    last = at
                elif queue.keeps_order and newest.get(key.publisher, -1) > key.number:
                    raise Violation(
                        f"{queue.name}: {key} comes after number {newest[key.publisher]} of the same publisher"
                    )
                else:
                    newest[key.publisher] = key.number
