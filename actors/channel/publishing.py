"""Publishing on one channel: routing, mandatory, confirms, transactions (AB section 10).

A publisher repeats itself, so everything that follows from the method frame and the properties is worked out once, as a `Publication`, and kept by
their raw octets until the routing table changes. A publish that is like the one before costs a dictionary look-up for its whole run.

What goes to queues is gathered by queue and sent once a wake-up, a credit for each message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.decoding import decode_method
from ...amqp.errors import AmqpError
from ...amqp.frames import fit, method_frame, rechannel_run, with_properties
from ...amqp.properties import Properties, decode_properties, encode_properties
from ...routing.arguments import MAX_EXPIRY
from ...routing.phrases import no_exchange
from ...routing.rows import QueueRow
from ...routing.sender_selected_keys import sender_selected_keys
from ...store.messages.message import Origin, body_size
from ...store.messages.message_ids import SharedIds
from ...store.queue.placement import EMBED_BELOW
from .confirms import Confirms
from .direct_reply import REPLY_TO, REPLY_TO_PREFIX, parse_reply_key
from .tracing import trace_publish

if TYPE_CHECKING:
    from .process import Channel

PUBLICATIONS_KEPT = 512
CONTENT_CHANNEL = 1  # contents travel and rest on this channel number; only the ends renumber


@dataclass(slots=True)
class Publication:
    """What one (method frame, properties) pair means."""

    exchange: str
    routing_key: str
    mandatory: bool
    origin: Origin
    rows: tuple[QueueRow, ...]
    props: bytes | None  # replaces the publisher's properties; None: they stay
    reply_keys: tuple[str, ...]  # direct reply-to targets among the routing keys (AB-142)


class Publisher:
    """The publishing half of a channel."""

    __slots__ = (
        "_ids",
        "_publications",
        "_version",
        "channel",
        "committing",
        "confirming",
        "confirms",
        "max_message_size",
        "numbering",
        "outgoing",
        "transaction",
    )

    def __init__(self, channel: "Channel") -> None:
        self.channel = channel
        self.confirms = Confirms()
        self.confirming = False
        self.numbering = False  # publishes get numbers: confirm mode, or a transaction
        self.transaction: Transaction | None = None
        self.committing = False
        self.outgoing: dict[str, tuple[QueueRow, list[tuple]]] = {}
        # The limit is read when the channel opens (AB-105).
        self.max_message_size = channel.settings.max_message_size
        self._ids = SharedIds(channel.random_bytes)  # of large messages that go to several queues: they are stored once
        self._publications: dict[tuple[bytes, bytes], Publication] = {}
        self._version = -1

    # -- a run ----------------------------------------------------------------------------------------------------------------------------------

    def publish(self, method_payload: bytes, props: bytes, contents: Sequence[bytes], body_bytes: int) -> None:
        channel = self.channel
        if body_bytes > self.max_message_size:
            contents = self._within_limit(contents, method_payload, props)
        if channel.routing.version != self._version:
            self._publications.clear()
            self._version = channel.routing.version
        publication = self._publications.get((method_payload, props))
        if publication is None:
            publication = self._resolve(method_payload, props)
        if channel.number != CONTENT_CHANNEL:
            contents = rechannel_run(contents, CONTENT_CHANNEL)
        if publication.props is not None:
            contents = [with_properties(content, publication.props) for content in contents]
        if channel.routing.traced:
            trace_publish(channel, publication, contents, body_bytes)
        if self.transaction is not None:
            self.transaction.publishes.append((publication, contents, body_bytes))
            return
        self._send(publication, contents, body_bytes, self.confirming)

    def _within_limit(self, contents: Sequence[bytes], method_payload: bytes, props: bytes) -> Sequence[bytes]:
        """The contents if each is small enough; else those in front of the first that is not are published, and it raises."""
        for at, content in enumerate(contents):
            size = body_size(content)
            if size > self.max_message_size:
                if at:
                    self.publish(method_payload, props, contents[:at], sum(map(body_size, contents[:at])))
                self.refuse_oversized(size)
        return contents

    def refuse_oversized(self, size: int) -> None:
        raise AmqpError(406, f"message size {size} is larger than configured max size {self.max_message_size}")

    def _send(self, publication: Publication, contents: Sequence[bytes], body_bytes: int, confirming: bool) -> None:
        rows = publication.rows
        for key in publication.reply_keys:
            self._send_reply(key, publication, contents)
        first = 0
        if confirming:
            first = self.confirms.publish(len(contents), [row.queue_id for row in rows])
        if rows:
            shared = self._ids.take(contents, EMBED_BELOW) if len(rows) > 1 else 0
            outgoing = self.outgoing
            for row in rows:
                batch = outgoing.get(row.queue_id)
                if batch is None:
                    if row.queue_id not in self.channel.queues:
                        self.channel.know(row)
                    batch = outgoing[row.queue_id] = (row, [])
                batch[1].append((publication.origin, contents, body_bytes, first, shared))
            return
        if publication.mandatory:
            self._return(publication, contents)

    def _return(self, publication: Publication, contents: Sequence[bytes]) -> None:
        channel = self.channel
        head = method_frame(
            channel.number, methods.BasicReturn(312, "NO_ROUTE", publication.exchange, publication.routing_key)
        )
        for content in contents:
            channel.out.append(head)
            channel.out.append(fit(content, channel.number, channel.frame_max))

    def _send_reply(self, reply_key: str, publication: Publication, contents: Sequence[bytes]) -> None:
        channel_id, key = parse_reply_key(reply_key)
        address = self.channel.routing.reply_channel(channel_id)
        if address is not None:
            self.channel.send(address, ("reply_to", key, publication.exchange, publication.routing_key, list(contents)))

    def flush(self) -> None:
        """Sends each queue what was gathered for it."""
        channel = self.channel
        outgoing, self.outgoing = self.outgoing, {}
        spend = channel.credit.spend
        for queue_id, (row, entries) in outgoing.items():
            row = channel.queues.get(
                queue_id, row
            )  # what a transaction held back was routed to a process that may have been restarted since
            spend(queue_id, sum([len(entry[1]) for entry in entries]))
            channel.send(row.address, ("publish", channel.channel_id, entries))

    # -- what a publish means -------------------------------------------------------------------------------------------------------------------

    def _resolve(self, method_payload: bytes, props: bytes) -> Publication:
        """The checks of AB-105 in their order."""
        channel = self.channel
        method: Any = decode_method(method_payload)
        if method.immediate:
            raise AmqpError(540, "immediate=true")
        vhost = channel.vhost
        exchange = channel.routing.exchange(vhost, method.exchange)
        if exchange is None:
            raise no_exchange(vhost, method.exchange)
        if exchange.internal:
            raise AmqpError(403, f"cannot publish to internal exchange '{method.exchange}' in vhost '{vhost}'")
        properties = decode_properties(props)
        changed = self._check(properties)
        keys: tuple[str, ...] = (method.routing_key,)
        if properties.headers is not None:
            keys += sender_selected_keys(properties.headers)
            if properties.headers.get("BCC") is not None:
                # No consumer may see the keys in BCC (AB-75).
                properties = replace(properties, headers=properties.headers.without("BCC"))
                changed = True
        if properties.delivery_mode not in (None, 1, 2):
            raise AmqpError(406, f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}")
        reply_keys = () if method.exchange else tuple([key for key in keys if key.startswith(REPLY_TO_PREFIX)])
        rows = channel.routing.route(vhost, method.exchange, keys, properties.headers)
        new_props = encode_properties(properties) if changed else None
        origin = Origin(
            method.exchange,
            keys,
            new_props if new_props is not None else props,
            properties.delivery_mode == 2,
            properties.priority or 0,
            int(properties.expiration) if properties.expiration is not None else None,
        )
        publication = Publication(
            method.exchange, method.routing_key, method.mandatory, origin, rows, new_props, reply_keys
        )
        if len(self._publications) >= PUBLICATIONS_KEPT:
            self._publications.clear()  # properties that never repeat must not gather here
        self._publications[method_payload, props] = publication
        return publication

    def _check(self, properties: Properties) -> bool:
        """Checks reply-to, user-id and expiration; True if a property was replaced."""
        channel = self.channel
        changed = False
        if properties.reply_to == REPLY_TO:
            properties.reply_to = channel.subscriptions.reply_name()
            changed = True
        if properties.user_id is not None and properties.user_id != channel.user:
            raise AmqpError(
                406, f"user_id property set to '{properties.user_id}' but authenticated user was '{channel.user}'"
            )
        if properties.expiration is not None:
            _check_expiration(properties.expiration)
        return changed

    # -- confirms -------------------------------------------------------------------------------------------------------------------------------

    def confirm_select(self, method: methods.ConfirmSelect) -> None:
        if self.transaction is not None:
            raise AmqpError(406, "cannot switch from tx to confirm mode")
        self.confirming = self.numbering = True
        if not method.nowait:
            self.channel.reply_with(methods.ConfirmSelectOk())

    def flush_confirms(self) -> None:
        """Tells the client, or the waiting commit, what was settled since the last time."""
        channel = self.channel
        acks, nacks = self.confirms.flush()
        if self.committing:
            transaction = self.transaction
            assert transaction is not None
            transaction.refused |= bool(nacks)
            if not len(self.confirms):
                self._committed(transaction)
            return
        number = channel.number
        for tag, multiple in acks:
            channel.out.append(
                b"\x01%b\x00\x00\x00\x0d\x00\x3c\x00\x50%b%b\xce"
                % (number.to_bytes(2, "big"), tag.to_bytes(8, "big"), b"\1" if multiple else b"\0")
            )
        for tag, multiple in nacks:
            channel.out.append(method_frame(number, methods.BasicNack(tag, multiple, False)))

    def queue_gone(self, queue_id: str, crashed: bool) -> None:
        self.outgoing.pop(queue_id, None)
        self.confirms.queue_gone(queue_id, crashed)

    # -- transactions ---------------------------------------------------------------------------------------------------------------------------

    def tx_select(self, method: methods.TxSelect) -> None:
        if self.confirming:
            raise AmqpError(406, "cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = Transaction()
            self.numbering = True
        self.channel.reply_with(methods.TxSelectOk())

    def _need_transaction(self) -> "Transaction":
        if self.transaction is None:
            raise AmqpError(406, "channel is not transactional")
        return self.transaction

    def tx_commit(self, method: methods.TxCommit) -> Awaitable[None] | None:
        """Delivers, settles, and answers when all messages are confirmed (AB-116)."""
        transaction = self._need_transaction()
        for publication, contents, body_bytes in transaction.publishes:
            self._send(publication, contents, body_bytes, True)
        settlements = transaction.settlements
        transaction.publishes, transaction.settlements = (
            [],
            [],
        )  # what is settled counts no more towards the channel's limit
        for outcome, runs in settlements:
            self.channel.subscriptions.settle_runs(outcome, runs)
        if not len(self.confirms):
            self.confirms.flush()  # nothing was routed anywhere
            self.channel.reply_with(methods.TxCommitOk())
            return None
        self.committing = True
        self.channel.busy = True
        return None

    def _committed(self, transaction: "Transaction") -> None:
        self.committing = False
        refused, transaction.refused = transaction.refused, False
        if refused:
            self.channel.channel_error(
                AmqpError(406, "partial tx completion", methods.TxCommit.CLASS_ID, methods.TxCommit.METHOD_ID)
            )
            return
        self.channel.reply_with(methods.TxCommitOk())
        self.channel.resume()

    def tx_rollback(self, method: methods.TxRollback) -> None:
        transaction = self._need_transaction()
        transaction.publishes.clear()
        for _, runs in transaction.settlements:
            self.channel.subscriptions.unacked.put_back(runs)
        transaction.settlements.clear()
        self.channel.reply_with(methods.TxRollbackOk())


def _check_expiration(text: str) -> None:
    """A decimal number of milliseconds, at most ten years (AB-98)."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    length = next((at for at, character in enumerate(digits) if character not in "0123456789"), len(digits))
    if not length:
        reason = "no_integer"
    elif length < len(digits):
        reason = f'{{leftover_string,"{digits[length:]}"}}'
    elif int(text) < 0:
        reason = f"{{value_negative,{int(text)}}}"
    elif int(text) > MAX_EXPIRY:
        reason = f"{{value_too_large,{int(text)}}}"
    else:
        return
    raise AmqpError(406, f"invalid expiration '{text}': {reason}")


class Transaction:
    """What a channel in tx mode holds back until commit (AB-115)."""

    __slots__ = ("publishes", "settlements", "refused")

    def __init__(self) -> None:
        self.publishes: list[tuple[Publication, Sequence[bytes], int]] = []
        self.settlements: list[tuple[str, Any]] = []
        self.refused = False
