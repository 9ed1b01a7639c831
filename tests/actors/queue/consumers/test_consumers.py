"""Consumers are chosen as in a model that follows RabbitMQ message by message (AB-121 to AB-128, FC-32)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.queue.consumers.consumer import UNSENT_LIMIT_SMALL, ChannelRecord, Consumer
from warren.actors.queue.consumers.consumers import Consumers

CHANNELS = 3


class Model:
    """A model of RabbitMQ's queue of consumers, one message at a time.

    The first consumer of the line of highest priority gets the message and goes to the end of its line. A consumer that
    cannot take it is set aside until something changes in its channel.
    """

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        self.all: list[Consumer] = []
        self.lines: dict[int, list[Consumer]] = {}
        self.aside: list[Consumer] = []
        self.active: Consumer | None = None
        self.unacked: dict[Consumer, int] = {}
        self.unsent: dict[str, int] = {}
        self.granted: dict[str, int] = {}

    def can_take(self, consumer: Consumer) -> bool:
        channel = consumer.channel
        if self.unsent.get(channel.channel_id, 0) >= UNSENT_LIMIT_SMALL:
            return False
        if channel.is_limited and self.granted.get(channel.channel_id, 0) <= 0:
            return False
        return consumer.no_ack or not consumer.prefetch or self.unacked[consumer] < consumer.prefetch

    def add(self, consumer: Consumer) -> None:
        self.all.append(consumer)
        self.unacked[consumer] = 0
        if self.single_active:
            self.active = self.active or consumer
        else:
            self.lines.setdefault(consumer.priority, []).append(consumer)

    def remove(self, consumer: Consumer) -> None:
        self.all.remove(consumer)
        if consumer in self.aside:
            self.aside.remove(consumer)
        elif not self.single_active:
            self.lines[consumer.priority].remove(consumer)
        elif self.active is consumer:
            self.active = max(self.all, key=lambda other: other.priority, default=None)

    def next(self) -> Consumer | None:
        if self.single_active:
            return self.active if self.active is not None and self.can_take(self.active) else None
        for priority in sorted(self.lines, reverse=True):
            line = self.lines[priority]
            while line:
                consumer = line.pop(0)
                if self.can_take(consumer):
                    line.append(consumer)
                    return consumer
                self.aside.append(consumer)
        return None

    def give(self, count: int) -> list[Consumer]:
        given = []
        while len(given) < count and (consumer := self.next()) is not None:
            name = consumer.channel.channel_id
            self.unsent[name] = self.unsent.get(name, 0) + 1
            if consumer.channel.is_limited:
                self.granted[name] -= 1
            self.unacked[consumer] += not consumer.no_ack
            given.append(consumer)
        return given

    def resume(self, channel: ChannelRecord) -> None:
        for consumer in list(self.aside):
            if consumer.channel is channel and self.can_take(consumer):
                self.aside.remove(consumer)
                self.lines[consumer.priority].append(consumer)


def receivers(consumers: Consumers, count: int) -> list[Consumer]:
    """The result of `share` as a list: the consumer of each message."""
    given: list[Consumer | None] = [None] * count
    shares, taken = consumers.share(count)
    for consumer, start, stop, step in shares:
        assert step == 1 or consumers.is_uniform
        for at in range(start, stop, step):
            assert given[at] is None
            given[at] = consumer
    assert None not in given[:taken] and given[taken:] == [None] * (count - taken)
    return given[:taken]


some_channel = st.integers(0, CHANNELS - 1)
steps = st.one_of(
    st.tuples(
        st.just("add"),
        some_channel,
        st.booleans(),
        st.sampled_from([0, 0, 1, 3, 20]),
        st.sampled_from([0, 0, 0, 1, -5]),
    ),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("share"), st.sampled_from([1, 2, 5, 40, 700])),
    st.tuples(st.just("settle"), st.integers(0, 20), st.integers(1, 30)),
    st.tuples(st.just("sent"), some_channel, st.integers(1, 200)),
    st.tuples(st.just("limit"), some_channel, st.booleans()),
    st.tuples(st.just("grant"), some_channel, st.integers(1, 50)),
)


@given(st.booleans(), st.booleans(), st.lists(steps, max_size=40))
@settings(max_examples=350, deadline=None)
def test_every_message_goes_to_the_consumer_that_rabbitmq_chooses(single_active, mixed, plan):
    """Every message goes to the consumer that RabbitMQ chooses, with priorities, round robin, prefetch, unsent
    deliveries, grants and shared channels (AB-122, AB-124, AB-128, FC-32).
    """
    consumers, model = Consumers(single_active), Model(single_active)
    channels = [ChannelRecord(f"channel {number}", None) for number in range(CHANNELS)]
    for name, first, *rest in plan:
        if name == "add":
            no_ack, prefetch, priority = rest
            consumer = Consumer(
                channels[first], f"tag {len(model.unacked)}", no_ack and mixed, False, prefetch, priority, (), "guest"
            )
            consumers.add(consumer)
            model.add(consumer)
        elif name == "remove" and model.all:
            consumer = model.all[first % len(model.all)]
            consumers.remove(consumer)
            model.remove(consumer)
        elif name == "share":
            got, expected = receivers(consumers, first), model.give(first)
            assert [consumer.tag for consumer in got] == [consumer.tag for consumer in expected]
            if len(got) < first:
                check_what_is_awaited(consumers, model)
        elif name == "settle" and model.all:
            consumer = model.all[first % len(model.all)]
            count = min(rest[0], model.unacked[consumer])
            consumer.unacked -= count
            model.unacked[consumer] -= count
            resume(consumers, model, consumer.channel)
        elif name == "sent":
            channel = channels[first]
            count = min(rest[0], channel.unsent)
            channel.unsent -= count
            model.unsent[channel.channel_id] = model.unsent.get(channel.channel_id, 0) - count
            resume(consumers, model, channel)
        elif name == "limit":
            channel = channels[first]
            channel.is_limited, channel.granted, channel.is_grant_requested = rest[0], 0, False
            model.granted[channel.channel_id] = 0
            consumers.limit_changed(channel)
            resume(consumers, model, channel)
        elif name == "grant" and channels[first].is_limited:
            channel = channels[first]
            channel.granted += rest[0]
            model.granted[channel.channel_id] += rest[0]
            resume(consumers, model, channel)
        assert list(consumers) == model.all and consumers.active is model.active
        for consumer in model.all:
            assert consumer.unacked == model.unacked[consumer]
            assert consumer.channel.unsent == model.unsent.get(consumer.channel.channel_id, 0)
        assert [list(channel.consumers) for channel in channels] == [
            [consumer for consumer in model.all if consumer.channel is channel] for channel in channels
        ]


def check_what_is_awaited(consumers: Consumers, model: Model) -> None:
    """Assert, when no consumer can take a message, that what the queue knows of the reasons is what a check of every
    consumer shows.
    """
    eligible = [model.active] if model.active else [] if model.single_active else model.all
    assert consumers.awaits_write() == any(each.channel.unsent >= UNSENT_LIMIT_SMALL for each in eligible)
    wanting = {each.channel.channel_id for each in eligible if each.awaits_grant}
    assert {channel.channel_id for channel in consumers.channels_without_grant()} == wanting


def resume(consumers: Consumers, model: Model, channel: ChannelRecord) -> None:
    """Call `resume` as the queue does when something of a channel changes, and check its answer."""
    may_deliver = consumers.resume(channel)
    model.resume(channel)
    eligible = [model.active] if model.single_active and model.active else [] if model.single_active else model.all
    mine = [consumer for consumer in eligible if consumer.channel is channel]
    assert may_deliver == any(model.can_take(consumer) or consumer.awaits_grant for consumer in mine)


def test_a_single_consumer_that_is_full_is_set_aside():
    """A single active consumer whose prefetch is used up is set aside, and a consumer that comes meanwhile is before it
    in the line (AB-122).
    """
    consumers, first, second = Consumers(), ChannelRecord("first", None), ChannelRecord("second", None)
    full = consumer(first, "full", prefetch=1)
    consumers.add(full)
    assert [each.tag for each in receivers(consumers, 2)] == ["full"]
    consumers.add(consumer(second, "new"))
    full.unacked = 0
    consumers.resume(first)
    assert [each.tag for each in receivers(consumers, 3)] == ["new", "full", "new"]


def consumer(channel: ChannelRecord, tag: str = "c", **options) -> Consumer:
    return Consumer(
        channel,
        tag,
        **{"no_ack": False, "exclusive": False, "prefetch": 0, "priority": 0, "arguments": (), "user": "u", **options},
    )


def test_a_channel_gets_two_hundred_and_then_waits_for_its_socket():
    """A channel may have 200 unsent deliveries, without acknowledgement included, and each report of 50 as sent makes
    room for 50 (FC-32).
    """
    consumers, channel = Consumers(), ChannelRecord("c", None)
    consumers.add(consumer(channel, "acks"))
    consumers.add(consumer(channel, "no acks", no_ack=True))
    assert len(receivers(consumers, 1000)) == UNSENT_LIMIT_SMALL
    channel.unsent -= 50
    assert consumers.resume(channel)
    assert len(receivers(consumers, 1000)) == 50


def test_a_full_consumer_comes_back_at_the_end_of_its_line():
    """A consumer that was set aside comes back behind the consumers that went on meanwhile (AB-122)."""
    consumers, channels = Consumers(), [ChannelRecord(name, None) for name in "abc"]
    full, *others = [
        consumer(channel, channel.channel_id, prefetch=1 if channel is channels[0] else 0) for channel in channels
    ]
    for each in (full, *others):
        consumers.add(each)
    assert [c.tag for c in receivers(consumers, 5)] == ["a", "b", "c", "b", "c"]
    full.unacked = 0
    consumers.resume(channels[0])
    assert [c.tag for c in receivers(consumers, 4)] == ["b", "c", "a", "b"]


def test_a_grant_is_requested_once_and_only_if_nothing_else_is_missing():
    """A grant is requested once, and not for a consumer at its own prefetch or one whose socket is full (AB-128)."""
    consumers = Consumers()
    ready, full, stuck = (ChannelRecord(name, None, is_limited=True) for name in ("ready", "full", "stuck"))
    consumers.add(consumer(ready))
    consumers.add(consumer(full, prefetch=1, unacked=1))
    consumers.add(consumer(stuck))
    stuck.unsent = UNSENT_LIMIT_SMALL
    assert receivers(consumers, 5) == []
    assert consumers.channels_without_grant() == [ready]
    ready.is_grant_requested = True
    assert consumers.channels_without_grant() == []


def test_an_exclusive_consumer_is_found():
    """`has_exclusive` is true from the arrival of an exclusive consumer until its removal (AB-121)."""
    consumers, channel = Consumers(), ChannelRecord("c", None)
    alone = consumer(channel, exclusive=True)
    consumers.add(alone)
    assert consumers.has_exclusive() and consumers.find("c", "c") is alone and consumers.find("d", "c") is None
    consumers.remove(alone)
    assert not consumers.has_exclusive() and not len(consumers)


def test_consumers_that_wait_for_one_channel_keep_their_order():
    """Consumers whose channel has no room stay in their lines in order. Later consumers are behind them if they wait
    for the same channel, and before them if they can take messages.
    """
    consumers, model, channel = Consumers(), Model(False), ChannelRecord("c", None)

    def add(tag: str, priority: int = 0, where: ChannelRecord = channel) -> None:
        new = consumer(where, tag, no_ack=True, priority=priority)
        consumers.add(new)
        model.add(new)

    def give(count: int) -> list[str]:
        tags = [each.tag for each in receivers(consumers, count)]
        assert tags == [each.tag for each in model.give(count)]
        return tags

    def sent(count: int) -> None:
        channel.unsent -= count
        model.unsent[channel.channel_id] -= count
        resume(consumers, model, channel)

    for tag in "abc":
        add(tag)
    add("high", 1)
    assert len(give(UNSENT_LIMIT_SMALL + 1)) == UNSENT_LIMIT_SMALL and consumers.awaits_write()
    sent(1)
    assert give(5) == ["high"]
    add("d"), add("e")
    assert give(1) == []
    gone = consumers.find("c", "high")
    consumers.remove(gone), model.remove(gone)
    sent(7)
    assert give(10) == ["a", "b", "c", "d", "e", "a", "b"]
    other = ChannelRecord("other", None)
    add("x", where=other)
    assert set(give(3)) == {"x"}
    sent(4)
    assert give(6) == ["x", "c", "d", "e", "a", "x"]
