"""`Runner`: the event loop of all producers and consumers of a test."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice

from .connection import ConnectionFailed, LoadConnection
from .consumer import LoadConsumer
from .options import Options
from .producer import LoadProducer
from .statistics import LoadCounts, Statistics
from .topology import Topology

#: Seconds that a test with a fixed number of messages waits after the last one that has arrived.
DRAIN_SECONDS = 2.0

#: Bytes that are read at once from the connection that only declares, and then receives heartbeats.
HEARTBEATS = 4096

#: The longest wait, in seconds, so that an interrupt is noticed soon.
LONGEST_WAIT = 0.5


class Runner:
    """Runs one test. Raises ConnectionFailed when the broker refuses something or goes away."""

    def __init__(self, options: Options, drawn_key: str) -> None:
        self._options = options
        self._clock = time.time_ns if options.use_wall_clock else time.monotonic_ns
        self._connections: list[LoadConnection] = []
        self._topology: Topology | None = None
        uris = islice(cycle(options.uris), 1 + options.producers + options.consumers)
        try:
            names = ["configuration"]
            names += [f"consumer {number}" for number in range(1, options.consumers + 1)]
            names += [f"producer {number}" for number in range(1, options.producers + 1)]
            for uri, name in zip(uris, names):
                self._connections.append(LoadConnection(uri, f"perf-test {options.test_id} {name}".replace("  ", " ")))
            self._configuration, *others = self._connections
            topology = self._topology = Topology(options, self._configuration, drawn_key)
            self.statistics = Statistics()
            self._consumers = [
                LoadConsumer(options, connection, topology, number, self.statistics, self._clock)
                for number, connection in enumerate(others[: options.consumers])
            ]
            self._producers = [
                LoadProducer(options, connection, topology, self.statistics, self._clock)
                for connection in others[options.consumers :]
            ]
            self._agents: list[LoadProducer | LoadConsumer] = [*self._consumers, *self._producers]
        except BaseException:
            self.close()
            raise
        #: Seconds of processor time that the test has used.
        self.processor_seconds = 0.0
        self._selector = selectors.DefaultSelector()

    def run(self, on_interval: Callable[[LoadCounts, float, float], None]) -> None:
        """Run until the test is over. `on_interval` gets the counts of each interval, its length, and the time since
        the start.
        """
        begun = time.process_time()
        statistics, options = self.statistics, self._options
        statistics.begin(time.monotonic())
        try:
            self._configuration.start()
            self._selector.register(self._configuration.socket, selectors.EVENT_READ, self._configuration)
            for agent in self._agents:
                agent.start()
                self._selector.register(agent.connection.socket, selectors.EVENT_READ, agent)
            self._loop(on_interval, statistics.started, statistics.started + options.time if options.time else None)
        finally:
            counts, seconds = statistics.end_interval(time.monotonic())
            self.processor_seconds = time.process_time() - begun
            if seconds > options.interval / 10:
                on_interval(counts, seconds, time.monotonic() - statistics.started)

    def _loop(self, on_interval: Callable[[LoadCounts, float, float], None], started: float, end: float | None) -> None:
        statistics, interval = self.statistics, self._options.interval
        next_interval = started + interval
        beats = [connection.heartbeat for connection in self._connections if connection.heartbeat]
        next_beat = started + min(beats) / 2 if beats else float("inf")
        last_received, quiet_since = -1, started
        while True:
            now = time.monotonic()
            if end is not None and now >= end or self._is_complete():
                return
            if now >= next_beat:
                next_beat = now + min(beats) / 2
                for connection in self._connections:
                    connection.beat()
            if now >= next_interval:
                counts, seconds = statistics.end_interval(now)
                on_interval(counts, seconds, now - started)
                next_interval += interval * max(1, int((now - next_interval) / interval) + 1)
            received = sum(consumer.received for consumer in self._consumers)
            if received != last_received:
                last_received, quiet_since = received, now
            if self._has_published_all() and now - quiet_since > DRAIN_SECONDS and not self._options.consumer_messages:
                return
            wait = self._produce()
            limit = min(next_interval - now, LONGEST_WAIT, *([end - now] if end is not None else []))
            self._handle(max(0.0, limit if wait is None else min(wait / 1e9, limit)))

    def _produce(self) -> int | None:
        """Let each producer publish. Returns the nanoseconds until one may go on, None if only events help."""
        waits = [wait for producer in self._producers if (wait := producer.produce()) is not None]
        now = self._clock()
        for consumer in self._consumers:
            if consumer.resumes_at:
                if consumer.resumes_at <= now:
                    consumer.resume()
                    self._watch(consumer)
                else:
                    waits.append(consumer.resumes_at - now)
        return min(waits, default=None)

    def _handle(self, seconds: float) -> None:
        for agent in self._agents:
            self._watch(agent)
        for key, events in self._selector.select(seconds):
            agent = key.data
            if isinstance(agent, LoadConnection):
                agent.receive_into(memoryview(bytearray(HEARTBEATS)))  # a broker that goes away raises
                continue
            if events & selectors.EVENT_WRITE:
                agent.connection.send_rest()
                if isinstance(agent, LoadConsumer) and agent.connection.unsent is None:
                    agent.send_acks()
            if events & selectors.EVENT_READ:
                agent.receive()
                while agent.connection.has_decrypted:
                    agent.receive()

    def _watch(self, agent: LoadProducer | LoadConsumer) -> None:
        """Have the selector watch for the events that this producer or consumer waits for."""
        wanted = 0 if isinstance(agent, LoadConsumer) and agent.resumes_at else selectors.EVENT_READ
        if agent.connection.unsent is not None:
            wanted |= selectors.EVENT_WRITE
        key = self._selector.get_map().get(agent.connection.socket)
        if key is None:
            if wanted:
                self._selector.register(agent.connection.socket, wanted, agent)
        elif not wanted:
            self._selector.unregister(agent.connection.socket)
        elif key.events != wanted:
            self._selector.modify(agent.connection.socket, wanted, agent)

    def _has_published_all(self) -> bool:
        return bool(self._producers) and all(producer.is_done for producer in self._producers)

    def _is_complete(self) -> bool:
        options = self._options
        if options.consumer_messages and self._consumers:
            return all(consumer.is_done for consumer in self._consumers)
        if not options.producer_messages or not self._has_published_all():
            return False
        received = sum(consumer.received for consumer in self._consumers)
        return not self._consumers or received >= sum(producer.sent for producer in self._producers)

    def close(self) -> None:
        if self._topology is not None:
            with suppress(ConnectionFailed):
                self._topology.end()
        for connection in reversed(self._connections):
            connection.close()
