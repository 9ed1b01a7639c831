"""Benchmark: what a message between two actors costs. Run it with `python -m warren.bench.hop [messages]`.

It prints microseconds per message, or per round trip, the making of the message included, for each of these patterns.
The best of several runs counts.

    ping-pong   two processes send each other one message at a time, so that each is a turn and a round of its own
    burst       one process sends 50 messages a turn to another, as in a busy broker
    ask         `await self.ask(...)` and its answer
    client      `OutsideClient.ask` from another thread and its answer, with two thread switches
"""

from __future__ import annotations

import sys
import time
from typing import Any

from thespian.actors import ActorSystem

from ..runtime.contract import Contract, Sender, message
from ..runtime.loop.loop_base import LoopBase
from ..runtime.loop.outside import OutsideClient
from ..runtime.process import Process

#: Messages that `Flooder` sends in one turn.
BURST = 50

#: Runs of each pattern, of which the best counts.
RUNS = 5


class ToPlayer(Contract):
    """A process of this benchmark, which stands for both sides."""

    @message
    def run(self, count: int) -> None:
        """From outside: send `count` messages; answered when the last one has arrived."""

    @message
    def ball(self, number: int) -> None:
        """From the other side of ping-pong."""

    @message
    def more(self) -> None:
        """From itself: send the next burst."""

    @message
    def finish(self) -> None:
        """To the receiver of the bursts: this was the last one."""

    @message
    def finished(self) -> None:
        """From the receiver of the bursts: all have arrived."""

    @message
    def echo(self, number: int) -> int:
        """Answered with the number."""


to_player = ToPlayer()


class Pinger(Process):
    def on_run(self, sender: Sender, count: int) -> None:
        self.asker = sender
        self.left = count
        self.send(self.createActor(Ponger), to_player.ball(1))

    def on_ball(self, sender: Any, number: int) -> None:
        self.left -= 2
        if self.left > 0:
            self.send(sender, to_player.ball(number))
        else:
            self.reply(self.asker, None)


class Ponger(Process):
    def on_ball(self, sender: Any, number: int) -> None:
        self.send(sender, to_player.ball(number))


class Flooder(Process):
    def on_run(self, sender: Sender, count: int) -> None:
        self.asker = sender
        self.left = count
        self.sink = self.createActor(Sink)
        self.send(self.myAddress, to_player.more())

    def on_more(self, sender: Sender) -> None:
        sink = self.sink
        for number in range(BURST):
            self.send(sink, to_player.ball(number))
        self.left -= BURST
        if self.left > 0:
            self.send(self.myAddress, to_player.more())
        else:
            self.send(sink, to_player.finish())

    def on_finished(self, sender: Sender) -> None:
        self.reply(self.asker, None)


class Sink(Process):
    def __init__(self) -> None:
        self.count = 0

    def on_ball(self, sender: Sender, number: int) -> None:
        self.count += 1

    def on_finish(self, sender: Any) -> None:
        self.send(sender, to_player.finished())


class HopAsker(Process):
    async def on_run(self, sender: Sender, count: int) -> None:
        echo = self.createActor(Echo)
        for number in range(count):
            await self.ask(echo, to_player.echo(number))


class Echo(Process):
    def on_echo(self, sender: Sender, number: int) -> int:
        return number


def best(client: OutsideClient, system: ActorSystem, process: type[Process], count: int) -> float:
    """Microseconds per message of the best run."""
    times = []
    for _ in range(RUNS):
        address = system.createActor(process)
        start = time.perf_counter()
        client.ask(address, to_player.run(count))
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e6


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    system = ActorSystem(systemBase=LoopBase(), transientUnique=True)
    with OutsideClient(system) as client:
        print(f"ping-pong {best(client, system, Pinger, count):8.2f} us per hop")
        print(f"burst     {best(client, system, Flooder, count):8.2f} us per message")
        print(f"ask       {best(client, system, HopAsker, count // 10):8.2f} us per round trip")
        echo = system.createActor(Echo)
        start = time.perf_counter()
        for number in range(count // 50):
            client.ask(echo, to_player.echo(number))
        print(f"client    {(time.perf_counter() - start) / (count // 50) * 1e6:8.2f} us per round trip")
    system.shutdown()


if __name__ == "__main__":
    main()
