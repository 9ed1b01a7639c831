"""`Publications`: decides for each kind of publish of a channel where its messages go and how they are kept (AB-105).

A publisher repeats itself, so everything that follows from the method frame and the fate of a message (see
`amqp/parser/skimmer.py`) is decided once, as a `Publication`, and kept until the routing table changes. What does not
follow from the routing table is kept longer: a `Fate`, and the `Origin`. While other clients declare and delete queues
all the time, each message would otherwise get an origin of its own, and tables by origin, such as the heads of
deliveries, would fill with origins that never recur.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from ....amqp.decoding import publish_fields
from ....amqp.errors import AmqpError
from ....amqp.fields import Table
from ....amqp.frames import content_properties
from ....amqp.parser.skimmer import has_headers, is_special
from ....amqp.properties import Properties, decode_properties, decode_some, encode_properties
from ....routing.arguments.group_arguments import check_not_group
from ....routing.arguments.queue_arguments import MAX_EXPIRY
from ....routing.phrases import no_exchange
from ....routing.rows import QueueRow
from ....routing.sender_selected_keys import SENDER_SELECTED, sender_selected_keys
from ....routing.shards import check_not_shard
from ....routing.wide_route import WideRoute
from ....seams import seam
from ....store.messages.message import Origin, Origins, body_size, slice_of
from ...context.node_context import NodeContext
from ...contracts.channel import ChannelConfig
from ..direct_reply import REPLY_TO, REPLY_TO_PREFIX, ReplyConsumer
from .spreading import Spread, Spreading

#: The most publications that a channel keeps, and the most origins: without a limit they would pile up for a client
#: whose routing keys or properties never repeat.
PUBLICATIONS_KEPT = 512

#: The most fates that a channel keeps, and the most origins with expirations: without a limit these origins would pile
#: up for a client that gives each message an expiration of its own.
FATES_KEPT = 512

#: Expirations with fewer digits than this are within `MAX_EXPIRY`; others are checked in full.
_LONG_EXPIRATION = len(str(MAX_EXPIRY))


class Fate(NamedTuple):
    """What follows from the properties of a message, for all messages with its key (see `amqp/parser/skimmer.py`)."""

    is_persistent: bool
    priority: int
    #: In ms, if the key is special. Under another key each message has an expiration of its own.
    expiration: int | None
    #: The routing keys in its headers CC and BCC.
    selected_keys: tuple[str, ...]
    #: Its headers as they are queued, if the key is special: then no other message shares them. Of headers with more
    #: bytes than `ALL_HEADERS`, it has only those that may decide where the message goes.
    headers: Table | None
    #: The properties that replace the publisher's; None: they stay as they are.
    props: bytes | None


@dataclass(slots=True)
class Publication:
    """The queues to which messages with one method frame and one fate are routed, and their origin and properties."""

    exchange: str
    routing_key: str
    is_mandatory: bool
    origin: Origin
    rows: tuple[QueueRow, ...]
    #: The properties that replace the publisher's; None: they stay as they are.
    props: bytes | None
    #: Names of direct reply-to consumers among the routing keys (AB-142).
    reply_keys: tuple[str, ...]
    #: A headers exchange may route these messages, so each must be routed by its own headers.
    is_by_headers: bool = False
    #: Publications of one group have the same queues, and may share a run. 0: each message needs a run of its own. It
    #: is 0 in a transaction, because the queues may be gone at the commit, which then returns each message with its own
    #: routing key.
    group: int = 0
    #: The version of the routing table for which `rows` were found.
    version: int = 0
    #: Set if some of the queues are sharded: each message goes to one shard of each of these.
    spread: Spread | None = None
    #: The queues if none of them can be reached, because their homes are down. Then `rows` is empty.
    down: tuple[QueueRow, ...] = ()
    #: Set while the queues are so many that they are still being looked up. Then `rows` is empty.
    wide: WideRoute | None = None


class Publications:
    """The publications of a channel. `known` has them by method frame and key of the fate.

    They were decided for the `version` of the routing table.
    """

    __slots__ = (
        "_config",
        "_context",
        "_expiring",
        "_fates",
        "_group_numbers",
        "_groups",
        "_last_found",
        "_last_group",
        "_origins",
        "_replies",
        "_spreading",
        "known",
        "version",
    )

    def __init__(
        self, context: NodeContext, config: ChannelConfig, replies: ReplyConsumer, spreading: Spreading
    ) -> None:
        self._context = context
        self._config = config
        self._replies = replies
        self._spreading = spreading
        self.known: dict[tuple[bytes, bytes], Publication] = {}
        self.version = -1
        #: By the queue ids of remembered publications: the number of their group.
        self._groups: dict[tuple[str, ...], int] = {}
        #: The queues of the last publication with a group, and the number of the group. They are compared by identity
        #: first, because comparing the ids of 20,000 queues takes long.
        self._last_found: tuple[QueueRow, ...] | WideRoute = ()
        self._last_group = 0
        #: Numbers for groups. No number is used twice, because one run may have publications from before and after
        #: `_groups` was cleared.
        self._group_numbers = count(1)
        #: The remembered fates, by plain key.
        self._fates: dict[bytes, Fate] = {}
        #: The remembered origins, by method frame and plain key.
        self._origins: dict[tuple[bytes, bytes], Origin] = {}
        #: The remembered origins with expirations, by the origin without one and the text of the expiration.
        self._expiring: dict[tuple[Origin, bytes], Origin] = {}

    def forget(self) -> None:
        """Decide anew what publishes mean: the routing table has changed, or a transaction begins."""
        self.known.clear()
        self._groups.clear()
        self._last_found = ()
        self.version = self._context.routing.version

    def decide(self, method_payload: bytes, key: bytes, content: bytes, is_held_back: bool) -> Publication:
        """Make the checks of AB-105 in their order, route, and remember the result for messages like `content`.

        `is_held_back`: a transaction holds the message back until its commit.
        """
        exchange_name, routing_key, is_mandatory, is_immediate = publish_fields(method_payload)
        if is_immediate:
            raise AmqpError(540, "immediate=true")
        routing, vhost, access = self._context.routing, self._config.vhost, self._config.access
        access.check("write", "exchange", exchange_name)
        exchange = routing.exchange(vhost, exchange_name)
        if exchange is None:
            raise no_exchange(vhost, exchange_name)
        if exchange.internal:
            raise AmqpError(403, f"cannot publish to internal exchange '{exchange_name}' in vhost '{vhost}'")
        if exchange.type == "topic":
            access.check_topic("write", exchange_name, routing_key)
        fate = self._fates.get(key)
        if fate is None:
            fate = self._find_fate(key, content, exchange_name)
        keys = (routing_key, *fate.selected_keys)
        reply_keys = () if exchange_name else tuple([key for key in keys if key.startswith(REPLY_TO_PREFIX)])
        is_by_headers = has_headers(key) and routing.depends_on_headers(vhost, exchange_name)
        found = () if is_by_headers else routing.begin_route(vhost, exchange_name, keys, fate.headers)
        if not exchange_name and routing.has_unbound(vhost):
            row = routing.queue(vhost, routing_key)
            check_not_shard(row)
            check_not_group(row)
        origin = self._origins.get((method_payload, key)) or self._new_origin(
            method_payload, key, Origin(exchange_name, keys, fate.is_persistent, fate.priority, fate.expiration)
        )
        publication = Publication(
            exchange_name,
            routing_key,
            is_mandatory,
            origin,
            (),
            fate.props,
            reply_keys,
            is_by_headers,
            version=routing.version,
        )
        if len(self.known) >= PUBLICATIONS_KEPT:
            self.known.clear()
            self._groups.clear()
        self._find_queues(publication, found)
        # A run is returned with one routing key for all its messages. So mandatory messages that may turn out to be
        # unroutable, because their queues are still being looked up, get runs of their own.
        has_queues = publication.rows or publication.wide is not None and not is_mandatory
        if has_queues and not reply_keys and fate.props is None and not is_held_back:
            publication.group = self._group_of(found)
        self.known[method_payload, key] = publication
        return publication

    def _new_origin(self, method_payload: bytes, key: bytes, origin: Origin) -> Origin:
        if not is_special(key):
            if len(self._origins) >= PUBLICATIONS_KEPT:
                self._origins.clear()
            self._origins[method_payload, key] = origin
        return origin

    def expiring(self, origin: Origin, expiration: bytes | None) -> Origin:
        """The origin of a message with this expiration. Raises AmqpError if it is not a valid one."""
        if expiration is None:
            return origin
        found = self._expiring.get((origin, expiration))
        if found is None:
            if len(expiration) >= _LONG_EXPIRATION or not expiration.isdigit():
                _check_expiration(expiration.decode("utf-8", "surrogateescape"))
            if len(self._expiring) >= FATES_KEPT:
                self._expiring.clear()
            found = self._expiring[origin, expiration] = origin._replace(expiration=int(expiration))
        return found

    def look_up(self, publication: Publication, most: int) -> int:
        """Look up at most `most` more queues of the publication; return how many. `wide` is None once the last one is
        found.
        """
        assert publication.wide is not None
        looked_up = publication.wide.look_up(most)
        self._find_queues(publication, publication.wide)
        return looked_up

    def _find_queues(self, publication: Publication, found: tuple[QueueRow, ...] | WideRoute) -> None:
        """Give the publication the queues that the routing table has found."""
        if isinstance(found, WideRoute):
            if found.rows is None:
                publication.wide = found
                return
            publication.wide, found = None, found.rows
        publication.rows, publication.down = _reachable(found)
        publication.spread = self._spreading.spread(self._config.vhost, publication.rows)

    def with_queues_of_now(self, publication: Publication) -> Publication:
        """A copy of the publication, with its queues looked up again by their names for the commit of a transaction.

        The bindings at the time of the publish decide (AB-115), but a queue may have been deleted since, or another one
        may have its name. The default exchange has no bindings: it routes to the queue whose name is the routing key.
        """
        if publication.wide is not None:
            return publication  # each of its queues is looked up as it is when the run is sent to it
        routing, vhost = self._context.routing, self._config.vhost
        again = replace(publication, rows=(), down=(), spread=None, version=routing.version)
        if publication.exchange:
            names = [row.name for row in publication.rows or publication.down]
            self._find_queues(again, routing.begin_rows(vhost, names))
        else:
            self._find_queues(again, routing.begin_route(vhost, "", publication.origin.routing_keys))
        return again

    @seam("which publications go to the same queues")
    def _group_of(self, found: tuple[QueueRow, ...] | WideRoute) -> int:
        """The number of the group of all publications whose messages go to exactly these queues."""
        if found is self._last_found:
            return self._last_group
        if isinstance(found, WideRoute):
            group = next(self._group_numbers)
        else:
            destinations = tuple([row.queue_id for row in found])
            known = self._groups.get(destinations)
            group = self._groups[destinations] = next(self._group_numbers) if known is None else known
        self._last_found, self._last_group = found, group
        return group

    def _find_fate(self, key: bytes, content: bytes, exchange: str) -> Fate:
        """Check the properties of a message (AB-105); remember what follows from them if others may have that key."""
        props = content_properties(content)
        if is_special(key):
            names = self._context.routing.header_names(self._config.vhost, exchange)
            properties, more_headers = decode_some(props, None if names is None else names | SENDER_SELECTED)
        else:
            # The headers of a message with a plain key are well-formed, and do not decide where it goes.
            properties, more_headers = decode_properties(props, with_headers=False), b""
        is_changed = self._check(properties)
        selected_keys: tuple[str, ...] = ()
        if properties.headers is not None:
            selected_keys = sender_selected_keys(properties.headers)
            if properties.headers.get("BCC") is not None:
                # No consumer may see the keys in BCC (AB-75).
                properties = replace(properties, headers=properties.headers.without("BCC"))
                is_changed = True
        if properties.delivery_mode not in (None, 1, 2):
            raise AmqpError(406, f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}")
        fate = Fate(
            properties.delivery_mode == 2,
            properties.priority or 0,
            int(properties.expiration) if is_special(key) and properties.expiration is not None else None,
            selected_keys,
            properties.headers if is_special(key) else None,
            encode_properties(properties, more_headers) if is_changed else None,
        )
        if not is_special(key):
            if len(self._fates) >= FATES_KEPT:
                self._fates.clear()
            self._fates[key] = fate
        return fate

    def _check(self, properties: Properties) -> bool:
        """Check reply-to, user-id and expiration; True if the reply-to was replaced (AB-141)."""
        is_changed = False
        if properties.reply_to == REPLY_TO:
            properties.reply_to = self._replies.name()
            is_changed = True
        user = self._config.user
        is_other = properties.user_id is not None and properties.user_id != user
        if is_other and not self._config.access.may_impersonate():
            raise AmqpError(406, f"user_id property set to '{properties.user_id}' but authenticated user was '{user}'")
        if properties.expiration is not None:
            _check_expiration(properties.expiration)
        return is_changed


def parts_of(
    publication: Publication, origins: Origins, contents: Sequence[bytes], most: int
) -> Iterator[tuple[Publication, Origins, Sequence[bytes], int]]:
    """A run in parts of `most` messages, each with the sum of its body sizes."""
    for start in range(0, len(contents), most):
        part = contents[start : start + most]
        yield publication, slice_of(origins, slice(start, start + most)), part, sum(map(body_size, part))


def _reachable(rows: tuple[QueueRow, ...]) -> tuple[tuple[QueueRow, ...], tuple[QueueRow, ...]]:
    """The queues that a message goes to, and those that make it unroutable because their homes are all down.

    If at least one home is up, the message is sent to all the queues. The channel monitors them, and the monitor of a
    queue whose home is down reports its end, which refuses the message.
    """
    is_down = bool(rows) and all(row.state == "down" for row in rows)  # cheap: `all` stops at the first one that runs
    return ((), rows) if is_down else (rows, ())


def _check_expiration(text: str) -> None:
    """Raise AmqpError 406 unless `text` is a decimal number of milliseconds, at most ten years (AB-98)."""
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
