"""The connection of a stream's planner: it asks about queues, acknowledges, and holds the query's right to delete.

Spark's planner is a process of its own, which sleeps between two calls, so a thread sends the heartbeats. If they stop,
because a machine was lost, the broker closes the connection and deletes its exclusive queues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...amqp import methods
from ..endpoints import Endpoint
from ..errors import already_deleting, broker_away, refused
from ..options import StreamOptions
from ..wire import Away, BrokerConnection, Refused
from .arrivals import number_at
from .catalogue import covers, states, subscribe
from .offsets import QueueState
from .range_reading import PAUSES

log = logging.getLogger("warren.spark")

#: Seconds after which the broker gives a silent planner up; the thread sends three heartbeats in that time.
HEARTBEAT = 30
#: Seconds for which a query waits for another one that deletes from the same queue: a lost machine's connection ends
#: after two heartbeats.
LEASE_SECONDS = 90.0
#: The exclusive queue that a query which deletes holds for each queue.
LEASE = "warren.spark.lease."

Result = TypeVar("Result")


class Planner:
    """Talks to the broker for one query, and connects again whenever the connection breaks."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._connection: BrokerConnection | None = None
        #: Guards the connection: the planner uses it, and the thread sends heartbeats on it.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._beating: threading.Thread | None = None
        #: The queues whose lease this connection holds, by the name of the exclusive queue.
        self._leases: set[str] = set()
        #: Where the nodes of the queues were reached when the broker was asked last.
        self._endpoints: tuple[Endpoint, ...] = ()
        #: The queues with consumers of which the user was warned.
        self._warned: set[str] = set()
        #: Whether the queue of the subscription was declared and bound: a query does it when it begins or goes on.
        self._is_subscribed = False

    @property
    def _shown(self) -> str:
        return ", ".join(self._options.given_names) or str(self._options.pattern)

    def states(self, known: Iterable[str] = ()) -> dict[str, QueueState]:
        """The queues of the query as they are now. Raises SparkSourceError E3, E4, E5 and E7.

        known   queues that the query has read; one that is absent was deleted, or the options do not name it any more
        """
        options = self._options

        def ask(connection: BrokerConnection) -> dict[str, QueueState]:
            if not self._is_subscribed:
                subscribe(connection, options)
                self._is_subscribed = True
            found = states(connection, options.given_names, options.pattern)
            others = [name for name in known if not covers(found, name) and connection.declare_passively(name)]
            if others:
                # This raises Away unless they run. So if the next answer lacks one, the options do not name it.
                states(connection, others, None)
                found = states(connection, options.given_names, options.pattern)
            # The planner's own leases are queues that it may read, and a pattern may fit their names.
            return {name: state for name, state in found.items() if not name.startswith(LEASE)}

        found = self._trying(ask)
        self._endpoints = tuple({each: None for state in found.values() for each in state.endpoints})
        if options.delete_on_commit != "false":
            self._trying(lambda connection: self._hold(connection, found.values()))
            self._warn_of_consumers(found.values())
        return found

    def _warn_of_consumers(self, found: Iterable[QueueState]) -> None:
        """Warn once of each queue whose messages other clients take away (SP-62)."""
        for state in found:
            if state.consumers and state.name not in self._warned:
                self._warned.add(state.name)
                log.warning(
                    "queue '%s' has %d consumer%s, and a query with deleteOnCommit: it lacks the messages that they "
                    "take. Give the query a queue of its own with 'exchange' and 'subscription'",
                    state.name,
                    state.consumers,
                    "s" if state.consumers > 1 else "",
                )

    def numbers_at(self, found: Mapping[str, QueueState], moment: int) -> dict[str, int]:
        """For each queue the number of the first message that arrived at this time (microseconds) or later."""
        return self._trying(
            lambda connection: {name: number_at(connection, state, moment) for name, state in found.items()}
        )

    def acknowledge(self, places: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Acknowledge each queue to before the place's number. Returns the queues for which that is done.

        It is to be done later for the others, because the broker does not answer, or the queue does not run. Queues
        that were deleted, or declared again, are passed over, which is done.
        """
        done = []
        with self._lock:
            try:
                connection = self._connected()
                for name, place in places.items():
                    if self._acknowledge(connection, name, place):
                        done.append(name)
            except (Away, Refused) as error:
                log.warning("queue '%s': not acknowledged yet: %s", self._shown, error)
                self._drop()
        return done

    def _acknowledge(self, connection: BrokerConnection, name: str, place: Mapping[str, Any]) -> bool:
        if place["next"] < 1:
            return True
        arguments: dict[str, Any] = {"x-warren-ack-to": place["next"] - 1}
        if place["id"] and "queue-id" in connection.features:
            arguments["x-warren-queue-id"] = place["id"]
        try:
            for _ in connection.consume(name, arguments):
                pass
        except Refused as refusal:
            connection.open_channel()
            if refusal.has_idle_queue:
                return False
            if not refusal.has_no_queue and "has id" not in refusal.text:
                log.warning("queue '%s': not acknowledged to %d: %s", name, place["next"] - 1, refusal)
        return True

    def _hold(self, connection: BrokerConnection, found: Iterable[QueueState]) -> None:
        """Declare the exclusive queue of each queue that is not held yet. Raises SparkSourceError E7."""
        for state in found:
            lease = f"{LEASE}{state.id or state.name}"
            deadline = time.monotonic() + LEASE_SECONDS
            while lease not in self._leases:
                try:
                    connection.call(methods.QueueDeclare(queue=lease, exclusive=True), methods.QueueDeclareOk)
                    self._leases.add(lease)
                except Refused as refusal:
                    connection.open_channel()
                    if refusal.code != 405:
                        raise
                    if time.monotonic() > deadline:
                        raise already_deleting(state.name, lease) from None
                    time.sleep(0.2)

    # -- the connection ---

    def _trying(self, action: Callable[[BrokerConnection], Result]) -> Result:
        """The result of the action, tried again while the broker is away. Raises SparkSourceError E3 and E5."""
        pause, since = PAUSES[0], time.monotonic()
        while True:
            try:
                with self._lock:
                    return action(self._connected())
            except Refused as refusal:
                self._drop()
                raise refused(self._shown, str(refusal)) from refusal
            except Away as away:
                self._drop()
                if time.monotonic() - since > self._options.reconnect_timeout:
                    raise broker_away(self._shown, str(away), self._options.reconnect_timeout, None) from away
                log.info("queue '%s': %s; trying again", self._shown, away)
                time.sleep(pause)
                pause = min(2 * pause, PAUSES[1])

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            connection = BrokerConnection(self._options, "spark/reading/planner", HEARTBEAT, others=self._endpoints)
            try:
                connection.require_warren()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            if self._beating is None:
                self._beating = threading.Thread(target=self._beat, name="warren heartbeats", daemon=True)
                self._beating.start()
        return self._connection

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT / 3):
            with self._lock:
                if self._connection is not None:
                    try:
                        self._connection.beat()
                    except Away:
                        self._drop()

    def _drop(self) -> None:
        """Give a broken connection up. Its leases have ended with it, and the next connection takes those that it
        needs.
        """
        connection, self._connection = self._connection, None
        self._leases.clear()
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._stopping.set()
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
        if self._beating is not None and self._beating is not threading.current_thread():
            self._beating.join()
