"""What the ledger notes of each message that clients publish, and of the message in each queue that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..bodies import Key


class PublishAnswer(Enum):
    NONE = "not answered"
    ACK = "acked"
    NACK = "nacked"
    LOST = "unknown: the connection ended first"


class Published:
    """A message that a client has published."""

    __slots__ = ("answer", "key", "node", "queues", "sent_at")

    def __init__(self, key: Key, queues: Sequence[str], node: str, sent_at: float) -> None:
        self.key = key
        self.queues = queues
        self.node = node
        self.sent_at = sent_at
        self.answer = PublishAnswer.NONE


class LedgerCopy:
    """A message in one queue, as far as clients have seen it."""

    __slots__ = (
        "deliveries",
        "had_first",
        "holder",
        "is_acked",
        "is_surely_acked",
        "is_surely_rejected",
        "message",
        "rejected_at",
        "rejections",
    )

    def __init__(self, message: Published) -> None:
        self.message = message
        self.deliveries: list[str] = []  # when and to whom
        self.had_first = False  # a delivery without the redelivered flag
        #: The `Reader` of the channel to which it was delivered last, until that settles the message.
        self.holder: object = None
        self.is_acked = False  # the ack was sent, and may have been lost
        self.is_surely_acked = False  # the queue has certainly had the ack
        self.rejections = 0  # how often it was rejected; a rejection may have been lost
        self.rejected_at = 0.0
        self.is_surely_rejected = False  # its dead letter has certainly been made
