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
