"""All methods of AMQP 0-9-1 as RabbitMQ implements it, in the order of amqp-broker section 6.

:mod:`~warren.amqp.method` explains `SIGNATURE` and encodes methods; :mod:`~warren.amqp.decoding` decodes them. Every
field has a neutral default, so `QueueDeclare(queue="q", durable=True)` is a complete method.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .fields import Table
from .method import Method

EMPTY = Table()


@dataclass(slots=True)
class ConnectionStart(Method):
    NAME = "connection.start"
    CLASS_ID, METHOD_ID = 10, 10
    SIGNATURE = "ooTXX"

    version_major: int = 0
    version_minor: int = 0
    server_properties: Table = EMPTY
    mechanisms: bytes = b""
    locales: bytes = b""


@dataclass(slots=True)
class ConnectionStartOk(Method):
    NAME = "connection.start-ok"
    CLASS_ID, METHOD_ID = 10, 11
    SIGNATURE = "TSXS"

    client_properties: Table = EMPTY
    mechanism: str = ""
    response: bytes = b""
    locale: str = ""


@dataclass(slots=True)
class ConnectionSecure(Method):
    NAME = "connection.secure"
    CLASS_ID, METHOD_ID = 10, 20
    SIGNATURE = "X"

    challenge: bytes = b""


@dataclass(slots=True)
class ConnectionSecureOk(Method):
    NAME = "connection.secure-ok"
    CLASS_ID, METHOD_ID = 10, 21
    SIGNATURE = "X"

    response: bytes = b""


@dataclass(slots=True)
class ConnectionTune(Method):
    NAME = "connection.tune"
    CLASS_ID, METHOD_ID = 10, 30
    SIGNATURE = "sls"

    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


@dataclass(slots=True)
class ConnectionTuneOk(Method):
    NAME = "connection.tune-ok"
    CLASS_ID, METHOD_ID = 10, 31
    SIGNATURE = "sls"

    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


@dataclass(slots=True)
class ConnectionOpen(Method):
    NAME = "connection.open"
    CLASS_ID, METHOD_ID = 10, 40
    SIGNATURE = "SSb"

    virtual_host: str = ""
    capabilities: str = ""
    insist: bool = False


@dataclass(slots=True)
class ConnectionOpenOk(Method):
    NAME = "connection.open-ok"
    CLASS_ID, METHOD_ID = 10, 41
    SIGNATURE = "S"

    known_hosts: str = ""


@dataclass(slots=True)
class ConnectionClose(Method):
    NAME = "connection.close"
    CLASS_ID, METHOD_ID = 10, 50
    SIGNATURE = "sSss"

    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True)
class ConnectionCloseOk(Method):
    NAME = "connection.close-ok"
    CLASS_ID, METHOD_ID = 10, 51


@dataclass(slots=True)
class ConnectionBlocked(Method):
    NAME = "connection.blocked"
    CLASS_ID, METHOD_ID = 10, 60
    SIGNATURE = "S"

    reason: str = ""


@dataclass(slots=True)
class ConnectionUnblocked(Method):
    NAME = "connection.unblocked"
    CLASS_ID, METHOD_ID = 10, 61


@dataclass(slots=True)
class ConnectionUpdateSecret(Method):
    NAME = "connection.update-secret"
    CLASS_ID, METHOD_ID = 10, 70
    SIGNATURE = "XS"

    new_secret: bytes = b""
    reason: str = ""


@dataclass(slots=True)
class ConnectionUpdateSecretOk(Method):
    NAME = "connection.update-secret-ok"
    CLASS_ID, METHOD_ID = 10, 71


@dataclass(slots=True)
class ChannelOpen(Method):
    NAME = "channel.open"
    CLASS_ID, METHOD_ID = 20, 10
    SIGNATURE = "S"

    out_of_band: str = ""


@dataclass(slots=True)
class ChannelOpenOk(Method):
    NAME = "channel.open-ok"
    CLASS_ID, METHOD_ID = 20, 11
    SIGNATURE = "X"

    channel_id: bytes = b""


@dataclass(slots=True)
class ChannelFlow(Method):
    NAME = "channel.flow"
    CLASS_ID, METHOD_ID = 20, 20
    SIGNATURE = "b"

    active: bool = False


@dataclass(slots=True)
class ChannelFlowOk(Method):
    NAME = "channel.flow-ok"
    CLASS_ID, METHOD_ID = 20, 21
    SIGNATURE = "b"

    active: bool = False


@dataclass(slots=True)
class ChannelClose(Method):
    NAME = "channel.close"
    CLASS_ID, METHOD_ID = 20, 40
    SIGNATURE = "sSss"

    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True)
class ChannelCloseOk(Method):
    NAME = "channel.close-ok"
    CLASS_ID, METHOD_ID = 20, 41


@dataclass(slots=True)
class AccessRequest(Method):
    NAME = "access.request"
    CLASS_ID, METHOD_ID = 30, 10
    SIGNATURE = "Sbbbbb"

    realm: str = ""
    exclusive: bool = False
    passive: bool = False
    active: bool = False
    write: bool = False
    read: bool = False


@dataclass(slots=True)
class AccessRequestOk(Method):
    NAME = "access.request-ok"
    CLASS_ID, METHOD_ID = 30, 11
    SIGNATURE = "s"

    ticket: int = 0


@dataclass(slots=True)
class ExchangeDeclare(Method):
    NAME = "exchange.declare"
    CLASS_ID, METHOD_ID = 40, 10
    SIGNATURE = "sSSbbbbbT"

    ticket: int = 0
    exchange: str = ""
    type: str = ""
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    nowait: bool = False
    arguments: Table = EMPTY


@dataclass(slots=True)
class ExchangeDeclareOk(Method):
    NAME = "exchange.declare-ok"
    CLASS_ID, METHOD_ID = 40, 11


@dataclass(slots=True)
class ExchangeDelete(Method):
    NAME = "exchange.delete"
    CLASS_ID, METHOD_ID = 40, 20
    SIGNATURE = "sSbb"

    ticket: int = 0
    exchange: str = ""
    if_unused: bool = False
    nowait: bool = False


@dataclass(slots=True)
class ExchangeDeleteOk(Method):
    NAME = "exchange.delete-ok"
    CLASS_ID, METHOD_ID = 40, 21


@dataclass(slots=True)
class ExchangeBind(Method):
    NAME = "exchange.bind"
    CLASS_ID, METHOD_ID = 40, 30
    SIGNATURE = "sSSSbT"

    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = EMPTY


@dataclass(slots=True)
class ExchangeBindOk(Method):
    NAME = "exchange.bind-ok"
    CLASS_ID, METHOD_ID = 40, 31


@dataclass(slots=True)
class ExchangeUnbind(Method):
    NAME = "exchange.unbind"
    CLASS_ID, METHOD_ID = 40, 40
    SIGNATURE = "sSSSbT"

    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = EMPTY


@dataclass(slots=True)
class ExchangeUnbindOk(Method):
    NAME = "exchange.unbind-ok"
    CLASS_ID, METHOD_ID = 40, 51


@dataclass(slots=True)
class QueueDeclare(Method):
    NAME = "queue.declare"
    CLASS_ID, METHOD_ID = 50, 10
    SIGNATURE = "sSbbbbbT"

    ticket: int = 0
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    nowait: bool = False
    arguments: Table = EMPTY


@dataclass(slots=True)
class QueueDeclareOk(Method):
    NAME = "queue.declare-ok"
    CLASS_ID, METHOD_ID = 50, 11
    SIGNATURE = "Sll"

    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


@dataclass(slots=True)
class QueueBind(Method):
    NAME = "queue.bind"
    CLASS_ID, METHOD_ID = 50, 20
    SIGNATURE = "sSSSbT"

    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = EMPTY


@dataclass(slots=True)
class QueueBindOk(Method):
    NAME = "queue.bind-ok"
    CLASS_ID, METHOD_ID = 50, 21


@dataclass(slots=True)
class QueuePurge(Method):
    NAME = "queue.purge"
    CLASS_ID, METHOD_ID = 50, 30
    SIGNATURE = "sSb"

    ticket: int = 0
    queue: str = ""
    nowait: bool = False


@dataclass(slots=True)
class QueuePurgeOk(Method):
    NAME = "queue.purge-ok"
    CLASS_ID, METHOD_ID = 50, 31
    SIGNATURE = "l"

    message_count: int = 0


@dataclass(slots=True)
class QueueDelete(Method):
    NAME = "queue.delete"
    CLASS_ID, METHOD_ID = 50, 40
    SIGNATURE = "sSbbb"

    ticket: int = 0
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    nowait: bool = False


@dataclass(slots=True)
class QueueDeleteOk(Method):
    NAME = "queue.delete-ok"
    CLASS_ID, METHOD_ID = 50, 41
    SIGNATURE = "l"

    message_count: int = 0


@dataclass(slots=True)
class QueueUnbind(Method):
    NAME = "queue.unbind"
    CLASS_ID, METHOD_ID = 50, 50
    SIGNATURE = "sSSST"

    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: Table = EMPTY


@dataclass(slots=True)
class QueueUnbindOk(Method):
    NAME = "queue.unbind-ok"
    CLASS_ID, METHOD_ID = 50, 51


@dataclass(slots=True)
class BasicQos(Method):
    NAME = "basic.qos"
    CLASS_ID, METHOD_ID = 60, 10
    SIGNATURE = "lsb"

    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


@dataclass(slots=True)
class BasicQosOk(Method):
    NAME = "basic.qos-ok"
    CLASS_ID, METHOD_ID = 60, 11


@dataclass(slots=True)
class BasicConsume(Method):
    NAME = "basic.consume"
    CLASS_ID, METHOD_ID = 60, 20
    SIGNATURE = "sSSbbbbT"

    ticket: int = 0
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    arguments: Table = EMPTY


@dataclass(slots=True)
class BasicConsumeOk(Method):
    NAME = "basic.consume-ok"
    CLASS_ID, METHOD_ID = 60, 21
    SIGNATURE = "S"

    consumer_tag: str = ""


@dataclass(slots=True)
class BasicCancel(Method):
    NAME = "basic.cancel"
    CLASS_ID, METHOD_ID = 60, 30
    SIGNATURE = "Sb"

    consumer_tag: str = ""
    nowait: bool = False


@dataclass(slots=True)
class BasicCancelOk(Method):
    NAME = "basic.cancel-ok"
    CLASS_ID, METHOD_ID = 60, 31
    SIGNATURE = "S"

    consumer_tag: str = ""


@dataclass(slots=True)
class BasicPublish(Method):
    NAME = "basic.publish"
    CLASS_ID, METHOD_ID = 60, 40
    SIGNATURE = "sSSbb"
    HAS_CONTENT = True

    ticket: int = 0
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


@dataclass(slots=True)
class BasicReturn(Method):
    NAME = "basic.return"
    CLASS_ID, METHOD_ID = 60, 50
    SIGNATURE = "sSSS"
    HAS_CONTENT = True

    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True)
class BasicDeliver(Method):
    NAME = "basic.deliver"
    CLASS_ID, METHOD_ID = 60, 60
    SIGNATURE = "SLbSS"
    HAS_CONTENT = True

    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True)
class BasicGet(Method):
    NAME = "basic.get"
    CLASS_ID, METHOD_ID = 60, 70
    SIGNATURE = "sSb"

    ticket: int = 0
    queue: str = ""
    no_ack: bool = False


@dataclass(slots=True)
class BasicGetOk(Method):
    NAME = "basic.get-ok"
    CLASS_ID, METHOD_ID = 60, 71
    SIGNATURE = "LbSSl"
    HAS_CONTENT = True

    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


@dataclass(slots=True)
class BasicGetEmpty(Method):
    NAME = "basic.get-empty"
    CLASS_ID, METHOD_ID = 60, 72
    SIGNATURE = "S"

    cluster_id: str = ""


@dataclass(slots=True)
class BasicAck(Method):
    NAME = "basic.ack"
    CLASS_ID, METHOD_ID = 60, 80
    SIGNATURE = "Lb"

    delivery_tag: int = 0
    multiple: bool = False


@dataclass(slots=True)
class BasicReject(Method):
    NAME = "basic.reject"
    CLASS_ID, METHOD_ID = 60, 90
    SIGNATURE = "Lb"

    delivery_tag: int = 0
    requeue: bool = False


@dataclass(slots=True)
class BasicRecoverAsync(Method):
    NAME = "basic.recover-async"
    CLASS_ID, METHOD_ID = 60, 100
    SIGNATURE = "b"

    requeue: bool = False


@dataclass(slots=True)
class BasicRecover(Method):
    NAME = "basic.recover"
    CLASS_ID, METHOD_ID = 60, 110
    SIGNATURE = "b"

    requeue: bool = False


@dataclass(slots=True)
class BasicRecoverOk(Method):
    NAME = "basic.recover-ok"
    CLASS_ID, METHOD_ID = 60, 111


@dataclass(slots=True)
class BasicNack(Method):
    NAME = "basic.nack"
    CLASS_ID, METHOD_ID = 60, 120
    SIGNATURE = "Lbb"

    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = False


@dataclass(slots=True)
class BasicCredit(Method):
    NAME = "basic.credit"
    CLASS_ID, METHOD_ID = 60, 200
    SIGNATURE = "Slb"

    consumer_tag: str = ""
    credit: int = 0
    drain: bool = False


@dataclass(slots=True)
class BasicCreditOk(Method):
    NAME = "basic.credit-ok"
    CLASS_ID, METHOD_ID = 60, 201
    SIGNATURE = "l"

    available: int = 0


@dataclass(slots=True)
class BasicCreditDrained(Method):
    NAME = "basic.credit-drained"
    CLASS_ID, METHOD_ID = 60, 202
    SIGNATURE = "Sl"

    consumer_tag: str = ""
    credit_drained: int = 0


@dataclass(slots=True)
class ConfirmSelect(Method):
    NAME = "confirm.select"
    CLASS_ID, METHOD_ID = 85, 10
    SIGNATURE = "b"

    nowait: bool = False


@dataclass(slots=True)
class ConfirmSelectOk(Method):
    NAME = "confirm.select-ok"
    CLASS_ID, METHOD_ID = 85, 11


@dataclass(slots=True)
class TxSelect(Method):
    NAME = "tx.select"
    CLASS_ID, METHOD_ID = 90, 10


@dataclass(slots=True)
class TxSelectOk(Method):
    NAME = "tx.select-ok"
    CLASS_ID, METHOD_ID = 90, 11


@dataclass(slots=True)
class TxCommit(Method):
    NAME = "tx.commit"
    CLASS_ID, METHOD_ID = 90, 20


@dataclass(slots=True)
class TxCommitOk(Method):
    NAME = "tx.commit-ok"
    CLASS_ID, METHOD_ID = 90, 21


@dataclass(slots=True)
class TxRollback(Method):
    NAME = "tx.rollback"
    CLASS_ID, METHOD_ID = 90, 30


@dataclass(slots=True)
class TxRollbackOk(Method):
    NAME = "tx.rollback-ok"
    CLASS_ID, METHOD_ID = 90, 31


#: The method classes by class and method id.
METHODS: dict[tuple[int, int], type[Method]] = {}

for _class in Method.__subclasses__():
    # `dataclass(slots=True)` makes a new class, but the original is still listed as a subclass; skip it.
    if "__dataclass_fields__" in _class.__dict__ and globals().get(_class.__name__) is _class:
        _class.FIELDS = tuple(field.name for field in fields(_class))
        METHODS[_class.CLASS_ID, _class.METHOD_ID] = _class
