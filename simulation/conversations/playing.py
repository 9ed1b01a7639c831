"""`Player`: plays a conversation (`conversation`) and returns what followed each of its steps.

    reports = Player(parse_conversation(text)).play()

Without a seed the world takes every step in the plainest order. With a seed it takes any order that the conversation
leaves open, and the reports must be the same.
"""

from __future__ import annotations

from typing import Any

from thespian.actors import ChildActorExited

from ...actors.channel import Channel
from ...actors.channel.inspection import ChannelView
from ...actors.connection import Connection
from ...actors.disk.inspection import MessageStoreView
from ...actors.disk.message_store import MessageStore
from ...actors.queue.inspection import QueueView
from ...actors.queue.process import Queue
from ...runtime.sim import holds as held
from ...runtime.sim.sim_base import SimBase
from ...runtime.sim.trace import Describe, message_name
from ...runtime.system.cell import Cell
from ..audit import AUDITOR
from ..schedule import Schedule
from ..shrinking import plainest
from .conversation import (
    PROCESSES,
    Command,
    Conversation,
    ConversationStep,
    CrashCommand,
    EndCommand,
    HoldCallsCommand,
    HoldCommand,
    ProcessName,
    ReleaseCommand,
    WaitCommand,
)

#: Virtual seconds within which a step comes to an end.
SETTLE_SECONDS = 5.0
#: A timer that is due this soon is part of what moves, for example that of a store which waits for more to write.
SHORT_TIMER = 0.02
#: The names of messages that no contract has.
_SYSTEM_NAMES = {"$answer": "answer", "$down": "down", "$timer": "timer"}


class ConversationBroken(AssertionError):
    """A step of a conversation broke a promise, or could not be done; the text begins with file and line."""


