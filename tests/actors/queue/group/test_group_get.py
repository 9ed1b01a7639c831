"""basic.get from a group, of which a member ends meanwhile (QP-76)."""

from __future__ import annotations

from warren.amqp.errors import AmqpError
from warren.amqp.methods import BasicGet, BasicGetOk

from ...stage import Stage, Stub
from .test_group_order import Group


class Ending(Stub):
    """Stands for a queue that is being deleted."""

    reply_errors = (AmqpError,)
    items = {
        f"message{kind}": 0
        for kind in (*("s_ready", "s_unacknowledged", "s"), *("_bytes_ready", "_bytes_unacknowledged", "_bytes"))
    }

    def on_info(self, sender):
        self.reply(sender, self.items)

    def on_get(self, sender, *fields):
        self.reply_error(sender, AmqpError(404, "no queue 'a' in vhost '/'"))


def test_a_member_that_is_being_deleted_counts_as_empty():
    """The next members are asked. The client's channel was once closed with a 404 that named the member."""
    with Stage() as stage:
        group = Group(stage)
        group.publish_to(1, b"of b")
        group.members[0] = stage.queue("a", process=Ending)
        group.stage.tell(stage.metadata, group.address, "queue_changed", "a")
        channel = stage.channel()
        channel.send(BasicGet(queue="group"))
        stage.settle()
        answer, body = channel.frames()
        assert type(answer) is BasicGetOk and body == b"of b"


class Undecided(Ending):
    """Stands for a queue that answers consumers later, in their order."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def on_consume(self, sender, *fields):
        self.asked.append(sender)

    def on_refuse(self, sender):
        self.reply_error(self.asked.pop(0), AmqpError(403, "in exclusive use"))

    def on_accept(self, sender):
        self.reply(self.asked.pop(0), True)


def test_a_refusal_does_not_end_a_later_join():
    """The consumer of a group leaves and another one comes before a member has answered the first time. Its refusal
    does not concern the second time: the group once forgot the member, and consumed from it twice a second later.
    """
    with Stage() as stage:
        group = Group(stage)
        member = stage.queue("a", process=Undecided)
        group.stage.tell(stage.metadata, group.address, "queue_changed", "a")
        group.add_consumer()
        group.tell(group.consumers[0], "cancel", "c")
        stage.settle()
        group.add_consumer()
        assert len(member.actor.asked) == 2
        for answer in ("refuse", "accept"):
            stage.tell(stage.metadata, member.address, answer)
            stage.settle()
        found = group.actor.role.member(member.id)
        assert found is not None and found.is_joined and not found.is_awaited
