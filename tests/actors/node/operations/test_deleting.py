"""What the operation `delete_queue` says of a queue that is not deleted (CM-168)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.actors.node.operations.operating.acting import delete_queue
from warren.actors.node.operations.registry import OperationError
from warren.amqp.errors import AmqpError
from warren.routing.phrases import no_queue, queue_phrase, queue_unavailable
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable

PHRASE = queue_phrase("/", "q")
DOWN = f"{PHRASE} may have messages: its home node 'b' is down or inaccessible. Start that node"


def refused_with(error):
    """What becomes of the operation if Metadata refuses the deletion with this error."""

    async def refuse(address, message):
        raise error

    routing = RoutingTable()
    routing.add_vhost("/")
    routing.put_queue(QueueRow("/", "q", None, "id", node="b", state="down"))
    context = SimpleNamespace(routing=routing, metadata=None)
    operator = SimpleNamespace(context=context, process=SimpleNamespace(ask=refuse))
    with pytest.raises((OperationError, AmqpError)) as refused:
        delete_queue(operator, name="q", vhost="/", if_empty=True).send(None)
    return refused.value


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (AmqpError(406, f"{PHRASE} not empty"), "Queue is not empty"),
        (AmqpError(406, f"{PHRASE} in use"), "Queue is in use"),
        (no_queue("/", "q"), "Queue not found"),
    ],
)
def test_common_refusals_are_those_of_rabbitmq(error, text):
    refused = refused_with(error)
    assert (refused.kind, refused.text) == ("usage", text)


@pytest.mark.parametrize("error", [AmqpError(406, DOWN), queue_unavailable("/", "q", "down", "b")])
def test_a_queue_that_cannot_be_asked_is_not_called_used_or_missing(error):
    """An operator reads that its home is down. The command said that it was in use, or that there was none."""
    assert refused_with(error) is error
