"""`Proposals`: the commands of this node that have no answer yet.

A command is sent to the leader, and sent again when there is another leader or when nothing has come of it for a while.
It takes effect once, however often it arrives (`proposers`). This node learns from the log what became of it, as every
node does, and answers when all members that run have applied it (CL-31). A command that a client waits for is answered
with 541 when nothing has come of it in time (CL-37): it may take effect later, and then nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...actors.metadata.log.log import Answer, CommandOutcome, OutcomeUnknown
from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from .command_codec import CommandBatch, pack_batch
from .proposers import WINDOW, Proposer

#: The most commands of one batch, which every node applies in one turn, and the bytes from which on a batch is full.
BATCH_COMMANDS = 64
BATCH_BYTES = 128 << 10

#: Commands that may be in flight. The others wait.
MOST_SENT = WINDOW // 2


class _Proposal:
    """A command, packed. `deadline` is None if nobody waits with a time limit; `at` is when it was sent last."""

    __slots__ = ("answer", "at", "data", "deadline", "is_noted")

    def __init__(self, data: bytes, answer: Answer, deadline: float | None, is_noted: bool) -> None:
        self.data = data
        self.answer = answer
        self.deadline = deadline
        self.is_noted = is_noted
        self.at = 0.0


class _Waiting(NamedTuple):
    """An outcome that is answered when the entry is in force."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    outcome: CommandOutcome
    answer: Answer
    deadline: float | None


class Proposals:
    """See the module.

    proposer    this node and its incarnation
    complaint   returns why commands are not applied now, as a sentence for the client
    """

    def __init__(self, proposer: Proposer, complaint: Callable[[], str]) -> None:
        self._proposer = proposer
        self._complaint = complaint
        self._last_serial = 0
        #: Commands that are not applied, by serial, the oldest first.
        self._open: dict[int, _Proposal] = {}
        #: The serial of the last command that was sent; later ones were not sent yet.
        self._sent_to = 0
        self._waiting: list[_Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, data: bytes, answer: Answer, deadline: float | None, is_noted: bool) -> None:
        """Add a command of this node, to be sent to the leader.

        is_noted   answer when it is applied here, without waiting for other nodes
        """
        self._last_serial += 1
        self._open[self._last_serial] = _Proposal(data, answer, deadline, is_noted)

    # -- sending ---

    def unsent(self, now: float) -> list[bytes]:
        """Batches of the commands that were not sent yet, up to `MOST_SENT` in flight."""
        most = next(iter(self._open), self._last_serial) + MOST_SENT
        first, self._sent_to = self._sent_to + 1, min(self._last_serial, max(most, self._sent_to))
        return list(self._batches(range(first, self._sent_to + 1), now))

    def sent_before(self, time: float, now: float) -> list[bytes]:
        """Batches of the commands that were sent before this time and are not applied yet."""
        serials = [serial for serial, each in self._open.items() if serial <= self._sent_to and each.at < time]
        return list(self._batches(serials, now))

    def _batches(self, serials: range | list[int], now: float) -> Iterator[bytes]:
        first, size, found = 0, 0, list[bytes]()
        for serial in serials:
            proposal = self._open.get(serial)
            if proposal is None:
                continue
            if found and (serial != first + len(found) or len(found) == BATCH_COMMANDS or size > BATCH_BYTES):
                yield pack_batch(CommandBatch(*self._proposer, first, found))
                found, size = [], 0
            if not found:
                first = serial
            found.append(proposal.data)
            size += len(proposal.data)
            proposal.at = now
        if found:
            yield pack_batch(CommandBatch(*self._proposer, first, found))

    # -- what becomes of them ---

    def is_awaited(self, serial: int) -> bool:
        """Whether anybody waits for this command. If nobody does, it was answered before, mostly because its deadline
        had passed.
        """
        return serial in self._open

    def applied(self, serial: int, index: int, outcome: CommandOutcome) -> None:
        """Answer an awaited command, which the entry at `index` has applied or refused, now or when it is in force."""
        proposal = self._open.pop(serial)
        if proposal.is_noted:
            proposal.answer(outcome)
        else:
            self._waiting.append(_Waiting(index, outcome, proposal.answer, proposal.deadline))

    def wait(self, index: int, outcome: CommandOutcome, answer: Answer, deadline: float | None) -> None:
        """Answer when the entry at `index` is in force."""
        self._waiting.append(_Waiting(index, outcome, answer, deadline))

    def in_force(self, index: int) -> None:
        """Answer what waits for this index or an earlier one: all members that run have applied the log up to here."""
        if self._waiting and self._waiting[0].index <= index:
            ready = [each for each in self._waiting if each.index <= index]
            self._waiting = [each for each in self._waiting if each.index > index]
            for each in ready:
                each.answer(each.outcome)

    def replaced(self) -> None:
        """Answer that the outcome is unknown to the commands that were sent, because a snapshot has replaced the state.

        The log no longer shows what became of them.
        """
        unknown = [serial for serial in self._open if serial <= self._sent_to]
        for serial in unknown:
            proposal = self._open.pop(serial)
            text = "this node cannot tell whether the change was made: it received a snapshot instead of the log"
            proposal.answer(CommandOutcome(None, OutcomeUnknown(INTERNAL_ERROR, text)))

    def expire(self, now: float) -> None:
        """Answer the proposals whose deadline has passed."""
        late = [serial for serial, each in self._open.items() if each.deadline is not None and each.deadline <= now]
        for serial in late:
            proposal = self._open.pop(serial)
            text = f"metadata cannot be changed now: {self._complaint()}"
            proposal.answer(CommandOutcome(None, AmqpError(INTERNAL_ERROR, text)))
        for each in [each for each in self._waiting if each.deadline is not None and each.deadline <= now]:
            self._waiting.remove(each)
            error = AmqpError(INTERNAL_ERROR, "the change was made, but some nodes of the cluster do not have it yet")
            each.answer(CommandOutcome(each.outcome.applied, each.outcome.error or error))
