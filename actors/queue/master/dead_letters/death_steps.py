"""`DeathSteps`: how many messages of a queue die in one step, so that no step takes long."""

from __future__ import annotations

from collections.abc import Sequence

from .....store.messages.message import QueuedMessage

#: Messages that die in one step, at first and at most.
FIRST_BATCH, LARGEST_BATCH = 8, 400

#: In the time that one small message takes to die, so many are acknowledged.
AS_ACKNOWLEDGED = 3

#: Bytes of dead messages that take as long as one small message, because the contents are copied and the headers
#: searched.
BYTES_AS_ONE = 2048

#: In the time that one small message takes to die, so many entries (`AtMostOnceEntry`) are made for queues.
SENT_AS_ONE = 4

#: Making one dead letter takes 60 µs, as long as so many entries for queues. It is made once for neighbours with equal
#: properties; messages of real applications all differ.
MADE_AS_SENT = 64

#: Entries after which a step ends, so that 16 dead letters are made in it, in 1 ms.
MOST_SENT = 1024


class DeathSteps:
    """The steps of one queue, and the cost of the present one."""

    __slots__ = ("batch", "sent")

    def __init__(self) -> None:
        #: How many messages the next step should take. It is small while messages are large, because the size of a
        #: message is known only when it is taken, and while each of them needs a dead letter of its own.
        self.batch = FIRST_BATCH
        #: How many entries for queues the present step has made, with what took as long.
        self.sent = 0

    @property
    def is_over(self) -> bool:
        return self.sent >= MOST_SENT

    def cost(self, messages: Sequence[QueuedMessage]) -> int:
        """How many acknowledgements would have taken as long as these deaths. Sets the size of a later step."""
        count = len(messages)
        more = sum([len(message.content) for message in messages]) // BYTES_AS_ONE + self.sent // SENT_AS_ONE
        if more > LARGEST_BATCH:
            self.batch = max(1, min(FIRST_BATCH, LARGEST_BATCH * count // (count + more)))
        else:
            self.batch = min(2 * self.batch, LARGEST_BATCH)
        return AS_ACKNOWLEDGED * count + more
