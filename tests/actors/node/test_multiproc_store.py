"""A virtual host with its queue, journal and message stores works on Thespian's own system bases (design section 2).

Each is an operating-system process. The test's `Office` is their parent, and stands for channel, Metadata and memory
monitor. All that they are started with, the disk included, and every message must be picklable.
"""

from __future__ import annotations

from typing import Any

import pytest
from thespian.actors import ActorSystem

from warren.actors.context.node_context import NodeContext
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp.errors import AmqpError
from warren.amqp.frames import build_content, content_body
from warren.routing.arguments.queue_settings import QueueSettings
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.process import Process
from warren.settings import Settings
from warren.store.messages.message import Origin

WAIT = 300
PROPS = b"\x10\x00\x02"
ID = "00000000000001" + "0" * 18


class Office(Process):
    """Answers `until` when the numbers of publishes and messages that it was asked for were confirmed and delivered."""

    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.published = 0
        self.confirmed: set[int] = set()
        self.bodies: list[bytes] = []
        self.tags: list[int] = []
        self.asker: Any = None
        #: Who waits until the queue that it made crash runs again.
        self.waiting: Any = None

    async def on_begin(self, sender: Any, root: str, rows: list[QueueRow]) -> list[QueueRow]:
        routing = RoutingTable()
        routing.add_vhost("/")
        self.context = NodeContext(
            "warren@test",
            Settings(data_dir=root),
            routing,
            self.myAddress,
            self.myAddress,
            memory_monitor=self.myAddress,
        )
        self.vhost = self.createActor(VhostSupervisor)
        supervisor, rows = await self.ask(self.vhost, ("start", self.context, "/", rows, frozenset()), WAIT)
        if not rows:
            rows = [await self.ask(supervisor, ("start_queue", QueueRow("/", "q", None, ID, True)), WAIT)]
        self.queue = rows[0].address
        return rows

    def on_publish(self, sender: Any, bodies: list[bytes]) -> None:
        origin = Origin("", ("q",), True)
        contents = [build_content(1, PROPS, body, 131072) for body in bodies]
        entry = (origin, contents, sum(map(len, bodies)), self.published + 1, True, 0)
        self.send(self.queue, ("publish", "channel", [entry]))
        self.published += len(bodies)

    def on_confirm(self, sender: Any, queue_id: str, ranges: list[tuple[int, int]]) -> None:
        for first, last in ranges:
            assert not self.confirmed & set(range(first, last + 1)), "confirmed twice"
            self.confirmed.update(range(first, last + 1))
        self.look()

    async def on_consume(self, sender: Any) -> bool:
        return await self.ask(
            self.queue, ("consume", "channel", self.myAddress, "t", False, False, 50, False, 0, (), "guest"), WAIT
        )

    def on_deliver(self, sender: Any, queue_id: str, tag: str, runs: list[tuple[Any, ...]]) -> None:
        for _, _, tags, contents in runs:
            self.bodies += map(content_body, contents)
            self.send(self.queue, ("sent", "channel", len(contents)))
            self.send(self.queue, ("settle", "channel", "ack", [tags]))
        self.look()

    def on_until(self, sender: Any, confirms: int, bodies: int) -> None:
        self.asker, self.wanted = sender, (confirms, bodies)
        self.look()

    def look(self) -> None:
        if self.asker is not None and len(self.confirmed) >= self.wanted[0] and len(self.bodies) >= self.wanted[1]:
            self.reply(self.asker, self.bodies)
            self.asker = None

    async def on_get(self, sender: Any) -> bytes | None:
        delivery, _ = await self.ask(self.queue, ("get", "channel", self.myAddress, True), WAIT)
        return None if delivery is None else content_body(delivery[3][0])

    def on_crash_queue(self, sender: Any) -> None:
        """Make the queue crash; answered when it runs again."""
        self.waiting = sender
        self.send(self.queue, ("no such message",))

    def on_queue_restarted(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        assert self.waiting is not None, "the queue was restarted, and nobody had crashed it"
        self.queue = address
        self.reply(self.waiting, True)
        self.waiting = None

    async def on_page_out(self, sender: Any) -> bool:
        self.send(self.queue, ("ram_duration_target", 0.0))
        self.send(self.queue, ("apply_settings", QueueSettings(queue_mode="lazy")))
        return await self.ask(self.queue, ("flush_synced",), WAIT)

    def on_duration(self, sender: Any, queue: str, seconds: float) -> float:
        return float("inf")

    async def on_end(self, sender: Any) -> bool:
        await self.ask(self.vhost, ("terminate",), WAIT)
        return True

    def on_unknown(self, sender: Any, message: Any) -> None:
        """Ignored: grants of credit, and messages to Metadata."""


def ask(system: ActorSystem, address: Any, *message: Any) -> Any:
    answer = system.ask(address, ("ask", 1, message), WAIT)
    assert answer is not None and answer[2] is True, answer
    return answer[3]


@pytest.fixture(params=["simpleSystemBase", "multiprocTCPBase"])
def system(request, running_stock_system):
    with running_stock_system(request.param) as system:
        yield system


def test_confirm_crash_page_consume_and_start_again(system, tmp_path):
    """Small and large bodies survive a crash of the queue alone and an orderly stop (QS-17, QS-37, QS-39)."""
    small = [b"%d" % number for number in range(100)]
    large = [b"%d:" % number + b"x" * 10_000 for number in range(20)]
    office = system.createActor(Office)
    rows = ask(system, office, "begin", str(tmp_path), [])
    for bodies in (small, large):
        system.tell(office, ("publish", bodies))
    ask(system, office, "until", len(small + large), 0)
    assert ask(system, office, "get") == small[0]

    assert ask(system, office, "crash_queue") is True
    assert ask(system, office, "get") == small[1]
    assert ask(system, office, "page_out") is True
    assert ask(system, office, "get") == small[2]
    assert list(tmp_path.glob("vhosts/*/queues/100/0.idx"))
    system.tell(office, ("publish", large))
    ask(system, office, "until", len(small + large + large), 0)
    assert ask(system, office, "end") is True

    office = system.createActor(Office)
    ask(system, office, "begin", str(tmp_path), rows)
    assert ask(system, office, "consume") is True
    wanted = small[3:] + large + large
    assert ask(system, office, "until", 0, len(wanted)) == wanted
    assert ask(system, office, "get") is None
