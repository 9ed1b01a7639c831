"""Conversations: files that list what clients and a machine do, step by step, and what each step leads to.

    # A comment.
    node store=1 queues=orders

    carol/1 publish queue=orders count=1 persistent=1 size=20
    ----
    carol/1  publishes message 1 to orders (persistent, 20 bytes)
    carol/1  receives the confirm of message 1

    hold durable from journal to queue orders
    carol/1 publish queue=orders count=1 persistent=1 size=20
    crash queue orders
    ----
    ...

    end
    ----
    auditor/2 receives message 1 from orders (redelivered) as c1

The first paragraph describes the node, as in a plan (`plan`). Each other paragraph is a **step**: commands, `----`, and
what clients and machine reported until nothing moved any more, ordered by who reported it, confirms last. Commands of
one step are given at once, without waiting between them. These are the commands:

    CLIENT/CHANNEL ...            an action of a client, as in a plan, without `then`
    machine ...                   an action of the machine, as in a plan, without `then`
    crash PROCESS                 this process crashes now
    crash PROCESS at MESSAGE      it crashes instead of handling the next message of this name
    crash PROCESS after MESSAGE   it crashes when it has handled the next message of this name
    hold MESSAGE [from PROCESS] to PROCESS
                                  from the next message of this name on, everything that its sender sends to the same
                                  process waits in the mailbox
    hold calls of PROCESS         the blocking calls of this process are not made
    release [MESSAGE | calls]     what a hold of this name has held may happen, or everything that is held
    wait MS                       this many milliseconds pass
    end                           the last step: faults are undone, every client leaves, and the auditor empties the
                                  queues; only the auditor's reports are compared

MESSAGE is the name of a message in the process's contract, whether it is sent or asked; `answer` for an answer; or
`down`, `timer`, `exited`. PROCESS is one of `PROCESSES`; `queue`, `connection`, `channel` and `store` may have a name,
such as `queue orders`, `connection bob`, `channel bob/1`, `store persistent`.

A conversation holds back what must not happen yet, and so it names the order that it is about. No other order may
matter: whatever order the scheduler takes, the same reports follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..plan import CLIENTS, Action, Plan, parse_action, parse_plan

#: Separates the commands of a step from what follows.
MARK = "----"
#: The class of each process that a command can name.
PROCESSES = {
    "alarms": "Alarms",
    "channel": "Channel",
    "connection": "Connection",
    "journal": "Journal",
    "listener": "Listener",
    "metadata": "Metadata",
    "node": "NodeSupervisor",
    "queue": "Queue",
    "queue-supervisor": "QueueSupervisor",
    "store": "MessageStore",
    "vhost-supervisor": "VhostSupervisor",
}
_NAMED = ("channel", "connection", "queue", "store")


class ConversationError(ValueError):
    """A conversation cannot be read; the text begins with file and line."""


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process as a command names it; `name` is empty for any process of the class."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class HoldCommand:
    """Hold the messages of this name, which `receiver` gets from `sender`, or from anybody."""

    message: str
    receiver: ProcessName
    sender: ProcessName | None = None


@dataclass(frozen=True, slots=True)
class HoldCallsCommand:
    """Hold the blocking calls of a process."""

    process: ProcessName


@dataclass(frozen=True, slots=True)
class ReleaseCommand:
    """End the holds of messages of this name, or of `calls`; empty for all holds."""

    what: str = ""


@dataclass(frozen=True, slots=True)
class CrashCommand:
    """Crash a process now, or `when` it gets the next message of this name."""

    process: ProcessName
    when: Literal["now", "at", "after"] = "now"
    message: str = ""


@dataclass(frozen=True, slots=True)
class WaitCommand:
    seconds: float


@dataclass(frozen=True, slots=True)
class EndCommand:
    """The last step."""


Command = Action | HoldCommand | HoldCallsCommand | ReleaseCommand | CrashCommand | WaitCommand | EndCommand


@dataclass(frozen=True, slots=True)
class ConversationStep:
    """Commands that are given at once, and what follows.

    where   file and line of the first command
    text    the commands as they stand in the file, with comments
    """

    where: str
    text: str
    commands: tuple[Command, ...]
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """See the module. `head` is the first paragraph as it stands in the file."""

    head: str
    plan: Plan
    steps: tuple[ConversationStep, ...]

    def with_reports(self, reports: Sequence[Sequence[str]]) -> str:
        """The text of the file, in which these reports follow the steps."""
        steps = ["\n".join([step.text, MARK, *lines]) for step, lines in zip(self.steps, reports)]
        return "\n\n".join([self.head, *steps]) + "\n"


def parse_conversation(text: str, file: str = "conversation") -> Conversation:
    """Raises ConversationError."""
    paragraphs = list(_paragraphs(text))
    if not paragraphs:
        raise ConversationError(f"{file}:1: a conversation begins with a line 'node ...'")
    number, lines = paragraphs[0]
    head = "\n".join(lines)
    try:
        plan = parse_plan(head)
    except ValueError as error:
        raise ConversationError(f"{file}:{number}: {error}") from error
    if plan.actions:
        raise ConversationError(f"{file}:{number}: an empty line must follow the line 'node ...'")
    steps = [_step(lines, file, number) for number, lines in paragraphs[1:]]
    commands = [command for step in steps for command in step.commands]
    if not commands or not isinstance(commands[-1], EndCommand) or commands.count(commands[-1]) > 1:
        raise ConversationError(f"{file}:{len(text.splitlines())}: a conversation ends with its only 'end'")
    return Conversation(head, plan, tuple(steps))


def _paragraphs(text: str) -> list[tuple[int, list[str]]]:
    """The paragraphs, each with the number of its first line."""
    found: list[tuple[int, list[str]]] = []
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            is_open = False
        elif is_open:
            found[-1][1].append(line.rstrip())
        else:
            found.append((number, [line.rstrip()]))
            is_open = True
    return found


def _step(lines: list[str], file: str, number: int) -> ConversationStep:
    if MARK not in lines:
        raise ConversationError(f"{file}:{number}: '{MARK}' must follow the commands of a step")
    mark = lines.index(MARK)
    commands: list[Command] = []
    where = ""
    for at, line in enumerate(lines[:mark], number):
        if line.startswith("#"):
            continue
        where = where or f"{file}:{at}"
        try:
            commands.append(_command(line))
        except ValueError as error:
            raise ConversationError(f"{file}:{at}: {error}") from error
    if not commands:
        raise ConversationError(f"{file}:{number}: a step has no command")
    return ConversationStep(where, "\n".join(lines[:mark]), tuple(commands), tuple(lines[mark + 1 :]))


def _command(line: str) -> Command:
    """The command in a line. Raises ValueError."""
    word, *words = line.split()
    if word == "release" and len(words) < 2:
        return ReleaseCommand(*words)
    if word == "end" and not words:
        return EndCommand()
    if word == "wait" and len(words) == 1 and words[0].isdigit():
        return WaitCommand(int(words[0]) / 1000)
    if word == "crash":
        return _crash(words, line)
    if word == "hold":
        return _hold(words, line)
    if word.partition("/")[0] not in (*CLIENTS, "machine"):
        raise ValueError(f"'{word}' is no command and no client: {line}")
    action = parse_action(line)
    if action.then:
        raise ValueError(f"'then' has no meaning in a conversation: {line}")
    return action


def _crash(words: list[str], line: str) -> CrashCommand:
    for when in ("at", "after"):
        if when in words:
            at = words.index(when)
            if len(words) != at + 2:
                raise ValueError(f"the name of one message must follow '{when}': {line}")
            return CrashCommand(_process(words[:at], line), when, words[-1])
    return CrashCommand(_process(words, line))


def _hold(words: list[str], line: str) -> HoldCommand | HoldCallsCommand:
    if words[:2] == ["calls", "of"]:
        return HoldCallsCommand(_process(words[2:], line))
    if "to" not in words:
        raise ValueError(f"a hold is 'hold MESSAGE [from PROCESS] to PROCESS' or 'hold calls of PROCESS': {line}")
    to = words.index("to")
    receiver = _process(words[to + 1 :], line)
    if to == 1:
        return HoldCommand(words[0], receiver)
    if words[1] != "from":
        raise ValueError(f"'from' or 'to' must follow the name of the message: {line}")
    return HoldCommand(words[0], receiver, _process(words[2:to], line))


def _process(words: list[str], line: str) -> ProcessName:
    if not words or words[0] not in PROCESSES:
        raise ValueError(f"'{' '.join(words)}' is no process; processes are {', '.join(PROCESSES)}: {line}")
    if len(words) > 2 or len(words) == 2 and words[0] not in _NAMED:
        raise ValueError(f"'{' '.join(words)}' has too many words for a process: {line}")
    return ProcessName(*words)
