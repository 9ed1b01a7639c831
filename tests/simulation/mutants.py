"""Bugs of messages and acknowledgements that the simulation must find; `more_mutants` has others.

A broker could have each of them, and no quiet test shows it: it takes a requeue, a crash, or a channel that ends at the
wrong moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from warren.actors.channel.confirms import Confirms
from warren.actors.channel.process import Channel
from warren.actors.channel.unacked import Unacked, UnackedRun
from warren.actors.metadata.table_writer import TableWriter
from warren.actors.queue.consumers import Consumer
from warren.actors.queue.process import Queue
from warren.runtime.credit import CreditFlow
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.run_queue import RunQueue
from warren.store.queue.memory_queue import MemoryQueue
from warren.store.queue.sub_queues import SubQueues
from warren.store.queue.variable_queue import VariableQueue

from . import differing_mutants, more_mutants  # noqa: F401  # they add their bugs to MUTANTS
from .planting import MUTANTS, mutant, replaced

__all__ = ["MUTANTS"]


@mutant
def lost_requeue() -> Iterator[None]:
    """A queue drops the last of several messages that are requeued together."""

    def make(original: Any) -> Any:
        def requeue(self: Any, tags: Any) -> int:
            tags = list(tags)
            if len(tags) > 1:
                self.ack(tags[-1:])
                tags = tags[:-1]
            return original(self, tags)

        return requeue

    with replaced(VariableQueue, "requeue", make), replaced(MemoryQueue, "requeue", make):
        yield


@mutant
def confirm_before_sync() -> Iterator[None]:
    """A queue confirms a publish when it is written, before it is on the disk."""

    def make(original: Any) -> Any:
        def drain_confirmed(self: VariableQueue) -> Any:
            self.unconfirmed.journal_durable = self.unconfirmed.store_durable = 1 << 60
            return original(self)

        return drain_confirmed

    with replaced(VariableQueue, "drain_confirmed", make):
        yield


@mutant
def credit_leak() -> Iterator[None]:
    """The grant that ends a block is one too small."""

    def make(original: Any) -> Any:
        def bump(self: CreditFlow, peer: Any, n: int) -> None:
            original(self, peer, n - (peer in self.credit_blocked))

        return bump

    with replaced(CreditFlow, "bump", make):
        yield


@mutant
def range_off_by_one() -> Iterator[None]:
    """A multiple acknowledgement that ends inside a run leaves out its last message."""

    def make(original: Any) -> Any:
        def take(self: Unacked, delivery_tag: int, multiple: bool) -> list[UnackedRun] | None:
            run = self.oldest
            inside = multiple and run is not None and len(run.tags) > 2 and run.first < delivery_tag < run.last
            return original(self, delivery_tag - inside, multiple)

        return take

    with replaced(Unacked, "take", make):
        yield


@mutant
def double_delivery_after_channel_close() -> Iterator[None]:
    """When a channel ends, the queue also requeues a message that another channel holds."""

    def make(original: Any) -> Any:
        def forget_channel(self: Queue, channel_id: str) -> None:
            ended = channel_id in self.channels
            original(self, channel_id)
            for record in self.channels.values() if ended else ():
                if record.pending:
                    self.backing.requeue([next(iter(record.pending))])
                    break

        return forget_channel

    with replaced(Queue, "forget_channel", make):
        yield


@mutant
def redelivered_flag_lost() -> Iterator[None]:
    """A message that is delivered alone is never flagged as redelivered."""

    def make(original: Any) -> Any:
        def on_deliver(self: Channel, sender: Any, queue_id: str, tag: str, runs: list[Any]) -> Any:
            if len(runs) == 1 and len(runs[0][3]) == 1:
                runs = [(runs[0][0], False, *runs[0][2:])]
            return original(self, sender, queue_id, tag, runs)

        return on_deliver

    with replaced(Channel, "on_deliver", make):
        # The class has a table of its handlers, which was made when the class was.
        with mock.patch.dict(Channel._handlers, {"deliver": vars(Channel)["on_deliver"]}):
            yield


@mutant
def ack_to_the_next_process() -> Iterator[None]:
    """A channel settles deliveries of a crashed queue with the queue's next process, whose numbers begin anew."""
    with mock.patch.object(Unacked, "disown", lambda self, queue_id: None):
        yield


@mutant
def recovered_out_of_order() -> Iterator[None]:
    """The first two runs of a slice that is read from the disk change places."""

    def make(original: Any) -> Any:
        def load_from_delta(self: SubQueues, *args: Any) -> Any:
            before = len(self.q3.runs)
            found = original(self, *args)
            runs = self.q3.runs
            if len(runs) - before > 1:
                runs[before], runs[before + 1] = runs[before + 1], runs[before]
            return found

        return load_from_delta

    with replaced(SubQueues, "load_from_delta", make):
        yield


@mutant
def requeued_to_the_tail() -> Iterator[None]:
    """Requeued messages go to the tail of the queue."""

    def insert(self: RunQueue, returned: list[Any]) -> None:
        for run in returned:
            self.count += len(run.contents)
            self.body_bytes += run.body_bytes
            self.runs.append(run)

    with mock.patch.object(RunQueue, "insert", insert):
        yield


@mutant
def prefetch_overrun() -> Iterator[None]:
    """A consumer with a prefetch of two or more gets one message too many."""
    original = Consumer.capacity

    def capacity(self: Consumer) -> int:
        return int(original.fget(self)) + (self.prefetch > 1 and self.unacked == self.prefetch)  # type: ignore[attr-defined]

    with mock.patch.object(Consumer, "capacity", property(capacity)):
        yield


@mutant
def binding_before_its_commit() -> Iterator[None]:
    """A bind is answered before the binding is on the disk."""

    def make(original: Any) -> Any:
        async def write(self: TableWriter, *changes: Any) -> None:
            if (
                changes
                and self.commits is not None
                and all(change.table == "bindings" and change.fields is not None for change in changes)
            ):
                self.commits.note(changes)
            else:
                await original(self, *changes)

        return write

    with replaced(TableWriter, "write", make):
        yield


@mutant
def ack_lost_in_the_journal() -> Iterator[None]:
    """The acknowledgement of a single message is not written to the journal."""

    def make(original: Any) -> Any:
        def ack(self: LogWriter, queue: int, spans: Any) -> int:
            if len(spans) == 1 and len(spans[0]) == 1:
                return self.position
            return original(self, queue, spans)

        return ack

    with replaced(LogWriter, "ack", make):
        yield


@mutant
def confirmed_twice() -> Iterator[None]:
    """Confirms that came out of order are sent a second time."""

    def make(original: Any) -> Any:
        def flush(self: Confirms) -> Any:
            acked = (
                []
                if self._waiting.smallest is None
                else [piece for piece in self._acked if piece[0] > self._waiting.smallest]
            )
            found = original(self)
            for first, last in acked:
                self._acked.add(first, last)
            return found

        return flush

    with replaced(Confirms, "flush", make):
        yield
