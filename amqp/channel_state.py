"""The life of a channel, and which methods a client may send in each state (AB-52 to AB-60).

The first frame on a channel number creates the channel::

    starting --open--> running --tx.commit--> committing --commit-ok--> running
                          |                        |
                          +--- our channel.close --+--> closing --close-ok--> (the number is free)

==========  =====================  ==========================  ========================================
state       channel.open           channel.close, close-ok     any other method
==========  =====================  ==========================  ========================================
starting    handled                504 `expected …`            504 `expected 'channel.open'`
running     504 `second …`         handled, 503                handled if a client may send it, else 503
committing  504 `unexpected …`     handled, 503                503, or 504 `unexpected command while …`
closing     ignored                answered, ends the closing  ignored
==========  =====================  ==========================  ========================================

A client that sends channel.close in `running` or `committing` ends the channel at once: nothing comes between its close
and our close-ok, so that needs no state (AB-53). Only a channel.close that the broker sends, after an error, leads to
`closing` (AB-54).

The connection process enforces `starting`, because a channel has no process yet then; the channel process enforces the
other states. This module has the rules of `running` and `committing`.
"""

from __future__ import annotations

from . import methods as m
from .constants import CHANNEL_ERROR, COMMAND_INVALID
from .errors import AmqpError
from .method import Method

RUNNING = "running"
COMMITTING = "committing"

#: The methods that clients may send on a channel other than 0. RabbitMQ refuses all others, those of brokers (AB-58).
CLIENT_METHODS: frozenset[type[Method]] = frozenset(
    {
        m.ChannelOpen,
        m.ChannelFlow,
        m.ChannelClose,
        m.AccessRequest,
        m.ExchangeDeclare,
        m.ExchangeDelete,
        m.ExchangeBind,
        m.ExchangeUnbind,
        m.QueueDeclare,
        m.QueueBind,
        m.QueuePurge,
        m.QueueDelete,
        m.QueueUnbind,
        m.BasicQos,
        m.BasicConsume,
        m.BasicCancel,
        m.BasicPublish,
        m.BasicGet,
        m.BasicAck,
        m.BasicReject,
        m.BasicRecoverAsync,
        m.BasicRecover,
        m.BasicNack,
        m.ConfirmSelect,
        m.TxSelect,
        m.TxCommit,
        m.TxRollback,
    }
)


def check_method(state: str, method: Method) -> None:
    """Raise AmqpError 504 or 503, which end the connection, if a client may not send `method` in this state.

    `state` is RUNNING or COMMITTING (AB-52, AB-56, AB-58).
    """
    kind = type(method)
    if kind not in CLIENT_METHODS:
        raise _refused(COMMAND_INVALID, "unimplemented method", method)
    if state == COMMITTING and kind is not m.ChannelClose:
        raise _refused(CHANNEL_ERROR, "unexpected command while processing 'tx.commit'", method)
    if kind is m.ChannelOpen:
        raise _refused(CHANNEL_ERROR, "second 'channel.open' seen", method)


def _refused(code: int, text: str, method: Method) -> AmqpError:
    return AmqpError(code, text, method.CLASS_ID, method.METHOD_ID)
