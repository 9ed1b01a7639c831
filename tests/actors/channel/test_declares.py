"""queue.declare in a channel: which queues are asked for their counts, and which declares are made together."""

from __future__ import annotations

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.methods import BasicQos, BasicQosOk, ChannelClose, QueueDeclare, QueueDeclareOk
from warren.routing.changes import QueueRemoved

from ..stage import DELETED, Stage, Stub

NOT_FOUND = AmqpError(404, "no queue 'x' in vhost '/'")
REFUSED = AmqpError(406, "refused")


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Finding(Stub):
    """Stands for a Metadata that answers declares with `rows`, in order, refuses all later ones, and
    restarts no queue.
    """

    def __init__(self):
        super().__init__()
        self.rows = []
        self.is_new = False
        #: The declared names; a list of names if several were declared at once.
        self.asked = []

    def on_declare_queue(self, sender, *fields):
        self.asked.append(fields[1])
        if self.rows:
            self.reply(sender, (self.rows.pop(0), self.is_new))
        else:
            self.reply_error(sender, REFUSED)

    def on_declare_queues(self, sender, vhost, declares, *fields):
        self.asked.append([declared[0] for declared in declares])
        answers, self.rows = self.rows[: len(declares)], self.rows[len(declares) :]
        self.reply(sender, [(row, self.is_new) for row in answers])

    def on_await_restart(self, sender, *fields):
        self.reply_error(sender, NOT_FOUND)


@pytest.fixture
def finding(stage):
    """The stub of Metadata that all channels of the stage use."""
    stage.metadata = stage.create(Finding)
    stage.context = stage.context.__class__(
        "warren@test", stage.settings, stage.routing, stage.metadata, stage.alarms, stage.alarms
    )
    return stage.actor(stage.metadata)


def test_a_new_queue_is_not_asked_for_its_counts(stage, finding):
    """A new queue is not asked for its counts, which are 0 (AB-83); any other queue is asked."""
    one, other = stage.queue("one", process=Stub), stage.queue("other", process=Stub)
    finding.rows, finding.is_new = [one.row], True
    channel = stage.channel()
    channel.send(QueueDeclare(queue="one"))
    stage.settle()
    assert channel.frames() == [QueueDeclareOk("one", 0, 0)] and one.actor.take("counts") == []
    finding.rows, finding.is_new = [other.row], False
    channel.send(QueueDeclare(queue="other"))
    stage.settle()
    assert channel.frames() == [] and len(other.actor.take("counts")) == 1


def test_declares_that_wait_behind_another_are_made_together(stage, finding):
    """Declares that wait in a channel are sent to Metadata together, and answered in order. A method of another kind,
    and a declare that needs its own answer, ends such a run.
    """
    rows = {name: stage.queue(name, process=Stub).row for name in "abcdef"}
    finding.rows, finding.is_new = [rows[name] for name in "abcdef"], True
    channel = stage.channel()
    declares = [QueueDeclare(queue=name, nowait=name == "c") for name in "abcdef"]
    channel.send(*declares[:4], BasicQos(prefetch_count=1), *declares[4:])
    stage.settle()
    assert finding.asked == ["a", ["b", "c", "d"], ["e", "f"]]
    assert channel.frames() == [
        *(QueueDeclareOk(name, 0, 0) for name in "abd"),
        BasicQosOk(),
        *(QueueDeclareOk(name, 0, 0) for name in "ef"),
    ]


def test_declares_behind_one_that_is_refused_are_not_made(stage, finding):
    """When one of several declares is refused, those behind it are not made. The refused one is declared again by
    itself, to get its error.
    """
    finding.rows, finding.is_new = [stage.queue(name, process=Stub).row for name in "ab"], True
    channel = stage.channel()
    channel.send(*(QueueDeclare(queue=name) for name in "abcd"))
    stage.settle()
    assert finding.asked == ["a", ["b", "c", "d"], ["c", "d"], "c"]
    *answers, close = channel.frames()
    assert answers == [QueueDeclareOk("a", 0, 0), QueueDeclareOk("b", 0, 0)]
    assert (type(close), close.reply_code, close.method_id) == (ChannelClose, 406, 10)


def test_a_queue_that_is_deleted_while_it_is_declared_is_declared_again(stage, finding):
    """A queue that is deleted between its declare and the question for its counts is declared again; if it is down, the
    answer is 404 (AB-63).
    """
    deleted, there, down = stage.queue("deleted"), stage.queue("there"), stage.queue("down")
    for queue in (deleted, down):
        stage.base.end(stage.base.cells[queue.address.actorAddressString], DELETED)
    stage.routing.publish([QueueRemoved(deleted.row)])
    finding.rows = [deleted.row, there.row]
    channel = stage.channel()
    channel.send(QueueDeclare(queue="there"))
    stage.settle()
    assert channel.frames() == [QueueDeclareOk("there", 0, 0)] and not finding.rows
    finding.rows = [down.row]
    channel.send(QueueDeclare(queue="down"))
    stage.settle()
    (close,) = channel.frames()
    assert (type(close), close.reply_code) == (ChannelClose, 404)
