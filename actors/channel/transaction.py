"""`Transaction`: the transactions of one channel (AB-115 to AB-117).

`Publisher` and `Deliveries` hold back what the client publishes and settles. tx.commit publishes and settles it, and is
answered when every publish has an outcome. Until then the client may send nothing but channel.close (AB-56).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...amqp import methods
from ...amqp.channel_state import COMMITTING, check_method
from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...amqp.method import Method
from ...amqp.parser.events import ACKS, METHOD, OVERSIZED, RUN, Event
from .client_output import ClientOutput
from .consuming.deliveries import Deliveries
from .publishing.publisher import Publisher

#: The error text of a commit that publishes to a queue with too few replicas in sync.
TOO_FEW_IN_SYNC = (
    "a queue of this transaction has fewer replicas in sync than it needs (ha-min-in-sync, or a majority), so "
    "tx.commit cannot promise that its messages are kept"
)

#: The kinds of entries of the backlog that the client has sent.
_OF_CLIENT = frozenset({RUN, ACKS, METHOD, OVERSIZED})


class Transaction:
    """Begins, commits and rolls back; `backlog` has the events that the client has sent meanwhile."""

    __slots__ = (
        "_backlog",
        "_channel_error",
        "_connection_error",
        "_deliveries",
        "_has_met_short_queue",
        "_has_refused_publish",
        "_output",
        "_publisher",
        "is_committing",
        "is_sending",
    )

    def __init__(
        self,
        publisher: Publisher,
        deliveries: Deliveries,
        output: ClientOutput,
        backlog: deque[Event],
        channel_error: Callable[[AmqpError], None],
        connection_error: Callable[[AmqpError], None],
    ) -> None:
        self._publisher = publisher
        self._deliveries = deliveries
        self._output = output
        self._backlog = backlog
        self._channel_error = channel_error
        self._connection_error = connection_error
        #: Whether tx.commit has more to publish or to settle.
        self.is_sending = False
        #: Whether tx.commit waits for confirms, and whether a queue refused one of its publishes.
        self.is_committing = False
        self._has_refused_publish = False
        #: Whether a queue refused one of them because too few of its replicas are in sync.
        self._has_met_short_queue = False

    def select(self, method: methods.TxSelect) -> None:
        self._publisher.begin_transaction()
        self._deliveries.begin_transaction()
        self._output.put_method(methods.TxSelectOk())

    async def commit(self, method: methods.TxCommit) -> None:
        """Publish and settle what was held back; answer if all publishes have an outcome already."""
        self._check_selected()
        self.is_sending = True
        await self._publisher.commit()
        await self._deliveries.commit()
        self.is_sending = False
        if len(self._publisher.confirms):
            self.is_committing = True
            self.check_backlog()
            return
        self._take_confirms()  # the confirms of publishes that reached no queue, or a queue that has ended
        self._answer_commit()

    async def roll_back(self, method: methods.TxRollback) -> None:
        self._check_selected()
        await self._publisher.roll_back()
        await self._deliveries.roll_back()
        self._output.put_method(methods.TxRollbackOk())

    def _check_selected(self) -> None:
        if self._publisher.held_back is None:
            raise AmqpError(406, "channel is not transactional")

    def check_backlog(self) -> None:
        """While tx.commit waits, any method but channel.close ends the connection (AB-56)."""
        for event in self._backlog:
            if event[0] not in _OF_CLIENT:
                continue
            try:
                check_method(COMMITTING, event[2] if event[0] == METHOD else _stand_in(event))
            except AmqpError as error:
                self._backlog.clear()
                self._connection_error(error)
                return

    def confirms_arrived(self) -> bool:
        """Take confirms and refusals that have come for a commit, and answer it if none is missing. Return whether it
        was answered.
        """
        self._take_confirms()
        if not self.is_committing or len(self._publisher.confirms):
            return False
        self.is_committing = False
        self._answer_commit()
        return True

    def meets_short_queue(self) -> None:
        """Note that a queue refused a publish because too few of its replicas are in sync (CL-123)."""
        self._has_met_short_queue = self._publisher.held_back is not None

    def _take_confirms(self) -> None:
        _, nacks = self._publisher.confirms.flush()
        self._has_refused_publish |= bool(nacks)

    def _answer_commit(self) -> None:
        has_refused_publish, self._has_refused_publish = self._has_refused_publish, False
        has_met_short_queue, self._has_met_short_queue = self._has_met_short_queue, False
        if has_met_short_queue:
            self._connection_error(
                AmqpError(INTERNAL_ERROR, TOO_FEW_IN_SYNC, methods.TxCommit.CLASS_ID, methods.TxCommit.METHOD_ID)
            )
        elif has_refused_publish:
            self._channel_error(
                AmqpError(406, "partial tx completion", methods.TxCommit.CLASS_ID, methods.TxCommit.METHOD_ID)
            )
        else:
            self._output.put_method(methods.TxCommitOk())


def _stand_in(event: Event) -> Method:
    """A method of the class that the batch `event` holds, for `check_method`, which needs only its class."""
    return methods.BasicAck() if event[0] == ACKS else methods.BasicPublish()
