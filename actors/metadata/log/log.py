"""`Log`: the order in which commands are applied to the state.

A process proposes a command. The log commits it or refuses it, and has committed commands applied one after the other,
in its own order, which may differ from the order of the proposals. A command is checked where it stands in the log: of
two declares of one name the first creates the queue, and the second finds it.

A node that is alone has `LocalLog`. The nodes of a cluster agree on the order first (`cluster/metadata`): then commands
of other nodes are applied too. The log calls its owner for each command that is applied (`LogOwner`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ....amqp.errors import AmqpError
from ....store.data_dir.data_dir import DataDir
from ..state.commands import Command
from ..state.effects import Applied
from ..state.state import Refusal
from .row_encoding import StoredRows


class OutcomeUnknown(AmqpError):
    """It is unknown whether a command was applied: the node that proposed it got a snapshot instead of its log entry.

    The caller should read the state to find out, or repeat the command if doing so twice does no harm.
    """


class CommandOutcome(NamedTuple):
    """What became of a proposed command.

    applied   what it did; None if it was refused and did nothing
    error     the refusal, or why it may not survive a restart although it was applied
    """

    applied: Applied | None
    error: Refusal | None = None


Answer = Callable[[CommandOutcome], None]


class LogOwner(Protocol):
    """What a log calls besides the answers to its proposals."""

    def applied(self, command: Command, applied: Applied, is_own: bool) -> None:
        """Handle a command that was applied to the state just now; `is_own`: this node proposed it.

        For a command of this node, the operation that has proposed it performs the effects. The effects of another
        node's command are performed here, as far as they concern this node.
        """

    def replaced(self, applied: Applied) -> None:
        """Handle that a newer state has replaced the old one; `applied` has the changes from the old to the newer."""


class Log(Protocol):
    """See the module."""

    async def open(self, directory: DataDir | None) -> StoredRows:
        """Open the log in this data directory, which keeps what is applied from now on; return the rows stored there.

        Without a directory no rows are stored. Raises StorageError.
        """

    async def catch_up(self) -> None:
        """Wait until the state has every command that was committed before the start. Called after the owner has put
        the rows that `open` returned into the state.
        """

    @property
    def refuses_at_once(self) -> bool:
        """Whether `propose` answers a command that the state forbids before it returns."""

    def begin(self) -> None:
        """Begin to commit what was proposed in the turn that has just ended."""

    def close(self) -> None:
        """Close what is open, because the process ends."""

    def propose(self, command: Command, answer: Answer, until_durable: bool = True) -> None:
        """Have `command` applied, and call `answer` once with its outcome, possibly before this returns.

        until_durable   answer when no restart can undo the command; otherwise as soon as the command is applied
        """

    def flush(self, answer: Answer) -> None:
        """Call `answer` when everything that was applied before would survive a restart."""
