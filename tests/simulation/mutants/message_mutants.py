"""Bugs of messages and acknowledgements that the simulation must find; `more_mutants` has others. Each docstring says
what the bug does.

A broker could have each of them without failing a quiet test: it shows only with a requeue, a crash, or a channel that
ends at the wrong moment.
"""

from __future__ import annotations

from typing import Any

from warren.actors.metadata.log.log import CommandOutcome
from warren.actors.metadata.state.commands import Bind
from warren.actors.metadata.state.effects import Applied

from . import differing_mutants, limit_mutants, more_mutants  # noqa: F401  # they add their bugs to MUTANTS
from .one_node import MUTANTS, bug

__all__ = ["MUTANTS"]


@bug("which messages are requeued")
def lost_requeue(requeue: Any, self: Any, tags: Any) -> int:
    """A queue drops the last of several messages that are requeued together."""
    tags = list(tags)
    if len(tags) > 1:
        self.ack(tags[-1:])
        tags = tags[:-1]
    return int(requeue(self, tags))


@bug("which publishes are safe")
def confirm_before_sync(drain: Any, self: Any) -> Any:
    """A queue confirms a publish when it is written, before it is on the disk."""
    self.journal_durable = self.store_durable = 1 << 60
    return drain(self)


@bug("how much credit a grant is")
def credit_leak(bump: Any, self: Any, peer: Any, n: int) -> None:
    """The grant that ends a block is too small by one."""
    bump(self, peer, n - (peer in self.credit_blocked))


@bug("which deliveries an acknowledgement settles")
def range_off_by_one(take: Any, self: Any, delivery_tag: int, multiple: bool, *limit: int) -> Any:
    """A multiple acknowledgement that ends inside a run leaves out its last message."""
    run = self.oldest
    inside = multiple and run is not None and len(run.tags) > 2 and run.first < delivery_tag < run.end - 1
    return take(self, delivery_tag - inside, multiple, *limit)


@bug("which messages are requeued when a channel ends")
def double_delivery_after_channel_close(given_back: Any, self: Any, record: Any, limit: int) -> Any:
    """When a channel ends, the queue also requeues a message that another channel holds."""
    others = [next(iter(other.pending)) for other in self.state.channels.values() if other.pending]
    return [*given_back(self, record, limit), *others[:1]]


@bug("which deliveries are flagged as redelivered")
def redelivered_flag_lost(deliver: Any, self: Any, *arguments: Any) -> None:
    """A message that is delivered alone is never flagged as redelivered."""
    *others, runs = arguments
    if len(runs) == 1 and len(runs[0][3]) == 1:
        runs = [(runs[0][0], False, *runs[0][2:])]
    deliver(self, *others, runs)


@bug("which deliveries can no longer be settled")
def ack_to_the_next_process(disown: Any, self: Any, queue_id: str) -> None:
    """A channel settles deliveries of a crashed queue at the queue's next process, which numbers from 0 again."""


@bug("the order of messages that are read from the disk")
def recovered_out_of_order(live: Any, *arguments: Any) -> Any:
    """The first two runs of a slice that is read from the disk are exchanged."""
    runs = live(*arguments)
    return runs[1::-1] + runs[2:]


@bug("where requeued messages go")
def requeued_to_the_tail(insert: Any, self: Any, returned: Any) -> None:
    """Requeued messages go to the tail of the queue."""
    for run in returned:
        self.push(run)


@bug("how many messages a consumer can take")
def prefetch_overrun(capacity: Any, self: Any) -> int:
    """A consumer with a prefetch of two or more gets one message more than that."""
    return int(capacity(self)) + (self.prefetch > 1 and self.unacked == self.prefetch)


@bug("when a change of metadata is answered")
def binding_before_its_commit(propose: Any, self: Any, command: Any, answer: Any, *more: Any) -> None:
    """A bind is answered before the binding is on the disk."""
    if type(command) is Bind:
        answer(CommandOutcome(Applied([], [])))
        propose(self, command, lambda outcome: None, *more)
    else:
        propose(self, command, answer, *more)


@bug("which acknowledgements the journal records")
def ack_lost_in_the_journal(ack: Any, self: Any, queue: int, spans: Any) -> int:
    """The acknowledgement of a single message is not written to the journal."""
    if len(spans) == 1 and len(spans[0]) == 1:
        return int(self.position)
    return int(ack(self, queue, spans))


@bug("which confirms are sent")
def confirmed_twice(flush: Any, self: Any) -> Any:
    """Confirms that came out of order are sent again."""
    acks, nacks = flush(self)
    return acks + acks[1:], nacks
