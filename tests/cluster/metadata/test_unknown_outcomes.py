"""A snapshot may hide from a node what became of a command that it has proposed. The commands that nobody else would
propose are proposed again, unless the state shows that they have taken effect.
"""

from __future__ import annotations

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.log.log import CommandOutcome, OutcomeUnknown
from warren.actors.metadata.state.commands import AddLearner, DeleteQueue, LoseMember, RestartQueue
from warren.runtime.process import Process

from .group import Member, V


def hide(monkeypatch, member: Member, kind: type, is_lost: bool) -> list:
    """Have a snapshot hide the outcome of the next command of this kind from a member. `is_lost`: it is not applied.

    Returns the list of all commands of this kind that the member proposes.
    """
    log, proposed = member.process.log, []
    propose = log.propose

    def propose_hidden(command, answer, until_durable=True):
        if not isinstance(command, kind):
            return propose(command, answer, until_durable)
        proposed.append(command)
        if len(proposed) > 1:
            return propose(command, answer, until_durable)

        def hidden(outcome: CommandOutcome) -> None:
            answer(CommandOutcome(None, OutcomeUnknown(541, "a snapshot has replaced the state")))

        if is_lost:
            return hidden(CommandOutcome(None))
        return propose(command, hidden, until_durable)

    monkeypatch.setattr(log, "propose", propose_hidden)
    return proposed


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "applied"])
@pytest.mark.parametrize("kind", [LoseMember, AddLearner])
def test_a_replica_leaves_and_joins_again_although_the_outcome_is_unknown(mirrored, monkeypatch, kind, is_lost):
    """The proposal that a dead replica leave its group was lost, or that its node make a learner, and neither came
    again before the row of the queue changed.
    """
    mirrored.policy('{"ha-mode":"all"}')
    first = mirrored.group.members[0]
    row, _ = first.ask(first.declare("q"))
    mirrored.settle()
    proposed = hide(monkeypatch, first, kind, is_lost)
    mirrored.supervisor(first).queues.clear()
    first.port.tell(first.metadata, to_metadata.replica_ended(V, "q", row.queue_id, 1))
    mirrored.group.until(lambda: mirrored.learners() == [first.name])
    mirrored.settle()
    assert len(proposed) == (2 if is_lost else 1)
    assert mirrored.row(first).group.members == 4, "it has joined once"


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "applied"])
def test_the_next_process_of_a_queue_is_known_although_the_outcome_is_unknown(mirrored, monkeypatch, is_lost):
    """Other nodes sent messages to the dead process of a queue, because the proposal of its generation was lost."""
    first, other, _ = mirrored.group.members
    row, _ = first.ask(first.declare("q"))
    proposed = hide(monkeypatch, first, RestartQueue, is_lost)
    again = first.machine.base.newPrimaryActor(Process)
    first.port.tell(first.metadata, to_metadata.queue_restarted(V, "q", row.queue_id, again))
    mirrored.group.until(lambda: mirrored.row(other).generation == 1)
    mirrored.group.until(lambda: first.routing.queue(V, "q").address == again)
    assert len(proposed) == (2 if is_lost else 1)
    mirrored.group.check_equal()


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "applied"])
def test_a_queue_that_ends_is_deleted_although_the_outcome_is_unknown(mirrored, monkeypatch, is_lost):
    """A queue that had expired stayed in the state for ever, because the proposal that it be deleted was lost."""
    first, other, _ = mirrored.group.members
    row, _ = first.ask(first.declare("q"))
    proposed = hide(monkeypatch, first, DeleteQueue, is_lost)
    gone = first.begin(to_metadata.queue_gone(V, "q", row.queue_id))
    mirrored.group.until(lambda: gone.is_here and other.routing.queue(V, "q") is None)
    assert len(proposed) == (2 if is_lost else 1)
    mirrored.group.check_equal()
