"""Messages in transit: one queue has handed them over to others, and these have not taken them yet.

A dead letter leaves its queue and enters others without a moment in which a crash loses it or doubles it:

1. The source records in the journal, in one frame, that the dead message has left (ACK) and what became of it
   (HANDED_OVER: the dead letter, and the queues that are to get it). From then on the journal owns the dead letter.
2. When the frame is on the disk, the journal sends the dead letter to each target.
3. A target records in one frame that it has taken the dead letter (TAKEN) and what it made of it: a message of its own
   (PUBLISH), or another dead letter (HANDED_OVER), or nothing.

A frame is written as a whole or not at all. So after any crash the message is in the source, in transit or in the
target, and in one of them only; with several targets, each of them has it or will get it.

A dead letter in transit is named by a shared id (`message_ids`), which no other message has. If it is large, a target
later has the body in the message store under this id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from struct import pack, unpack
from typing import NamedTuple

from ..messages.message import Origin, body_sizes
from ..messages.records import decode_runs, encode_run
from ..messages.run import Run


class HandedOver(NamedTuple):
    """Dead letters of one origin in transit to other queues.

    targets       the numbers of the queues that get them (of their levels of priority 0)
    first_id      the shared id of the first; the others follow it
    is_recorded   they are persistent, so the journal has records of them
    """

    targets: tuple[int, ...]
    first_id: int
    origin: Origin
    contents: Sequence[bytes]
    body_bytes: int
    is_recorded: bool


class Taken(NamedTuple):
    """The queue `target` has taken `count` dead letters; the first has the id `first_id`."""

    target: int
    first_id: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class WaitingDeadLetters:
    """Dead letters that one target has not taken yet.

    place   the position of the newest record that has them: the record is repeated when its file is given up
    """

    __slots__ = ("contents", "first_id", "origin", "place")

    def __init__(self, first_id: int, origin: Origin, contents: Sequence[bytes], place: int) -> None:
        self.first_id = first_id
        self.origin = origin
        self.contents = contents
        self.place = place

    @property
    def end_id(self) -> int:
        """The id after the last."""
        return self.first_id + len(self.contents)

    def without(self, first: int, end: int) -> list[WaitingDeadLetters]:
        """The dead letters that are left when those with the ids from `first` to before `end` are taken."""
        if end <= self.first_id or self.end_id <= first:
            return [self]
        left = []
        for low, high in ((self.first_id, first), (end, self.end_id)):
            if low < high:
                contents = self.contents[low - self.first_id : high - self.first_id]
                left.append(WaitingDeadLetters(low, self.origin, contents, self.place))
        return left

    @property
    def body_bytes(self) -> int:
        sizes = body_sizes(self.contents)
        return sizes * len(self.contents) if isinstance(sizes, int) else sum(sizes)


class UnsentDeadLetters:
    """Dead letters that the journal still has to send to `targets`, which are the targets that are left.

    position   the journal's position at which they were handed over: they are sent when this is on the disk
    place      as in `WaitingDeadLetters`
    """

    __slots__ = ("_sent_to", "handed", "place", "position")

    def __init__(self, handed: HandedOver, position: int) -> None:
        self.handed = handed
        self.position = self.place = position
        self._sent_to = 0

    @property
    def targets(self) -> tuple[int, ...]:
        return self.handed.targets[self._sent_to :]

    def take(self, most: int) -> tuple[int, ...]:
        """Remove and return the next targets, at most this many."""
        first = self._sent_to
        self._sent_to += most
        return self.handed.targets[first : self._sent_to]

    @property
    def is_sent(self) -> bool:
        return self._sent_to >= len(self.handed.targets)


class InTransit:
    """All messages in transit in one journal, by target, in the order in which they were handed over.

    Dead letters with thousands of targets cannot be noted for all of these in one turn. So what queues hand over is
    `unsent` at first, as a whole. A target is noted when the dead letters are sent to it (`send`).
    """

    def __init__(self) -> None:
        #: Dead letters that were not sent to all their targets yet, with or without a record in the journal.
        self.unsent: deque[UnsentDeadLetters] = deque()
        #: By target, and then by the id of the first dead letter of each piece.
        self._by_target: dict[int, dict[int, WaitingDeadLetters]] = {}
        #: By target: the body bytes of what it has not taken.
        self._bytes: dict[int, int] = {}

    def __len__(self) -> int:
        """How many recorded dead letters are in transit; one with several targets counts once for each."""
        return sum(len(item.contents) for waiting in self._by_target.values() for item in waiting.values()) + sum(
            len(item.handed.contents) * len(item.targets) for item in self.unsent if item.handed.is_recorded
        )

    @property
    def targets(self) -> Collection[int]:
        """The queues that have not taken everything that was sent to them."""
        return self._by_target.keys()

    def of(self, target: int) -> Collection[WaitingDeadLetters]:
        """The dead letters that were sent to the target and that it has not taken yet."""
        return self._by_target.get(target, {}).values()

    def bytes_of(self, target: int) -> int:
        """The body bytes of what was sent to the target and what it has not taken yet."""
        return self._bytes.get(target, 0)

    def hand_over(self, handed: HandedOver, position: int) -> None:
        """Take over dead letters. They may be sent when the journal is on the disk up to `position`."""
        self.unsent.append(UnsentDeadLetters(handed, position))

    def has_unsent(self, durable: int) -> bool:
        """Whether dead letters may be sent when the journal is on the disk up to this position."""
        return bool(self.unsent) and self.unsent[0].position <= durable

    def send(self, durable: int, most: int) -> tuple[HandedOver, tuple[int, ...]] | None:
        """The dead letters to be sent next, and at most this many targets that get them now and are noted; None if
        there are none before the position `durable`.
        """
        if not self.has_unsent(durable):
            return None
        item = self.unsent[0]
        targets = item.take(most)
        if item.is_sent:
            self.unsent.popleft()
        if item.handed.is_recorded:
            self._note(item.handed, targets, item.place)
        return item.handed, targets

    def add(self, handed: HandedOver, place: int) -> None:
        """Note dead letters that were handed over for all their targets. A record that was repeated is noted once."""
        self._note(handed, handed.targets, place)

    def _note(self, handed: HandedOver, targets: Sequence[int], place: int) -> None:
        first_id = handed.first_id
        for target in targets:
            waiting = self._by_target.setdefault(target, {})
            if first_id not in waiting:
                waiting[first_id] = WaitingDeadLetters(first_id, handed.origin, handed.contents, place)
                self._bytes[target] = self._bytes.get(target, 0) + handed.body_bytes

    def take(self, taken: Taken) -> None:
        """Note that a target has taken dead letters. Those that are unknown were taken before."""
        waiting = self._by_target.get(taken.target)
        if waiting is None:
            return
        first, end = taken.first_id, taken.first_id + taken.count
        whole = waiting.get(first)
        if whole is not None and whole.end_id == end:
            del waiting[first]
            self._bytes[taken.target] -= whole.body_bytes
        else:
            # A queue may take the messages of one record in several turns.
            waiting = {part.first_id: part for item in waiting.values() for part in item.without(first, end)}
            self._by_target[taken.target] = waiting
            self._bytes[taken.target] = sum(item.body_bytes for item in waiting.values())
        if not waiting:
            del self._by_target[taken.target], self._bytes[taken.target]

    def forget(self, target: int) -> None:
        """Forget what was sent to this target, because it was deleted."""
        self._by_target.pop(target, None)
        self._bytes.pop(target, None)

    def placed_before(self, position: int) -> list[tuple[UnsentDeadLetters | WaitingDeadLetters, HandedOver]]:
        """The dead letters that only records up to this position have, each with the record that would repeat it."""
        noted: list[tuple[UnsentDeadLetters | WaitingDeadLetters, HandedOver]] = [
            (item, HandedOver((target,), item.first_id, item.origin, item.contents, item.body_bytes, True))
            for target, waiting in self._by_target.items()
            for item in waiting.values()
            if item.place <= position
        ]
        return noted + [
            (item, item.handed._replace(targets=item.targets))
            for item in self.unsent
            if item.place <= position and item.handed.is_recorded
        ]


def encode_handed_over(handed: HandedOver) -> list[bytes]:
    """The body of a HANDED_OVER record: u128 first id, u32 number of targets, u64 for each target, then a run as in
    `records`.
    """
    targets = handed.targets
    run = Run(0, list(handed.contents), handed.origin, None, False, handed.body_bytes)
    return [
        handed.first_id.to_bytes(16, "big") + pack(f">I{len(targets)}Q", len(targets), *targets),
        *encode_run(run, False),
    ]


def decode_handed_over(data: bytes) -> HandedOver:
    """The dead letters in the body of a HANDED_OVER record."""
    start = 20 + 8 * int.from_bytes(data[16:20], "big")
    ((run, _),) = decode_runs(data[start:])
    return HandedOver(
        unpack(f">{(start - 20) // 8}Q", data[20:start]),
        int.from_bytes(data[:16], "big"),
        run.origin,
        run.contents,
        run.body_bytes,
        True,
    )


def encode_taken(first_id: int, count: int) -> list[bytes]:
    """The body of a TAKEN record: u128 first id, u32 count."""
    return [first_id.to_bytes(16, "big") + count.to_bytes(4, "big")]


def decode_taken(target: int, data: bytes) -> Taken:
    """What the queue `target` has taken, from the body of a TAKEN record."""
    return Taken(target, int.from_bytes(data[:16], "big"), int.from_bytes(data[16:], "big"))
