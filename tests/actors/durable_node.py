"""A node on a data directory. A test can end it in every way, and send it requests without a connection."""

from __future__ import annotations

import threading
from typing import Any

from thespian.actors import ActorSystem

from warren.actors.metadata.process import Metadata
from warren.actors.node.process import NodeSupervisor
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.settings import Settings
from warren.store.data_dir.data_dir import claim
from warren.store.data_dir.metadata_store import MetadataStore, MetadataWriteError

from .meta import Meta

WAIT = 300.0


class DurableNode:
    """A node that runs until `stop` or `drop`. `meta` sends requests to its Metadata; `routing` is its
    routing table.
    """

    def __init__(self, data_dir: Any) -> None:
        self.claim = claim(str(data_dir), "warren@test")
        self.base = LoopBase(shutdown_seconds=2.0)
        system = ActorSystem(systemBase=self.base, transientUnique=True)
        self.client = OutsideClient(system)
        self.address = system.createActor(NodeSupervisor)
        try:
            self.client.ask(
                self.address,
                ("start", Settings(port=0, data_dir=str(data_dir), stop_timeout=2000, node_name="warren@test")),
                WAIT,
            )
        except BaseException:
            self.drop()
            raise
        self.metadata = next(
            cell.actor for cell in self.base.cells.values() if type(getattr(cell, "actor", None)) is Metadata
        )
        self.meta = Meta(self.client, self.metadata.myAddress)
        self.routing = self.metadata.routing
        self.state = self.metadata.state

    def __enter__(self) -> DurableNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def stop(self) -> None:
        """Stop the node as an operator does."""
        self.client.ask(self.address, ("stop", "shutdown"), WAIT)
        self.drop()

    def drop(self) -> None:
        """End every process without stopping it."""
        self.client.close()
        self.base.shutdown()
        self.claim.release()

    def ask_node(self, *message: Any) -> Any:
        return self.client.ask(self.address, message, WAIT)

    def durable(self) -> dict[str, list[Any]]:
        """The part of the routing table that must be the same after a restart."""
        names = self.routing.vhosts()
        exchanges = [row for name in names for row in self.state.vhosts[name].exchanges.values() if row.durable]
        queues = [row for name in names for row in self.routing.queues(name) if row.durable]
        ends = {(row.vhost, "exchange", row.name) for row in exchanges} | {
            (row.vhost, "queue", row.name) for row in queues
        }
        bindings = [
            (name, item)
            for name in names
            for item, _ in self.state.vhosts[name].bindings()
            if {(name, "exchange", item.source), (name, *item.target)} <= ends
        ]
        plain = [(row.vhost, row.name, row.queue_id, row.auto_delete, row.arguments, row.type) for row in queues]
        return {
            kind: sorted(rows, key=repr)
            for kind, rows in (
                ("vhosts", list(names)),
                ("exchanges", exchanges),
                ("queues", plain),
                ("bindings", bindings),
            )
        }


class Background:
    """A call that runs in a thread. `result()` waits for its value or error."""

    def __init__(self, function: Any, *arguments: Any, **options: Any) -> None:
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(function, arguments, options), daemon=True)
        self._thread.start()

    def _run(self, function: Any, arguments: Any, options: Any) -> None:
        try:
            self._outcome.append(function(*arguments, **options))
        except Exception as error:
            self._outcome.append(error)

    def is_done(self) -> bool:
        return bool(self._outcome)

    def result(self) -> Any:
        self._thread.join(WAIT)
        assert self._outcome, "it does not answer"
        if isinstance(self._outcome[0], Exception):
            raise self._outcome[0]
        return self._outcome[0]


class Disk:
    """Stands between each MetadataStore and its disk: counts commits, delays them, and lets them fail before or after
    they are written.
    """

    def __init__(self, monkeypatch: Any) -> None:
        self.commits: list[list[Any]] = []
        #: For each of the next commits: None succeeds, "lost" fails before it is written, and "landed" is written and
        #: reported as failed.
        self.faults: list[str | None] = []
        self.is_full = False
        self.open = threading.Event()
        self.open.set()
        real = MetadataStore.apply

        def apply(store: MetadataStore, changes: list[Any]) -> None:
            assert self.open.wait(WAIT)
            self.commits.append(changes)
            fault = "lost" if self.is_full else self.faults.pop(0) if self.faults else None
            if fault != "lost":
                real(store, changes)
            if fault is not None:
                raise MetadataWriteError("No space left on device")

        monkeypatch.setattr(MetadataStore, "apply", apply)

    def hold(self) -> None:
        self.open.clear()

    def release(self) -> None:
        self.open.set()
