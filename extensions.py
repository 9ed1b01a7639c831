"""The extension points of a broker, and the types in their signatures: the public module for writers of extensions.

    from warren import Broker
    from warren.extensions import ChannelInterceptor

    with Broker(extensions=[Audit()]) as broker: ...

An extension derives from `ChannelInterceptor`, `ExchangeDecorator` or `QueueDecorator`, or from several of them.
docs/embedding.md describes when the broker calls each method and which of them may refuse.
"""

from __future__ import annotations

from .actors.context.extensions import ChannelInterceptor, Content, ExtensionError, Place
from .amqp.errors import AmqpError
from .amqp.fields import Table, table_from, table_to_dict
from .amqp.method import Method
from .amqp.methods import (
    AccessRequest,
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicRecoverAsync,
    BasicReject,
    ChannelClose,
    ChannelFlow,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from .amqp.properties import Properties
from .routing.decorators import ExchangeDecorator, QueueDecorator
from .routing.destinations import Destination
from .routing.rows import Binding, ExchangeRow, QueueRow

__all__ = [
    "AccessRequest",
    "AmqpError",
    "BasicAck",
    "BasicCancel",
    "BasicConsume",
    "BasicGet",
    "BasicNack",
    "BasicPublish",
    "BasicQos",
    "BasicRecover",
    "BasicRecoverAsync",
    "BasicReject",
    "Binding",
    "ChannelClose",
    "ChannelFlow",
    "ChannelInterceptor",
    "ConfirmSelect",
    "Content",
    "Destination",
    "ExchangeBind",
    "ExchangeDeclare",
    "ExchangeDecorator",
    "ExchangeDelete",
    "ExchangeRow",
    "ExchangeUnbind",
    "ExtensionError",
    "Method",
    "Place",
    "Properties",
    "QueueBind",
    "QueueDeclare",
    "QueueDecorator",
    "QueueDelete",
    "QueuePurge",
    "QueueRow",
    "QueueUnbind",
    "Table",
    "TxCommit",
    "TxRollback",
    "TxSelect",
    "table_from",
    "table_to_dict",
]