class Player:
    """See the module. `describe` shows messages in the trace of the world."""

    def __init__(self, conversation: Conversation, seed: int | None = None, describe: Describe = message_name) -> None:
        self.conversation = conversation
        self.schedule = Schedule(conversation.plan, seed or 0, plainest() if seed is None else None, describe)
        #: How many lines of the story earlier steps have already reported as their output.
        self._reported = 0
        #: What is held: the name in the command, the system of actors in which it is held, and the hold itself.
        self._holds: list[tuple[str, SimBase, held.Hold | held.HeldCalls]] = []
        #: Crashes that have not happened yet.
        self._crashes_ahead: list[CrashCommand] = []

    def play(self) -> list[list[str]]:
        """Play all steps. Raises ConversationBroken."""
        try:
            self.schedule.begin()
            return [self._play_step(step) for step in self.conversation.steps]
        finally:
            self.schedule.close()

    def _play_step(self, step: ConversationStep) -> list[str]:
        try:
            for command in step.commands:
                self._do(command)
            self._settle()
        except AssertionError as error:
            raise ConversationBroken(f"{step.where}: {error}\n\n{self._story()}") from error
        told = self.schedule.told[self._reported :]
        self._reported += len(told)
        if isinstance(step.commands[-1], EndCommand):
            told = [line for line in told if line[1].startswith(AUDITOR)]
        return [f"{who:8} {text}" for _, who, text in sorted(told, key=_place)]

    def _story(self) -> str:
        return "\n".join(f"{who:8} {text}" for _, who, text in self.schedule.told)

    # -- commands ---

    def _do(self, command: Command) -> None:
        schedule = self.schedule
        if isinstance(command, EndCommand):
            self._end()
        elif isinstance(command, WaitCommand):
            schedule.world.run(command.seconds)
        elif isinstance(command, ReleaseCommand):
            self._release(command)
        elif isinstance(command, (HoldCommand, HoldCallsCommand)):
            self._hold(command)
        elif isinstance(command, CrashCommand):
            self._crash(command)
        else:
            schedule.perform(command)

    def _hold(self, command: HoldCommand | HoldCallsCommand) -> None:
        base = self._base()
        if isinstance(command, HoldCommand):
            what, hold = command.message, held.Hold(lambda *arguments: self._is_to_hold(command, *arguments))
            base.hold(hold)
            self._holds.append((what, base, hold))
        else:
            calls = held.HeldCalls(lambda address: self._is(address, command.process))
            base.hold(calls)
            self._holds.append(("calls", base, calls))

    def _is_to_hold(self, command: HoldCommand, sender: str, receiver: str, message: Any) -> bool:
        return (
            _name_of(message) == command.message
            and self._is(receiver, command.receiver)
            and (command.sender is None or self._is(sender, command.sender))
        )

    def _release(self, command: ReleaseCommand) -> None:
        released = [each for each in self._holds if command.what in ("", each[0])]
        if not released:
            raise AssertionError(f"nothing of this name is held: '{command.what}'")
        for each in released:
            self._holds.remove(each)
            what, base, hold = each
            if not hold.has_held:
                raise AssertionError(f"the hold of '{what}' has held nothing")
            base.release(hold)

    def _end(self) -> None:
        for what, base, _ in self._holds:
            if base is self.schedule.node.base:
                raise AssertionError(f"'{what}' is held and never released")
        for crash in self._crashes_ahead:
            raise AssertionError(f"{crash.process} has not crashed: no message '{crash.message}' came")
        self.schedule.finish()

    def _crash(self, command: CrashCommand) -> None:
        faults = self.schedule.faults
        if command.when != "now":
            self._crashes_ahead.append(command)
            faults.crash_at(lambda address, message: self._crashes(address, message, command), command.when == "after")
            return
        found = [
            cell
            for address, cell in self._base().cells.items()
            if isinstance(cell, Cell) and cell.actor is not None and self._is(address, command.process)
        ]
        if not found:
            raise AssertionError(f"there is no {command.process} to crash")
        faults.crash_now(found[0])

    def _crashes(self, address: str, message: Any, command: CrashCommand) -> bool:
        is_met = _name_of(message) == command.message and self._is(address, command.process)
        if is_met:
            self._crashes_ahead.remove(command)
        return is_met

    def _settle(self) -> None:
        """Run until nothing moves, except what is held."""
        world = self.schedule.world
        end = world.time + SETTLE_SECONDS
        while world.time < end:
            if not world.settle(SETTLE_SECONDS):
                break
            before = world.steps
            world.run(SHORT_TIMER)
            if world.steps == before:
                return
        raise AssertionError("the node does not come to rest")

    # -- processes and messages ---

    def _base(self) -> SimBase:
        base = self.schedule.node.base
        if base is None:
            raise AssertionError("the node does not run")
        return base

    def _is(self, address: str, process: ProcessName) -> bool:
        """Whether this is the address of the process; of a process that has ended, only its class is known."""
        if f"/{PROCESSES[process.kind]}-" not in address:
            return False
        base = self.schedule.node.base
        cell = base.cells.get(address) if base is not None else None
        if not process.name or not isinstance(cell, Cell) or cell.actor is None:
            return True
        return self._name(cell.actor) == process.name

    def _name(self, actor: Any) -> str:
        if type(actor) is Queue:
            return QueueView(actor).name if QueueView(actor).is_started else ""
        if type(actor) is MessageStore:
            return MessageStoreView(actor).name.rpartition("_")[2]
        client = self.schedule.faults.client_of(actor)
        if client is None:
            return ""
        if type(actor) is Channel:
            return f"{client.name}/{ChannelView(actor).number}"
        assert type(actor) is Connection
        return client.name


def _name_of(message: Any) -> str:
    """The name of a message, of what is asked in it, or of what the runtime reports with it."""
    if isinstance(message, ChildActorExited):
        return "exited"
    if type(message) is not tuple or not message:
        return type(message).__name__
    if message[0] == "ask":
        return str(message[2][0])
    return _SYSTEM_NAMES.get(message[0], str(message[0]))


def _place(line: tuple[float, str, str]) -> tuple[str, bool]:
    """Where a line of the story stands among those of its step: what one channel reported stays in order.

    Confirms stand last, because between them and other methods no order is promised.
    """
    _, who, text = line
    return who, text.startswith(("receives the confirm", "receives a nack"))
