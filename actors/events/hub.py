"""`EventHub`: passes what happens in the node on to consumers of `amq.rabbitmq.event` and `amq.rabbitmq.log`, and to
commands that watch.

    Metadata, connections, channels, Alarms ──► EventHub ──► queues that are bound to the exchanges
                                   the log ──►          ──► subscriptions of `warren consume_event_stream` and others

An event is a message without a body: its routing key is the event's name, its headers are the fields. The exception is
`flow.sample`, which has a body of JSON and which commands do not get. A line of the log is a message whose body is the
line and whose routing key is the level. All are published at most once, without credit and confirm, as in RabbitMQ: a
queue that is down misses them, and so does one on another node while the link to that node is full (CL-15).

The process exists only in a node whose settings name a virtual host for one of the two, or after a command has watched.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...amqp.fields import Table, TooDeep
from ...amqp.frames import build_content
from ...amqp.properties import Properties, encode_properties
from ...routing.exchanges.topic_trie import TopicTrie
from ...routing.shards import with_shards
from ...routing.table import RoutingTable
from ...runtime.contract import Address, Sender
from ...runtime.coroutines import ReplyHandle
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.messages.message import Origin
from ..context.events import BROKER, EVENT_EXCHANGE, LOG_EXCHANGE, Events
from ..context.starting import ToNewEventHub
from ..contracts.events import Fields
from ..contracts.queue import to_queue
from ..contracts.resources import ToAlarms, to_alarms
from ..metadata.state.commands import Command
from ..metadata.state.effects import Change
from .event_encoding import as_plain, as_table
from .log_feed import LogFeed
from .metadata_events import metadata_events

if TYPE_CHECKING:
    from ...runtime.coroutines import Slices

#: Events that a subscription keeps for a command that does not fetch them; older ones are dropped.
EVENTS_KEPT = 10_000

#: Seconds between two checks for new lines of the log: while somebody receives them, and while nobody does.
LOG_CHECK, IDLE_LOG_CHECK = 0.1, 1.0

#: How many events one turn publishes at most.
SLICE = 100

#: The levels of the log by name, and the one from which on commands get lines.
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(slots=True)
class _Subscription:
    """What one command watches."""

    pattern: TopicTrie
    is_log: bool
    gathered: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))


class EventHub(Process):
    """See the module."""

    contract = ToNewEventHub

    def on_start(
        self,
        sender: Sender,
        routing: RoutingTable,
        events: Events,
        node_name: str,
        alarms: Address[ToAlarms],
        event_vhost: str | None,
        log_vhost: str | None,
        log_level: str,
    ) -> None:
        self.routing = routing
        self.events = events
        self.node_name = node_name
        self.event_vhost, self.log_vhost = event_vhost, log_vhost
        self.log_level = LEVELS[log_level]
        self.active_alarms: frozenset[str] = frozenset()
        self.subscriptions: dict[int, _Subscription] = {}
        self.next_number = 1
        #: How many messages were routed, so that they go to the shards of a sharded queue in turn.
        self.routed = 0
        #: The nodes to which too much waits to be written.
        self.full_links: set[str] = set()
        self.feed = LogFeed()
        self.is_polling = False
        self.send(alarms, to_alarms.register(self.myAddress))
        self._watch_log()

    # -- what happens ---

    def on_event(self, sender: Sender, name: str, fields: Fields) -> None:
        self._publish(name, fields)

    def on_applied(self, sender: Sender, command: Command, changes: Sequence[Change]) -> Slices[None]:
        for number, (name, fields) in enumerate(metadata_events(command, changes, self.node_name), 1):
            self._publish(name, fields)
            if not number % SLICE:
                yield

    def on_vhost_down(self, sender: Sender, name: str) -> None:
        self._publish("vhost.down", {"name": name, "node": self.node_name, "user_who_performed_action": BROKER})

    def on_flow_sample(self, sender: Sender, body: bytes) -> None:
        if self.event_vhost is not None:
            now = self.wall_clock()
            headers = as_table({"node": self.node_name, "timestamp_in_ms": int(now * 1000)})
            properties = Properties(content_type="application/json", headers=headers, timestamp=int(now))
            self._route(self.event_vhost, EVENT_EXCHANGE, "flow.sample", properties, body)

    def on_alarms(self, sender: Sender, sources: tuple[str, ...]) -> None:
        before, self.active_alarms = self.active_alarms, frozenset(sources)
        for source in sorted(self.active_alarms - before):
            self._publish("alarm.set", {"source": source, "node": self.node_name})
        for source in sorted(before - self.active_alarms):
            self._publish("alarm.cleared", {"source": source, "node": self.node_name})

    def _publish(self, name: str, fields: Fields) -> None:
        now = self.wall_clock()
        stamped = {**fields, "timestamp_in_ms": int(now * 1000)}
        for subscription in self.subscriptions.values():
            if not subscription.is_log and subscription.pattern.match((name,)):
                subscription.gathered.append({"event": name, **as_plain(stamped)})
        if self.event_vhost is not None:
            headers = as_table(stamped)
            properties = Properties(headers=headers, delivery_mode=2, timestamp=int(now))
            self._route(self.event_vhost, EVENT_EXCHANGE, name, properties, b"")

    def _route(self, vhost: str, exchange: str, key: str, properties: Properties, body: bytes) -> None:
        keys = (key,)
        rows = self.routing.route(vhost, exchange, keys, properties.headers)
        rows = with_shards(self.routing, vhost, rows, self.routed)
        self.routed += 1
        if rows:
            content = build_content(1, _encoded(properties), body, 0)
            origin = Origin(exchange, keys, persistent=properties.delivery_mode == 2)
            entry = origin, [content], len(body), 0
            for row in rows:
                if row.node not in self.full_links:
                    self.send(row.address, to_queue.publish_at_most_once([entry]))

    def on_link_full(self, sender: Sender, node: str) -> None:
        self.full_links.add(node)

    def on_link_free(self, sender: Sender, node: str) -> None:
        self.full_links.discard(node)

    # -- the log ---

    def _watch_log(self) -> None:
        """Take lines of the log if anybody may get them."""
        levels = [logging.DEBUG] if any(one.is_log for one in self.subscriptions.values()) else []
        if self.log_vhost is not None:
            levels.append(self.log_level)
        if not levels:
            self.feed.shut()
            return
        self.feed.open(min(levels))
        if not self.is_polling:
            self.is_polling = True
            self.start_timer(LOG_CHECK)

    def on_timer(self, payload: None) -> None:
        self.is_polling = False
        if not self.feed.is_open:
            return
        is_bound = self.log_vhost is not None and self.routing.is_topic_bound(self.log_vhost, LOG_EXCHANGE)
        lines = self.feed.taken()
        for line in lines:
            for subscription in self.subscriptions.values():
                if subscription.is_log and subscription.pattern.match((line.level,)):
                    subscription.gathered.append(line._asdict())
            if is_bound and self.log_vhost is not None and LEVELS.get(line.level, logging.ERROR) >= self.log_level:
                headers = Table([("node", "S", self.node_name.encode("utf-8", "surrogateescape"))])
                properties = Properties(content_type="text/plain", headers=headers, timestamp=int(line.time))
                body = f"{line.text}\n".encode("utf-8", "surrogateescape")
                self._route(self.log_vhost, LOG_EXCHANGE, line.level, properties, body)
        self.is_polling = True
        self.start_timer(LOG_CHECK if is_bound or self.subscriptions else IDLE_LOG_CHECK)

    # -- subscriptions ---

    def on_subscribe(self, sender: Sender, pattern: str, is_log: bool) -> int:
        number = self.next_number
        self.next_number += 1
        trie = TopicTrie()
        trie.insert(pattern, ("queue", ""))
        self.subscriptions[number] = _Subscription(trie, is_log)
        self._count()
        self.monitor(sender.address if isinstance(sender, ReplyHandle) else sender, number)
        self._watch_log()
        return number

    def on_take(self, sender: Sender, number: int) -> list[dict[str, object]]:
        gathered = self.subscriptions[number].gathered
        taken = list(gathered)
        gathered.clear()
        return taken

    def on_down(self, number: int, reason: ExitReason) -> None:
        self.subscriptions.pop(number, None)
        self._count()
        self._watch_log()

    def _count(self) -> None:
        self.events.subscribers = sum(not one.is_log for one in self.subscriptions.values())

    def on_exit(self) -> None:
        self.feed.shut()
        self.events.subscribers = 0


def _encoded(properties: Properties) -> bytes:
    """The encoded properties. The arguments of a client may be nested as deeply as a table may be, and one level deeper
    inside the headers of an event; the event then has empty ones.
    """
    try:
        return encode_properties(properties)
    except TooDeep:
        assert properties.headers is not None
        shallow = Table(
            [(name, letter, Table() if letter == "F" else value) for name, letter, value in properties.headers]
        )
        return encode_properties(replace(properties, headers=shallow))
