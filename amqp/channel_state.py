"""The life of a channel, and who may send what, as tables (AB-52 to AB-60).

A channel is made by the first frame on its number::

    starting --open--> running --tx.commit--> committing --commit-ok--> running
                          |                        |
                          +--- our channel.close --+--> closing --close-ok--> (the number is free)

==========  =====================  ==========================  ========================================
state       channel.open           channel.close, close-ok     any other method
==========  =====================  ==========================  ========================================
starting    handled                504 `expected …`            504 `expected 'channel.open'`
running     504 `second …`         handled, 503                handled if a client may send it, else 503
committing  504 `unexpected …`     handled, 503                504 `unexpected command while …`
closing     ignored                answered, ends the closing  ignored
==========  =====================  ==========================  ========================================

In `running` and `committing` a client that sends channel.close ends the channel at once: nothing is between its
close and our close-ok, so there is no state for it (AB-53). `closing` is only what follows an error of ours (AB-54).
The channel process owns the state; here is only what follows from it.
"""

from __future__ import annotations

from . import methods as m
from .constants import CHANNEL_ERROR, COMMAND_INVALID
from .errors import AmqpError
from .method import Method
from .methods import METHODS

STARTING = "starting"
RUNNING = "running"
COMMITTING = "committing"
CLOSING = "closing"

# What a client asks with, and what the broker answers. None: there is no answer.
REPLIES: dict[type[Method], type[Method] | None] = {
    m.ChannelOpen: m.ChannelOpenOk,
    m.ChannelFlow: m.ChannelFlowOk,
    m.ChannelClose: m.ChannelCloseOk,
    m.AccessRequest: m.AccessRequestOk,
    m.ExchangeDeclare: m.ExchangeDeclareOk,
    m.ExchangeDelete: m.ExchangeDeleteOk,
    m.ExchangeBind: m.ExchangeBindOk,
    m.ExchangeUnbind: m.ExchangeUnbindOk,
    m.QueueDeclare: m.QueueDeclareOk,
    m.QueueBind: m.QueueBindOk,
    m.QueuePurge: m.QueuePurgeOk,
    m.QueueDelete: m.QueueDeleteOk,
    m.QueueUnbind: m.QueueUnbindOk,
    m.BasicQos: m.BasicQosOk,
    m.BasicConsume: m.BasicConsumeOk,
    m.BasicCancel: m.BasicCancelOk,
    m.BasicPublish: None,
    m.BasicGet: m.BasicGetOk,  # or basic.get-empty
    m.BasicAck: None,
    m.BasicReject: None,
    m.BasicRecoverAsync: None,
    m.BasicRecover: m.BasicRecoverOk,
    m.BasicNack: None,
    m.ConfirmSelect: m.ConfirmSelectOk,
    m.TxSelect: m.TxSelectOk,
    m.TxCommit: m.TxCommitOk,
    m.TxRollback: m.TxRollbackOk,
}

CLIENT_METHODS: frozenset[type[Method]] = frozenset(REPLIES)
CONTENT_METHODS: frozenset[type[Method]] = frozenset(c for c in METHODS.values() if c.HAS_CONTENT)
# AB-60: where `nowait` leaves out the reply. Not in queue.unbind, basic.qos, basic.recover, tx.* and channel.open.
NOWAIT_METHODS: frozenset[type[Method]] = frozenset(c for c in METHODS.values() if "nowait" in c.FIELDS)
# AB-59: CR and LF are removed from the names of queues and exchanges in these, and in no other.
STRIPPED_METHODS: frozenset[type[Method]] = frozenset(
    {
        m.ExchangeDeclare,
        m.ExchangeDelete,
        m.ExchangeBind,
        m.ExchangeUnbind,
        m.QueueDeclare,
        m.QueueDelete,
        m.QueueBind,
        m.QueueUnbind,
    }
)


def is_welcome(state: str, method: Method) -> bool:
    """Whether a client's `method` on a channel is to be handled; False: it is to be ignored.

    Raises AmqpError 504 or 503, both of which end the connection (AB-52, AB-56, AB-58).
    """
    kind = type(method)
    if state == CLOSING:
        return kind is m.ChannelClose or kind is m.ChannelCloseOk
    if state == STARTING:
        if kind is m.ChannelOpen:
            return True
        raise _refused(CHANNEL_ERROR, "expected 'channel.open'", method)
    if kind not in CLIENT_METHODS:
        raise _refused(COMMAND_INVALID, "unimplemented method", method)
    if state == COMMITTING and kind is not m.ChannelClose:
        raise _refused(CHANNEL_ERROR, "unexpected command while processing 'tx.commit'", method)
    if kind is m.ChannelOpen:
        raise _refused(CHANNEL_ERROR, "second 'channel.open' seen", method)
    return True


def wants_reply(method: Method) -> bool:
    """Whether success is to be answered (AB-60)."""
    return REPLIES.get(type(method)) is not None and not getattr(method, "nowait", False)


def _refused(code: int, text: str, method: Method) -> AmqpError:
    return AmqpError(code, text, method.CLASS_ID, method.METHOD_ID)
