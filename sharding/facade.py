"""`ShardedQueue`: one logical queue over several real ones (FC-72 to FC-85).

One thread runs pika's loop with all connections, and owns their state; the methods that a program calls post functions
to this thread. Callbacks of consumers run on threads of their own, so that slow ones hold up no heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from random import Random
from threading import Thread, current_thread
from time import monotonic
from typing import Any, Literal, TypeVar
from uuid import uuid4

import pika
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel

from .choosing import POLICIES, Policy, random_shard, shard_of_key, shard_of_number
from .consumer import ShardedConsumer
from .errors import DeclarationFailed, ShardingError
from .hand_over import HandOver, Relaxed, Skip, Strict
from .link import ReconnectingLink
from .shard import NUMBER_HEADER, PUBLISHER_HEADER, Delivery, Publish, Shard

Result = TypeVar("Result")

_log = logging.getLogger("warren.sharding")

#: The largest number of a message: a header has integers of 64 bits.
MAX_NUMBER = (1 << 63) - 1

#: The largest prefetch of one queue in AMQP.
MAX_PREFETCH = 65_535


class ShardedQueue:
    """One logical queue over the queues `<queue>_0` to `<queue>_<shards - 1>`. Its methods may be called by any thread,
    but not by a callback's: that thread would wait for itself.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        queue: str,
        shards: int,
        *,
        exchange: str = "",
        routing_key: str | None = None,
        policy: Policy = "sequence",
        connections: int | None = None,
        when_down: Literal["wait", "fail"] = "wait",
        reconnect_delay: float = 1.0,
        timeout: float = 30.0,
    ) -> None:
        """Connect to the broker. Several URLs are used in turn, one for each connection (FC-73).

        `connections` is how many connections there are, by default one for each URL. The routing key is by default the
        name of the queue. `when_down` decides about a message whose shard cannot be reached: it waits, or it fails.
        `timeout` limits, in seconds, how long the methods wait for the broker.
        """
        urls = [urls] if isinstance(urls, str) else list(urls)
        connections = len(urls) if connections is None else connections
        if shards < 1:
            raise ValueError(f"A sharded queue needs at least 1 shard, not {shards}.")
        if not urls or not 1 <= connections <= shards:
            raise ValueError(f"{shards} shards can use 1 to {shards} connections, not {connections}.")
        if policy not in POLICIES:
            raise ValueError(f"The policy is 'sequence', 'random' or 'key', not {policy!r}.")
        if when_down not in ("wait", "fail"):
            raise ValueError(f"when_down is 'wait' or 'fail', not {when_down!r}.")
        if not exchange and routing_key not in (None, queue):
            raise ValueError(
                f"The default exchange routes by the name of the queue: leave out routing_key={routing_key!r}, "
                "or name another exchange."
            )
        self.queue = queue
        self.shards = shards
        self.exchange = exchange
        self.routing_key = queue if routing_key is None else routing_key
        self.policy = policy
        #: The name under which this publisher numbers its messages, different for each `ShardedQueue` (FC-81).
        self.publisher = uuid4().hex
        self._timeout = timeout
        self._waits = when_down == "wait"
        self._random = Random()
        self._next_number = 0
        self._unconfirmed: set[Future[int]] = set()
        self._cursor = 0
        self._consumer: ShardedConsumer | None = None
        self._is_closed = False
        self._loop = IOLoop()
        self._shards = [
            Shard(index, queue, exchange, self.routing_key, reconnect_delay, self._loop.add_callback_threadsafe)
            for index in range(shards)
        ]
        self._links = [
            ReconnectingLink(self._loop, pika.URLParameters(urls[at % len(urls)]), reconnect_delay)
            for at in range(connections)
        ]
        for shard in self._shards:
            self._links[shard.index % connections].add(shard)
        self._thread = Thread(target=self._run, name=f"sharded-queue-{queue}", daemon=True)
        self._thread.start()

    def __enter__(self) -> ShardedQueue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- the thread ---

    def _run(self) -> None:
        for link in self._links:
            link.connect()
        self._loop.start()
        self._loop.close()

    def _on_loop(self, function: Callable[[], None]) -> None:
        if self._is_closed:
            raise ShardingError(f"The sharded queue '{self.queue}' is closed.")
        self._loop.add_callback_threadsafe(function)

    def _wait_for(self, future: Future[Result], what: str) -> Result:
        try:
            return future.result(self._timeout)
        except TimeoutError:
            raise ShardingError(
                f"The broker did not answer within {self._timeout} s: {what}. {self._down_text()}"
            ) from None

    def _down_text(self) -> str:
        down = [f"shard {shard.index}: {shard.trouble}" for shard in self._shards if not shard.is_usable]
        return "; ".join(down) or "All shards are connected."

    # -- declaring ---

    def declare(
        self,
        exchange_type: str = "direct",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare the exchange, the queues of all shards with these flags and arguments, and their bindings (FC-72).

        Raises DeclarationFailed if the broker refuses some of them.
        """
        # Raise what cannot be sent here. On the thread of the loop an error would end that thread.
        pika.spec.Exchange.Declare(exchange=self.exchange, type=exchange_type).encode()
        pika.spec.Queue.Declare(queue=self._shards[-1].queue, arguments=dict(arguments or {})).encode()
        outcomes = [Future[None]() for _ in self._shards]

        def begin() -> None:
            for shard, outcome in zip(self._shards, outcomes):
                self._when_connected(shard, partial(_declare, shard, outcome, calls))

        def calls(shard: Shard, channel: Channel) -> list[Callable[..., Any]]:
            steps: list[Callable[..., Any]] = []
            if self.exchange:
                # Each shard declares the exchange, because its binding must not come before the exchange.
                steps.append(partial(channel.exchange_declare, self.exchange, exchange_type, durable=durable))
            steps.append(
                partial(
                    channel.queue_declare,
                    shard.queue,
                    durable=durable,
                    exclusive=exclusive,
                    auto_delete=auto_delete,
                    arguments=dict(arguments or {}),
                )
            )
            if self.exchange:
                steps.append(partial(channel.queue_bind, shard.queue, self.exchange, shard.routing_key))
            return steps

        self._on_loop(begin)
        done, _ = wait(outcomes, self._timeout)
        failed = {}
        for shard, outcome in zip(self._shards, outcomes):
            if outcome not in done:
                failed[shard.index] = f"the broker did not answer within {self._timeout} s; {shard.trouble}"
            elif outcome.exception() is not None:
                failed[shard.index] = str(outcome.exception())
        if failed:
            raise DeclarationFailed(failed)

    def _when_connected(self, shard: Shard, function: Callable[[pika.SelectConnection], None]) -> None:
        """Call `function` with the connection of the shard, at once or when there is one."""
        connection = shard.connection
        if connection is not None and connection.is_open:
            function(connection)
        else:
            self._loop.call_later(0.05, partial(self._when_connected, shard, function))

    # -- publishing ---

    def publish(
        self,
        body: bytes,
        properties: pika.BasicProperties | None = None,
        *,
        mandatory: bool = False,
        key: str | bytes | None = None,
        msg_seq: int | None = None,
    ) -> Future[int]:
        """Publish a message. The future gets the message's number when the broker has confirmed it; it raises
        PublishFailed or PublishReturned otherwise (FC-75).

        With the policy `key` each message needs a key; equal keys go to the same shard, in order. `msg_seq` replaces
        the number that this publisher would give the message.
        """
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(f"The body is {type(body).__name__}; encode it to bytes first.")
        if (key is None) == (self.policy == "key"):
            raise ValueError("Give a key with each message if the policy is 'key', and only then.")
        if msg_seq is not None and not 0 <= msg_seq <= MAX_NUMBER:
            raise ValueError(f"msg_seq counts from 0, and has 63 bits, so it cannot be {msg_seq}.")
        of_key = None if key is None else shard_of_key(key, self.shards)
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # the message is on its way, so nothing can cancel it
        self._unconfirmed.add(future)
        future.add_done_callback(self._unconfirmed.discard)
        try:
            self._on_loop(
                partial(
                    self._publish, bytes(body), properties or pika.BasicProperties(), mandatory, of_key, msg_seq, future
                )
            )
        except ShardingError:
            self._unconfirmed.discard(future)
            raise
        return future

    def _publish(
        self,
        body: bytes,
        properties: pika.BasicProperties,
        is_mandatory: bool,
        index: int | None,
        number: int | None,
        future: Future[int],
    ) -> None:
        if number is None:
            number = self._next_number
        self._next_number = max(self._next_number, number + 1)
        if index is None and self.policy == "sequence":
            index = shard_of_number(number, self.shards)
        elif index is None:
            index = random_shard(self._random, self.shards, [s.index for s in self._shards if s.is_usable])
        numbered = pika.BasicProperties(**vars(properties))
        numbered.headers = {**(properties.headers or {}), NUMBER_HEADER: number, PUBLISHER_HEADER: self.publisher}
        self._shards[index].publish(Publish(number, body, numbered, is_mandatory, future), self._waits)

    def wait_for_confirms(self, timeout: float | None = None) -> None:
        """Wait until every message that was published has an outcome, and raise the error of one that failed, if any.

        Messages that had their outcome before the call are not among these: look at the futures of `publish`.
        """
        futures = list(self._unconfirmed)
        _, unconfirmed = wait(futures, self._timeout if timeout is None else timeout)
        if unconfirmed:
            raise ShardingError(f"{len(unconfirmed)} messages have no confirm yet. {self._down_text()}")
        for future in futures:
            future.result()

    # -- pulling ---

    def get(self) -> Delivery | None:
        """Fetch one message, or None if no shard has any. Settle it with `ack` or `reject`.

        The search begins behind the shard that answered last, and visits each shard once (FC-78).
        """
        answer: Future[Delivery | None] = Future()
        self._on_loop(lambda: self._get_from(self._cursor, self._cursor + self.shards, answer))
        try:
            return self._wait_for(answer, f"basic.get on '{self.queue}'")
        except ShardingError:
            answer.add_done_callback(_requeue)  # nobody else would settle a message that still arrives
            raise

    def _get_from(self, at: int, end: int, answer: Future[Delivery | None]) -> None:
        if at == end:
            answer.set_result(None)
            return
        shard = self._shards[at % self.shards]
        got: Future[Delivery | None] = Future()

        def done(got: Future[Delivery | None]) -> None:
            error = got.exception()
            if error is not None:
                answer.set_exception(error)
            elif got.result() is None:
                self._get_from(at + 1, end, answer)
            else:
                self._cursor = (at + 1) % self.shards
                answer.set_result(got.result())

        got.add_done_callback(done)
        shard.get(got)

    # -- consuming ---

    def consume(
        self,
        callback: Callable[[Delivery], object],
        *,
        prefetch: int = 100,
        order: Literal["relaxed", "strict"] = "relaxed",
        tag: str | None = None,
        workers: int = 1,
        requeue_failed: bool = False,
        gap_timeout: float = 1.0,
        on_skip: Callable[[Skip], object] | None = None,
    ) -> None:
        """Have `callback` called for each message, by one thread or by `workers` many.

        A message is acked when the callback returns. It is rejected if the callback returns False (with
        `requeue_failed` it goes back to its queue), and requeued if the callback raises (FC-82). In strict order,
        `on_skip` gets the numbers that did not come (FC-81); with several workers, callbacks begin in order.
        """
        if prefetch < 1 or workers < 1:
            raise ValueError(f"prefetch ({prefetch}) and workers ({workers}) must be at least 1.")
        if prefetch > MAX_PREFETCH * self.shards:
            raise ValueError(f"The prefetch of {self.shards} shards is at most {MAX_PREFETCH * self.shards}.")
        if order == "strict" and self.policy != "sequence":
            raise ValueError("Strict order follows the message numbers, so it needs the policy 'sequence'.")
        if self._consumer is not None:
            raise ShardingError(f"'{self.queue}' is consumed already; call cancel() first.")
        hand_over: HandOver[Delivery] = Strict(self.shards) if order == "strict" else Relaxed(self.shards)
        self._consumer = consumer = ShardedConsumer(
            self._loop, hand_over, callback, workers, requeue_failed, gap_timeout, on_skip
        )
        each = -(-prefetch // self.shards)
        started = [Future[None]() for _ in self._shards]

        def begin() -> None:
            for shard, future in zip(self._shards, started):
                shard.consume(tag or f"ctag-{self.publisher}-", each, consumer.arrived, consumer.drop, future)

        self._on_loop(begin)
        try:
            for shard, future in zip(self._shards, started):
                self._wait_for(future, f"basic.consume on '{shard.queue}'")
        except BaseException:
            self.cancel()  # the other shards would go on to call the callback
            raise

    def cancel(self) -> None:
        """End the consumer: wait for the callbacks that run, and requeue deliveries that no callback has received."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        done = [Future[None]() for _ in self._shards]

        def begin() -> None:
            consumer.stop()
            for shard, future in zip(self._shards, done):
                shard.cancel(future)

        self._on_loop(begin)
        wait(done, self._timeout)
        consumer.end()
        self._on_loop(consumer.give_back)

    # -- closing ---

    def close(self, timeout: float = 10.0) -> None:
        """Cancel the consumer, wait at most `timeout` seconds for confirms, and close all connections (FC-85)."""
        if self._is_closed:
            return
        self.cancel()
        wait(list(self._unconfirmed), timeout)
        self._loop.add_callback_threadsafe(partial(self._close, monotonic() + timeout))
        self._is_closed = True
        if current_thread() is not self._thread:
            self._thread.join(timeout + self._timeout)

    def _close(self, deadline: float) -> None:
        for shard in self._shards:
            shard.fail_waiting("the sharded queue was closed")
        for link in self._links:
            link.close()
        self._stop_when_closed(deadline)

    def _stop_when_closed(self, deadline: float) -> None:
        if all(link.is_closed for link in self._links) or monotonic() > deadline:
            for shard in self._shards:
                shard.link_lost("the sharded queue was closed")
            self._loop.stop()
        else:
            self._loop.call_later(0.01, partial(self._stop_when_closed, deadline))


def _requeue(answer: Future[Delivery | None]) -> None:
    """Give back the message that a get has received after its timeout."""
    delivery = None if answer.exception() is not None else answer.result()
    if delivery is not None:
        delivery.reject(requeue=True)


def _declare(
    shard: Shard,
    outcome: Future[None],
    calls: Callable[[Shard, Channel], list[Callable[..., Any]]],
    connection: pika.SelectConnection,
) -> None:
    """Make the calls one after the other on a channel of their own, because a refusal closes the channel."""

    def opened(channel: Channel) -> None:
        channel.add_on_close_callback(closed)
        left = calls(shard, channel)

        def call_next(frame: Any = None) -> None:
            if left:
                left.pop(0)(callback=call_next)
            else:
                outcome.set_result(None)
                channel.close()

        call_next()

    def closed(channel: Channel, reason: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(ShardingError(str(reason)))

    connection.channel(on_open_callback=opened)
