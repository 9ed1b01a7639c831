"""A simple model of two queues and their channels, as clients see them, with which a broker is compared.

A test reports to the model each operation when it sends it, and each frame when it arrives. The model does not predict
which consumer gets a message. It checks that the consumer may get it, and which messages may be left when nothing
happens any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Consumer:
    channel: Worker
    tag: str
    queue: str
    no_ack: bool
    prefetch: int
    unacked: int = 0

    def may_take(self) -> bool:
        limit = self.channel.limit
        return (limit is None or self.channel.volume() < limit) and (
            self.no_ack or not self.prefetch or self.unacked < self.prefetch
        )


@dataclass
class Held:
    """An unacknowledged delivery."""

    queue: str
    number: int
    consumer: Consumer | None  # None for basic.get
    counts: bool = True  # whether it counts in the limit of the channel


@dataclass(eq=False)
class Worker:
    """One channel. `limit` is the prefetch count of basic.qos with `global`."""

    name: str
    next_tag: int = 1
    prefetch: int = 0
    limit: int | None = None
    consumers: dict[str, Consumer] = field(default_factory=dict)
    cancelling: dict[str, Consumer] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)
    #: Unanswered gets, each as queue, no_ack, and whether the channel had a limit.
    gets: list[tuple[str, bool, bool]] = field(default_factory=list)

    def volume(self) -> int:
        return sum(held.counts for held in self.held.values())


class Model:
    """The state of the queues, as message numbers by queue.

    `seen` messages were delivered at least once; `uncertain` ones were perhaps in flight to a channel that ended.
    `taken` and `returned` belong to the current step.
    """

    def __init__(self, queues: list[str]) -> None:
        self.published = dict.fromkeys(queues, 0)
        self.ready: dict[str, set[int]] = {queue: set() for queue in queues}
        self.seen: dict[str, set[int]] = {queue: set() for queue in queues}
        self.uncertain: dict[str, set[int]] = {queue: set() for queue in queues}
        self.workers: list[Worker] = []
        self.begin_step()

    def begin_step(self) -> None:
        self.before = {queue: set(numbers) for queue, numbers in self.ready.items()}
        self.taken: dict[str, list[int]] = {queue: [] for queue in self.ready}
        self.returned = False

    # -- operations sent ---

    def publish(self, queue: str) -> int:
        number = self.published[queue]
        self.published[queue] += 1
        self.ready[queue].add(number)
        self.before[queue].add(number)
        return number

    def settle(self, worker: Worker, tag: int, multiple: bool, requeue: bool) -> None:
        for settled in [other for other in worker.held if other == tag or multiple and other < tag]:
            self._settle(worker, settled, requeue)

    def _settle(self, worker: Worker, tag: int, requeue: bool) -> None:
        held = worker.held.pop(tag)
        if held.consumer is not None:
            held.consumer.unacked -= 1
        if requeue:
            self.returned = True
            self.ready[held.queue].add(held.number)

    def recover(self, worker: Worker) -> None:
        for tag in list(worker.held):
            self._settle(worker, tag, requeue=True)

    def qos(self, worker: Worker, count: int, global_: bool) -> None:
        had_limit = worker.limit is not None
        if global_:
            worker.limit = count or None
        else:
            worker.prefetch, worker.limit = count, None
        if had_limit != (worker.limit is not None):
            for held in worker.held.values():
                held.counts = True

    def consume(self, worker: Worker, tag: str, queue: str, no_ack: bool) -> None:
        worker.consumers[tag] = Consumer(worker, tag, queue, no_ack, worker.prefetch)

    def cancel(self, worker: Worker, tag: str) -> None:
        worker.cancelling[tag] = worker.consumers.pop(tag)

    def get(self, worker: Worker, queue: str, no_ack: bool) -> None:
        worker.gets.append((queue, no_ack, worker.limit is not None))

    def close(self, worker: Worker) -> None:
        """Record channel.close-ok."""
        self.recover(worker)
        self.workers.remove(worker)

    # -- frames received ---

    def delivered(
        self, worker: Worker, tag: int, consumer_tag: str, redelivered: bool, queue: str, number: int
    ) -> None:
        consumer = worker.consumers.get(consumer_tag) or worker.cancelling[consumer_tag]
        assert consumer.queue == queue
        self._take(worker, tag, redelivered, queue, number)
        if not consumer.no_ack:
            consumer.unacked += 1
            worker.held[tag] = Held(queue, number, consumer)

    def got(self, worker: Worker, tag: int, redelivered: bool, queue: str, number: int) -> None:
        asked, no_ack, limited = worker.gets.pop(0)
        assert asked == queue
        self._take(worker, tag, redelivered, queue, number)
        if not no_ack:
            worker.held[tag] = Held(queue, number, None, counts=not limited)

    def got_nothing(self, worker: Worker) -> None:
        worker.gets.pop(0)

    def _take(self, worker: Worker, tag: int, redelivered: bool, queue: str, number: int) -> None:
        assert tag == worker.next_tag, "delivery tags count up by one"
        worker.next_tag += 1
        assert number in self.ready[queue], f"message {number} of {queue} was delivered but was not ready"
        self.ready[queue].remove(number)
        assert redelivered == (number in self.seen[queue]) or number in self.uncertain[queue], (
            f"message {number}: redelivered is {redelivered}"
        )
        self.seen[queue].add(number)
        self.uncertain[queue].discard(number)
        self.taken[queue].append(number)

    # -- when nothing happens any more ---

    def check_rest(self) -> None:
        for worker in self.workers:
            assert not worker.gets, "a get was not answered"
            worker.cancelling.clear()
            for consumer in worker.consumers.values():
                assert not consumer.prefetch or consumer.no_ack or consumer.unacked <= consumer.prefetch, (
                    f"{consumer.tag} has more deliveries than its prefetch allows"
                )
                assert not (self.ready[consumer.queue] and consumer.may_take()), (
                    f"{consumer.tag} may take messages that are ready in {consumer.queue}"
                )
        if not self.returned:
            for queue, taken in self.taken.items():
                assert sorted(taken) == sorted(self.before[queue])[: len(taken)], (
                    f"not the oldest messages of {queue} were taken"
                )
