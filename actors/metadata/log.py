"""`Log`: the order in which commands are applied to the state.

A process proposes a command. The log commits it or refuses it, and has committed commands applied one after the other,
in its own order, which may differ from the order of the proposals. A command is checked where it stands in the log: of
two declares of one name the first creates the queue, and the second finds it.

A node that is alone has one log, `LocalLog`. Nodes of a cluster would agree on the order first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .state.commands import Command
from .state.effects import Applied
from .state.state import Refusal


class Outcome(NamedTuple):
    """What became of a proposed command.

    applied   what it did; None if it was refused and did nothing
    error     the refusal, or why it is not known to survive a restart although it was applied
    """

    applied: Applied | None
    error: Refusal | None = None


Answer = Callable[[Outcome], None]


class Log(Protocol):
    """See the module."""

    def propose(self, command: Command, answer: Answer, until_durable: bool = True) -> None:
        """Have `command` applied, and call `answer` once with its outcome, possibly before this returns.

        until_durable   answer when a restart could not take back what the answer says; otherwise as soon as the
                        command is applied
        """

    def flush(self, answer: Answer) -> None:
        """Call `answer` when everything that was applied before would survive a restart."""
