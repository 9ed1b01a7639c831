"""Direct reply-to: names of reply channels (AB-140 to AB-143).

A client consumes from `amq.rabbitmq.reply-to` and publishes requests with that reply-to; the broker replaces it by
`amq.rabbitmq.reply-to.<channel id>.<key>`. Who publishes to that name through the default exchange reaches the channel, without a queue.
The key is what makes the name unguessable; the channel id finds the process.
"""

from __future__ import annotations

REPLY_TO = "amq.rabbitmq.reply-to"
REPLY_TO_PREFIX = REPLY_TO + "."


def reply_name(channel_id: str, key: str) -> str:
    """The reply-to that takes the place of `amq.rabbitmq.reply-to`."""
    return f"{REPLY_TO_PREFIX}{channel_id}.{key}"


def parse_reply_key(name: str) -> tuple[str, str]:
    """`(channel_id, key)` of such a name; empty texts if it is not one."""
    channel_id, _, key = name.removeprefix(REPLY_TO_PREFIX).rpartition(".")
    return channel_id, key
