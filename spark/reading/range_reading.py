"""`RangeReading`: how a task reads a range of a queue from a broker, across lost connections.

If the connection breaks, or the broker restarts or fails over, the task connects again and continues behind the last
whole part that it has passed on. In local mode Spark never repeats a task, so this is the only retry there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...amqp.errors import AmqpError
from ..endpoints import Endpoint
from ..errors import broker_away, data_loss, queue_gone, refused, wrong_block
from ..options import QueueOptions
from ..rows.blocks import BadBlock, decode_block
from ..rows.columns import RowPlan
from ..rows.messages import Messages
from ..wire import Away, BrokerConnection, Refused
from .catalogue import bounds, states
from .offsets import QueueRange, cause_of
from .plain_reading import WentBack, read_plain

log = logging.getLogger("warren.spark")

#: Seconds between two attempts to connect: the first, and the longest.
PAUSES = 0.1, 5.0
#: A part of the text with which the broker refuses a range whose first numbers are gone.
_CANNOT_READ = "cannot be read: the queue "


@dataclass
class RangeReading:
    """Reads the messages of one piece. With `is_strict` a number that is gone raises error E8."""

    options: QueueOptions
    piece: QueueRange
    rows: RowPlan
    is_strict: bool
    name: str
    #: See `QueueState.endpoints`.
    endpoints: Sequence[Endpoint] = ()

    def batches(self) -> Iterator[Any]:
        """Record batches of all messages of the piece, in the order of their numbers."""
        began = time.monotonic()
        rows = 0
        parts = self._checked(self._parts())
        try:
            for batch in self.rows.batches(self.piece.queue, self.piece.id, parts):
                rows += batch.num_rows
                yield batch
        finally:
            parts.close()
        gone = self.piece.next - self.piece.first - rows
        log.log(
            logging.WARNING if gone else logging.INFO,
            "queue '%s', [%d, %d): read %d messages in %.1f s%s",
            self.piece.queue,
            self.piece.first,
            self.piece.next,
            rows,
            time.monotonic() - began,
            f"; {gone:,} were gone" if gone else "",
        )

    def _checked(self, parts: Iterator[Messages]) -> Generator[Messages, None, None]:
        """Pass on the parts, and raise unless they adjoin and, with `is_strict`, have every number."""
        due = self.piece.first
        for part in parts:
            if part.first != due:
                raise self._bad(f"a block begins at {part.first:,} where {due:,} was due")
            if part.next > self.piece.next:
                raise self._bad(f"a block ends at {part.next:,}")
            due = part.next
            if self.is_strict and len(part) < part.next - part.first:
                here = np.zeros(part.next - part.first, bool)
                here[part.numbers - part.first] = True
                missing = np.flatnonzero(~here) + part.first
                raise self._lost(len(missing), int(missing[0]), int(missing[-1]))
            yield part
        if due != self.piece.next:
            raise self._bad(f"the last block ends at {due:,}")

    def _bad(self, what: str) -> Exception:
        return wrong_block(self.piece.queue, self.piece.first, self.piece.next, what)

    def _lost(self, count: int, first: int, last: int) -> Exception:
        state = None
        try:
            connection = self._connect()
            try:
                state = states(connection, [self.piece.queue], None).get(self.piece.queue)
            finally:
                connection.close()
        except (Away, Refused):
            return data_loss(self.piece.queue, count, first, last, "the broker does not answer what took them")
        return data_loss(self.piece.queue, count, first, last, cause_of(state))

    # -- connections ---

    def _connect(self) -> BrokerConnection:
        # Any node has the queue, but from another one than the master's its messages travel twice.
        return BrokerConnection(self.options, self.name, first=self.endpoints[:1], others=self.endpoints[1:])

    def _parts(self) -> Iterator[Messages]:
        at = self.piece.first
        pause, since = PAUSES[0], time.monotonic()
        while at < self.piece.next:
            connection = None
            is_done = False
            try:
                connection = self._connect()
                connection.require_warren()
                for part in self._read(connection, at):
                    at = part.next
                    pause, since = PAUSES[0], time.monotonic()
                    yield part
                    since = time.monotonic()
                is_done = True
            except Away as away:
                waited = time.monotonic() - since
                if waited > self.options.reconnect_timeout:
                    read_to = at - 1 if at > self.piece.first else None
                    raise broker_away(self.piece.queue, str(away), self.options.reconnect_timeout, read_to) from away
                log.info("queue '%s': %s; trying again", self.piece.queue, away)
                time.sleep(pause)
                pause = min(2 * pause, PAUSES[1])
            except Refused as refusal:
                # The login was refused: the virtual host was deleted, or the user or the permission withdrawn.
                raise refused(self.piece.queue, str(refusal)) from refusal
            except AmqpError as error:
                raise self._bad(f"the broker does not speak AMQP: {error.text}") from error
            finally:
                if connection is not None and is_done:
                    connection.close()
                elif connection is not None:
                    # The rest of the range is not needed, as when a query has a limit: do not wait for it.
                    connection.abort()

    def _read(self, connection: BrokerConnection, at: int) -> Iterator[Messages]:
        """The parts from `at` on, until the range ends or the broker cancels the reader, as when the queue crashes."""
        mode = self.options.read_mode
        if mode == "blocks" or mode == "auto" and "read-blocks" in connection.features:
            yield from self._read_blocks(connection, at)
            return
        before = -1
        arguments = self._with_id(connection)
        if "read-blocks" in connection.features:
            # Such a broker also passes over numbers that are gone. An earlier one refuses the range.
            arguments["x-warren-lenient"] = True
        while at < self.piece.next:
            try:
                for part in read_plain(connection, self.piece.queue, at, self.piece.next, arguments):
                    at = part.next
                    yield part
            except WentBack as back:
                if self.is_strict:
                    raise queue_gone(
                        self.piece.queue, f"its next number is {back.next:,}, and was {self.piece.next:,} or more"
                    ) from None
                yield self._nothing(at, self.piece.next)
                return
            except Refused as refusal:
                at = yield from self._after_refusal(connection, refusal, at)
                continue
            if at < self.piece.next and before == at:
                # Cancelled twice at the same number, so the queue has no message of the rest of the range.
                yield self._nothing(at, self.piece.next)
                return
            before = at

    def _read_blocks(self, connection: BrokerConnection, at: int) -> Iterator[Messages]:
        headers_only = not self.rows.needs_bodies
        arguments: dict[str, Any] = {
            "x-warren-read-from": at,
            "x-warren-read-to": self.piece.next - 1,
            "x-warren-blocks": self.options.block_size,
            "x-warren-lenient": True,
            **self._with_id(connection),
        }
        if headers_only:
            arguments["x-warren-headers-only"] = True
        try:
            for delivery in connection.consume(self.piece.queue, arguments, wants_bodies=True):
                try:
                    yield decode_block(delivery.content, headers_only)
                except BadBlock as bad:
                    raise self._bad(str(bad)) from None
        except Refused as refusal:
            yield from self._after_refusal(connection, refusal, at)

    def _with_id(self, connection: BrokerConnection) -> dict[str, Any]:
        """The argument with which the broker refuses the reader of a queue that was declared again, if it has that."""
        if not self.piece.id or "queue-id" not in connection.features:
            return {}
        return {"x-warren-queue-id": self.piece.id}

    def _after_refusal(self, connection: BrokerConnection, refusal: Refused, at: int) -> Generator[Messages, None, int]:
        """Handle an error with which the broker closed the channel: raise, or yield a part without messages for the
        numbers that are gone, and return the number at which reading continues.
        """
        queue, stop = self.piece.queue, self.piece.next
        if refusal.has_idle_queue:
            raise Away(f"{connection.where} answers: {refusal.text}") from refusal
        if refusal.code == 406:
            connection.open_channel()
        if refusal.has_no_queue or refusal.code == 406 and self._is_other_queue(connection):
            if self.is_strict:
                what = "it was deleted" if refusal.has_no_queue else "it was deleted and declared again"
                raise queue_gone(queue, f"{what} before numbers {at:,} to {stop - 1:,} were read") from refusal
            yield self._nothing(at, stop)
            return stop
        if refusal.code == 406 and _CANNOT_READ in refusal.text:
            first, after = bounds(connection, queue)
            first = min(max(first, at + 1), stop)
            if self.is_strict:
                raise self._lost(first - at, at, first - 1) from refusal
            yield self._nothing(at, first)
            return first
        raise refused(queue, str(refusal)) from refusal

    def _is_other_queue(self, connection: BrokerConnection) -> bool:
        """Whether the queue was declared again. A refusal says so, but the broker cuts its text behind a long name."""
        if not self._with_id(connection):
            return False
        now = states(connection, [self.piece.queue], None).get(self.piece.queue)
        return now is not None and now.id != self.piece.id

    def _nothing(self, first: int, stop: int) -> Messages:
        empty = np.zeros(0, np.int64)
        return Messages(first, stop, empty, b"", np.zeros(1, np.int64), [])


def task_name() -> str:
    """The name of a task's connection in the broker's listings."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "spark"
    query = context.getLocalProperty("sql.streaming.queryId") or "batch"
    batch = context.getLocalProperty("streaming.sql.batchId") or str(context.stageId())
    return f"spark/{query}/{batch}/{context.partitionId()}"
