"""The events of connections, channels and consumers, with the fields of RabbitMQ's event exchange.

Addresses are texts such as `127.0.0.1` and client properties are a table, where RabbitMQ has texts of Erlang terms.
`connection.closed` comes only for a connection that was open, so that opened and closed ones can be counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..contracts.channel import ChannelConfig
    from ..contracts.events import Fields

PROTOCOL = "{0,9,1}"

#: The info items of a connection that `connection.created` has under the same names.
_CONNECTION_FIELDS = (
    *("name", "user_provided_name", "port", "peer_port", "host", "peer_host", "ssl", "peer_cert_subject"),
    *("peer_cert_issuer", "peer_cert_validity", "auth_mechanism", "ssl_protocol", "ssl_key_exchange", "ssl_cipher"),
    *("ssl_hash", "user", "vhost", "timeout", "frame_max", "channel_max", "client_properties", "connected_at"),
)


def connection_created(node_name: str, items: Mapping[str, object]) -> Fields:
    """The fields of `connection.created`. `items` are the info items of the connection's listing."""
    return {
        "pid": f"<{node_name}.{items['pid']}>",
        "type": "network",
        "protocol": PROTOCOL,
        "node": node_name,
        **{name: items.get(name, "") for name in _CONNECTION_FIELDS},
        "user_who_performed_action": items["user"],
    }


def connection_closed(node_name: str, items: Mapping[str, object]) -> Fields:
    """The fields of `connection.closed`. `items` are the info items of the connection's listing."""
    return {
        "pid": f"<{node_name}.{items['pid']}>",
        "node": node_name,
        **{name: items[name] for name in ("name", "user_provided_name", "client_properties")},
        "user_who_performed_action": items["user"],
    }


def login(user: str, refusal: str | None, items: Mapping[str, object]) -> Fields:
    """An attempt to log in as `user`; `refusal` is why it was refused, None if it succeeded.

    `items` are the info items of the connection's listing.
    """
    fields = {
        "name": user,
        "connection_type": "network",
        "connection_name": items["name"],
        "protocol": PROTOCOL,
        **{name: items[name] for name in ("host", "peer_host", "peer_port", "auth_mechanism", "ssl")},
    }
    return fields if refusal is None else {**fields, "error": refusal}


def channel_created(node_name: str, config: ChannelConfig) -> Fields:
    return {
        "pid": f"<{node_name}.{config.channel_id}>",
        "name": f"{config.connection_name} ({config.number})",
        "connection": f"<{node_name}.{config.connection_id}>",
        "number": config.number,
        "user": config.user,
        "vhost": config.vhost,
        "user_who_performed_action": config.user,
    }


def channel_closed(node_name: str, channel_id: str, user: str) -> Fields:
    return {"pid": f"<{node_name}.{channel_id}>", "user_who_performed_action": user}


def consumer_identity(node_name: str, config: ChannelConfig, queue: str, tag: str) -> Fields:
    """What the events of a consumer of this channel have in common."""
    return {
        "consumer_tag": tag,
        "channel": f"<{node_name}.{config.channel_id}>",
        "queue": queue,
        "vhost": config.vhost,
        "user_who_performed_action": config.user,
    }
