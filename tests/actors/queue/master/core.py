"""`Core`: the master of a queue without a process. A test calls its methods instead of sending messages, and reads its
effects after a turn.

Its clock stands still until a test moves it. Channels are records whose address is their name.
"""

from __future__ import annotations

from typing import Any

from warren.actors.queue.consumers.consumer import ChannelRecord, Consumer
from warren.actors.queue.disk.head_read import HeadRead
from warren.actors.queue.disk.levels import apply_level_settings, levelled_queue
from warren.actors.queue.effects import Effects
from warren.actors.queue.master.master import Master
from warren.actors.queue.publisher_confirms import PublisherConfirms
from warren.actors.queue.replica_state import ReplicaState
from warren.actors.statistics.counts import MessageCounts
from warren.actors.statistics.histograms import NodeHistograms
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content, content_body
from warren.routing.arguments.queue_settings import QueueSettings, queue_settings
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.credit import CreditFlow
from warren.runtime.turn_work import TurnWork
from warren.store.messages.message import Origin, each_of
from warren.store.queue.memory_queue import MemoryQueue

from ...stage import PROPS


class Core:
    """The master of the queue `q`, declared with `arguments` (underscores for hyphens)."""

    def __init__(self, backing: Any = None, is_on_disk: bool = False, **arguments: Any) -> None:
        self.seconds = 1_000_000.0
        self.routing = RoutingTable()
        self.routing.add_vhost("/")
        table = table_from({key.replace("_", "-"): value for key, value in arguments.items()})
        row = QueueRow("/", "q", "q", "id of q", arguments=table)  # type: ignore[arg-type]
        self.routing.put_queue(row)
        self.settings = queue_settings(table)
        if backing is None:
            is_one_line = self.settings.is_one_line
            backing = MemoryQueue() if is_one_line else levelled_queue(self.settings, lambda _: MemoryQueue())
            apply_level_settings(backing, self.settings)
        self.backing = backing
        self.effects = Effects()
        channels: dict[str, ChannelRecord] = {}
        self.state = ReplicaState(
            row,
            self.routing,
            backing,
            self.effects,
            HeadRead(backing, self.effects, is_on_disk),
            PublisherConfirms(self.effects, row.queue_id, channels),
            channels,
            CreditFlow((400, 200), self.effects.grant, clock=self.now),
            TurnWork(500),
            False,
            self.now,
            self.now,
            lambda count: bytes(count),
            MessageCounts(),
            NodeHistograms(),
        )
        self.master = Master(self.state, self.settings)
        self.master.apply(self.settings)
        self.effects.timers.clear()

    def now(self) -> float:
        return self.seconds

    def apply(self, settings: QueueSettings) -> None:
        """Apply other settings, as a policy does."""
        apply_level_settings(self.backing, settings)
        self.master.apply(settings)
        for _ in self.master.apply_to_consumers():
            pass

    def grave(self, name: str) -> None:
        """Make another queue, to which dead letters may go."""
        self.routing.put_queue(QueueRow("/", name, name, f"id of {name}"))  # type: ignore[arg-type]

    # -- messages in

    def channel(self, name: str = "a channel", **fields: Any) -> ChannelRecord:
        record = self.state.channels.get(name)
        if record is None:
            record = self.state.channels[name] = ChannelRecord(name, name, **fields)  # type: ignore[arg-type]
        return record

    def publish(
        self,
        count: int,
        first: int = 0,
        channel: str = "publisher",
        number: int = 1,
        expiration: int | list[int | None] | None = None,
        awaits_confirm: bool = True,
    ) -> None:
        """Publish messages with the bodies `first`, `first + 1`, …; the publish number of the first is `number`.

        All have one expiration, or each has its own.
        """
        contents = [build_content(1, PROPS, b"%d" % body, 4096) for body in range(first, first + count)]
        one = [Origin("", ("q",), False, 0, each) for each in each_of(expiration, 1)]
        origins = one if isinstance(expiration, list) else one[0]
        size = sum(len(content_body(content)) for content in contents)
        self.master.publish(self.channel(channel), [(origins, contents, size, number, awaits_confirm, 0)])

    def consume(self, channel: str = "a channel", tag: str = "c", **options: Any) -> Consumer:
        fields = {
            "no_ack": False,
            "exclusive": False,
            "prefetch": 0,
            "priority": 0,
            "arguments": table_from({}),
            **options,
        }
        consumer = Consumer(self.channel(channel), tag, **fields, user="guest")
        assert not list(self.master.consume(consumer)), "to register a consumer waits for nothing"
        return consumer

    def turn(self) -> None:
        self.state.work.left = self.state.work.most
        self.master.end_turn(False)
        self.state.confirms.collect(self.backing.drain_confirmed())

    # -- effects out

    def delivered(self) -> list[tuple[str, list[int]]]:
        """The deliveries since the last call: each a consumer tag with bodies."""
        channels, self.effects.outbox.channels = self.effects.outbox.channels, {}
        return [
            (consumer.tag, [int(content_body(content)) for run in runs for content in run[3]])
            for segments in channels.values()
            for consumer, runs in segments
        ]

    def bodies(self) -> list[int]:
        """The bodies of all deliveries since the last call."""
        return [body for _, found in self.delivered() for body in found]

    def sent(self, name: str) -> list[tuple[Any, ...]]:
        """The messages of that name that were sent since the last call, each with its address and fields."""
        found = []
        for queue in (self.effects.messages, self.effects.endings):
            found += [(address, *message[1:]) for address, message in queue if message[0] == name]
            queue[:] = [each for each in queue if each[1][0] != name]
        return found

    def buried(self) -> list[tuple[str, list[int]]]:
        """The dead letters since the last call: the queue's name and the bodies."""
        return [
            (address, [int(content_body(content)) for entry in entries for content in entry[1]])
            for address, entries in self.sent("publish_at_most_once")
        ]

    def timers(self) -> dict[str, float | None]:
        timers, self.effects.timers = self.effects.timers, {}
        return timers


class Paced(Core):
    """A core with a policy that paces its queue."""

    def __init__(self, **pace):
        super().__init__()
        self.pace(**pace)

    def pace(self, **pace):
        self.settings = queue_settings(Table(), {f"pace-{key.replace('_', '-')}": value for key, value in pace.items()})
        self.apply(self.settings)

    def wait(self, seconds):
        """Let time pass; the timer fires if it is due."""
        self.seconds += seconds
        if self.effects.timers.pop("pace", None) is not None:
            self.master.timer_fired("pace")
        self.turn()
