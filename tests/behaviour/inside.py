"""Access to the processes of an embedded broker, for tests that crash or inspect them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from select import select
from typing import Any

from warren.actors.connection.process import Connection
from warren.actors.node.process import NodeSupervisor
from warren.actors.queue.process import Queue
from warren.routing.table import RoutingTable
from warren.tests.behaviour.wire import Client

#: Seconds that a test waits for a change, because a busy machine may be slow.
PATIENCE = 60.0


class Inside:
    """Runs functions on the broker's thread, between two turns of its processes."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self._base = broker._node._base

    def call(self, function: Callable[[], Any]) -> Any:
        return self._base.call(function)

    def queue(self, name: str) -> Queue:
        """The process of the queue."""
        return self.call(lambda: self._queue(name))

    def await_settings(self, name: str, are_there: Callable[[Any], bool]) -> None:
        """Return when the queue has these settings. The change of a policy is answered before queues apply it."""
        deadline = time.monotonic() + PATIENCE
        while not self.call(lambda: are_there(self._queue(name).settings)):
            assert time.monotonic() < deadline, "the policy is not applied"
            time.sleep(0.001)

    def _queue(self, name: str) -> Queue:
        return next(queue for queue in self._actors(Queue) if queue.row.name == name)

    def reset(self, client: Client, then: Callable[[], Any]) -> None:
        """Reset the client's connection and call `then`, which sends something on another one.

        The broker sees both when it next looks at its sockets. Without waiting here, a busy system may deliver the
        reset after what was sent later.
        """
        self.call(lambda: self._reset(client, then))

    def _reset(self, client: Client, then: Callable[[], Any]) -> None:
        actors = [
            cell.actor for cell in self._base.cells.values() if isinstance(getattr(cell, "actor", None), Connection)
        ]
        end = next(actor.sock for actor in actors if actor.sock.getpeername() == client.socket.getsockname())
        client.reset()
        assert select([end], [], [], 10.0)[0], "the reset has not arrived"
        then()

    def node(self) -> NodeSupervisor:
        """The process that starts all others."""
        return self._actors(NodeSupervisor)[0]

    def _actors(self, kind: type[Any]) -> list[Any]:
        actors = [getattr(cell, "actor", None) for cell in self._base.cells.values()]
        return [actor for actor in actors if isinstance(actor, kind)]

    def routing(self) -> RoutingTable:
        return self.call(self.node).routing

    def crash(self, name: str) -> None:
        """Crash the queue's process with a message that it cannot handle."""
        self.call(lambda: self._crash(name))

    def _crash(self, name: str) -> None:
        queue = self._queue(name)
        self._base.enqueue(queue.myAddress, queue.myAddress, ("publish", "nobody", None))

    def crash_for_good(self, name: str) -> None:
        """Crash the queue until its supervisor restarts it no more."""
        while self.call(lambda: self.routing_state(name)) == "running":
            self.call(lambda: self._crash(name))
            self.broker.wait_idle()

    def routing_state(self, name: str) -> str:
        return self.routing().queue("/", name).state

    def crash_at_publish(self, name: str) -> None:
        """Crash the queue's process when the next message is published to it."""

        def fail(*_: Any) -> None:
            raise RuntimeError("a crash for a test")

        self._handle_instead(name, {"publish": fail})

    def _handle_instead(self, name: str, changed: dict[str, Callable[..., Any]]) -> None:
        """Replace these handlers of the queue's process; an empty mapping restores all of them."""
        queue = self.queue(name)
        cell = queue.myAddress._cell
        self.call(lambda: setattr(cell, "handlers", {**type(queue)._handlers, **changed}))

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """While inside, the queue's process leaves publishes in its mailbox; it handles them afterwards."""
        held: list[tuple[Any, ...]] = []
        self._handle_instead(
            name,
            {"publish": lambda queue, sender, *fields: held.append((sender, queue.myAddress, ("publish", *fields)))},
        )
        yield
        self._handle_instead(name, {})
        self.call(lambda: [self._base.enqueue(*message) for message in held])

    @contextmanager
    def ignoring(self, name: str) -> Iterator[None]:
        """While inside, the queue's process ignores all messages."""
        self._handle_instead(name, dict.fromkeys(Queue._handlers, lambda *_: None))
        yield
        self._handle_instead(name, {})

    def delete_immediately(self, name: str) -> None:
        """Delete the queue with a message to its process, without Metadata (AB-179)."""
        queue = self.queue(name)
        self.call(lambda: self._base.enqueue(queue.myAddress, queue.myAddress, ("delete", False, False)))

    def give_extra_queue(self, name: str, extra: str) -> None:
        """Set the extra queue of a queue, an internal option (AB-79)."""

        def give() -> None:
            routing = self.routing()
            routing.put_queue(replace(routing.queue("/", name), extra_queue=extra))

        self.call(give)
