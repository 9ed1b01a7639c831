"""What a hop between two actors costs: `python -m warren.bench.hop [messages]`.

Prints, for each shape, microseconds per message, the best of several runs:

    ping-pong   two processes, one message at a time: every message is a turn and a round of its own
    burst       a process sends 50 messages a turn, another takes them: what a busy broker looks like
    ask         await self.ask(...) and its answer, both ways
    client      OutsideClient.ask from another thread, both ways, with two thread switches
"""

from __future__ import annotations

import sys
import time
from typing import Any

from thespian.actors import ActorSystem

from ..runtime.loop.loop_base import LoopBase
from ..runtime.loop.outside import OutsideClient
from ..runtime.process import Process

BURST = 50
RUNS = 5


class Player(Process):
    def on_serve(self, sender: Any, count: int) -> None:
        self.asker = sender
        self.left = count
        self.send(self.createActor(Wall), ("ball", 1))

    def on_ball(self, sender: Any, number: int) -> None:
        self.left -= 2
        if self.left > 0:
            self.send(sender, ("ball", number))
        else:
            self.reply(self.asker, None)


class Wall(Process):
    def on_ball(self, sender: Any, number: int) -> None:
        self.send(sender, ("ball", number))


class Flooder(Process):
    def on_flood(self, sender: Any, count: int) -> None:
        self.asker = sender
        self.left = count
        self.sink = self.createActor(Sink)
        self.send(self.myAddress, ("more",))

    def on_more(self, sender: Any) -> None:
        sink = self.sink
        for number in range(BURST):
            self.send(sink, ("drop", number))
        self.left -= BURST
        if self.left > 0:
            self.send(self.myAddress, ("more",))
        else:
            self.send(sink, ("flush",))

    def on_flushed(self, sender: Any, count: int) -> None:
        self.reply(self.asker, count)


class Sink(Process):
    def __init__(self) -> None:
        self.count = 0

    def on_drop(self, sender: Any, number: int) -> None:
        self.count += 1

    def on_flush(self, sender: Any) -> None:
        self.send(sender, ("flushed", self.count))


class Asker(Process):
    async def on_run(self, sender: Any, count: int) -> None:
        echo = self.createActor(Echo)
        for number in range(count):
            await self.ask(echo, ("echo", number))


class Echo(Process):
    def on_echo(self, sender: Any, number: int) -> int:
        return number


def best(client: OutsideClient, system: ActorSystem, process: type[Process], name: str, count: int) -> float:
    """Microseconds per message."""
    times = []
    for _ in range(RUNS):
        address = system.createActor(process)
        start = time.perf_counter()
        client.ask(address, (name, count))
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e6


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    system = ActorSystem(systemBase=LoopBase(), transientUnique=True)
    with OutsideClient(system) as client:
        print(f"ping-pong {best(client, system, Player, 'serve', count):8.2f} us per hop")
        print(f"burst     {best(client, system, Flooder, 'flood', count):8.2f} us per message")
        print(f"ask       {best(client, system, Asker, 'run', count // 10):8.2f} us per round trip")
        echo = system.createActor(Echo)
        start = time.perf_counter()
        for number in range(count // 50):
            client.ask(echo, ("echo", number))
        print(f"client    {(time.perf_counter() - start) / (count // 50) * 1e6:8.2f} us per round trip")
    system.shutdown()


if __name__ == "__main__":
    main()
