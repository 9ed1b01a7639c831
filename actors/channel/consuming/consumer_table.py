"""`ConsumerTable`: the consumers of one channel, by tag and by queue."""

from __future__ import annotations

from ....amqp.constants import PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....routing.phrases import queue_phrase
from .channel_consumer import ChannelConsumer


class ConsumerTable:
    """A consumer of a sharded queue has a part for each shard, which has its tag and is found by its shard."""

    __slots__ = ("_of_queue", "by_tag")

    def __init__(self) -> None:
        #: The consumers of the client, by tag.
        self.by_tag: dict[str, ChannelConsumer] = {}
        #: By queue id and tag: the same consumers, and their parts. The end of a queue must not look through the
        #: consumers of 20,000 others.
        self._of_queue: dict[str, dict[str, ChannelConsumer]] = {}

    def enter(self, consumer: ChannelConsumer) -> None:
        self.by_tag[consumer.tag] = consumer
        self.enter_part(consumer)

    def enter_part(self, part: ChannelConsumer) -> None:
        """Let the part of a consumer be found by its queue."""
        self._of_queue.setdefault(part.queue_id, {})[part.tag] = part

    def remove(self, tag: str) -> ChannelConsumer | None:
        """Remove the consumer with this tag, and return it; None if there is none."""
        consumer = self.by_tag.pop(tag, None)
        if consumer is not None:
            for queue_id in (consumer.queue_id, *(consumer.parts or ())):
                consumers = self._of_queue[queue_id]
                del consumers[tag]
                if not consumers:
                    del self._of_queue[queue_id]
        return consumer

    def has(self, consumer: ChannelConsumer) -> bool:
        """Whether the table still has this consumer, or the one that it is a part of."""
        whole = self.by_tag.get(consumer.tag)
        if whole is None or whole is consumer:
            return whole is consumer
        return whole.parts is not None and whole.parts.get(consumer.queue_id) is consumer

    def queue_ids(self) -> set[str]:
        """The queues that the channel consumes from."""
        return set(self._of_queue)

    def of_queue(self, queue_id: str) -> list[ChannelConsumer]:
        """The consumers of a queue, and those parts of consumers that consume from it."""
        return list(self._of_queue.get(queue_id, {}).values())

    def check_alone(self, consumer: ChannelConsumer) -> None:
        """Raise AmqpError 406 if the channel has another consumer of the sharded queue, and one of the two has a
        prefetch. A shard asks the channel for grants without naming a consumer, so it could exceed that prefetch.
        """
        for other in self.by_tag.values():
            if other.queue_id == consumer.queue_id and (other.is_bounded or consumer.is_bounded):
                raise AmqpError(
                    PRECONDITION_FAILED,
                    f"{queue_phrase(consumer.row.vhost, consumer.row.name)} is sharded, and this channel has its "
                    f"consumer '{other.tag}' already. Consume on another channel, or without a prefetch.",
                )
