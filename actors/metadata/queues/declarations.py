"""`Declarations`: makes commands of the requests that declare queues, and has them carried out in their order.

One request may declare several queues, which then share a commit. It has the effect of as many requests one after the
other, each of which is made when the one before is answered: no queue behind one that is refused is declared. On a node
that is alone, the next command is proposed as soon as nothing but the disk can refuse the one before. The log of a
cluster refuses commands later, so there each command is proposed when the one before is answered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....amqp.errors import AmqpError
from ....routing.arguments.shard_arguments import MAX_SHARDS
from ....routing.phrases import generated_name
from ....routing.queue_types import queue_type, with_default_type
from ....routing.rows import QueueRow
from ....routing.shards import new_shards, shard_count
from ....runtime.errors import ProcessError
from ....runtime.process import Process
from ....runtime.signal import Signal
from ..state.commands import DeclareQueue
from ..state.state import State
from ..turns import Turns
from .homes import Homes
from .queues import Queues

if TYPE_CHECKING:
    from ....runtime.contract import Sender
    from ...contracts.metadata import QueueDeclaration
    from ..log.log import Log


class _Declaring:
    """The declaration of one of several queues, in the process `process`."""

    __slots__ = ("_ended", "answer", "is_over")

    def __init__(self, process: Process) -> None:
        self._ended = Signal(process)
        #: The queue's row, and whether it is new; None as long as it is not declared.
        self.answer: tuple[QueueRow, bool] | None = None
        self.is_over = False

    async def declare(self, queues: Queues, command: DeclareQueue) -> None:
        try:
            self.answer = await queues.declare(command)
        except (AmqpError, ProcessError):
            self._ends()
            raise
        self._ends()

    def _ends(self) -> None:
        self.is_over = True
        self._ended.wake_all()

    async def ends(self) -> None:
        await self._ended.wait_for(lambda: self.is_over)

    @property
    def has_failed(self) -> bool:
        return self.is_over and self.answer is None


class Declarations:
    """Belongs to `process`, the Metadata."""

    def __init__(self, process: Process, turns: Turns, log: Log, state: State, homes: Homes, queues: Queues) -> None:
        self._process = process
        self._turns = turns
        self._log = log
        self._state = state
        self._homes = homes
        self._queues = queues

    def declare(self, sender: Sender, vhost: str, declared: QueueDeclaration, by: str, is_typed: bool) -> None:
        """Declare a queue, and answer `sender` with its row and whether it is new.

        `is_typed`: the arguments stay as they are, even if they have no type and the virtual host has a default.
        """
        command = self._command(vhost, declared if is_typed else self._typed(vhost, declared), by)
        self._turns.take((vhost, command.row.name), sender, self._queues.declare, command)

    async def declare_all(self, vhost: str, declares: list[QueueDeclaration], by: str) -> list[tuple[QueueRow, bool]]:
        """Declare named queues in this order, and return the answers before the first refusal."""
        begun: list[_Declaring] = []
        for declared in declares:
            command, key = self._command(vhost, self._typed(vhost, declared), by), (vhost, declared[0])
            is_decided = self._log.refuses_at_once and not self._turns.is_taken(key)
            declaring = _Declaring(self._process)
            begun.append(declaring)
            self._turns.take(key, self._process.myAddress, declaring.declare, self._queues, command)
            if not is_decided:
                await declaring.ends()
            if declaring.has_failed:
                break
        answers = []
        for declaring in begun:
            await declaring.ends()
            if declaring.answer is None:
                break
            answers.append(declaring.answer)
        return answers

    def _typed(self, vhost: str, declared: QueueDeclaration) -> QueueDeclaration:
        """The declaration with the default type of the virtual host, if it is without a type (AB-91).

        The command contains the type, because nodes of older versions, which add none, apply the same commands.
        """
        name, durable, exclusive_owner, auto_delete, arguments = declared
        default = self._state.definitions.default_queue_type(vhost)
        if not default:
            return declared
        row = self._state.queue(vhost, name)
        is_permanent = durable and exclusive_owner is None and not auto_delete
        arguments = with_default_type(arguments, default, is_permanent, None if row is None else row.arguments)
        return name, durable, exclusive_owner, auto_delete, arguments

    def _command(self, vhost: str, declared: QueueDeclaration, by: str) -> DeclareQueue:
        """The command that declares a queue. An empty name is generated."""
        name, durable, exclusive_owner, auto_delete, arguments = declared
        random_bytes = self._process.random_bytes
        server_named = not name
        if server_named:
            name = generated_name("amq.gen", random_bytes(16))
        kind, is_exclusive = queue_type(arguments), exclusive_owner is not None
        home = self._homes.choose(vhost, name, kind, arguments, is_exclusive)
        row = QueueRow(
            vhost,
            name,
            None,
            random_bytes(16).hex(),
            durable and exclusive_owner is None,  # AB-83
            auto_delete,
            exclusive_owner,
            arguments,
            kind,
            "running",
            None,
            home,
            (home,),
            shard_count(arguments),
        )
        shards = tuple(
            replace(shard, node=place, replicas=(place,))
            for shard in new_shards(row, [random_bytes(16).hex() for _ in range(min(row.shards, MAX_SHARDS))])
            for place in (self._homes.choose(vhost, name, kind, arguments, is_exclusive),)
        )
        return DeclareQueue(row, server_named, by, shards)
