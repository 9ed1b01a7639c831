"""What listings show of a connection: its state, and what follows from its handshake and its socket."""

from __future__ import annotations

from ...runtime.credit import CreditFlow
from ..contracts.connection import SocketAddress
from ..contracts.info_items import InfoItems
from .handshake import Negotiated
from .output import SocketOutput
from .socket_input import SocketInput


def reported_state(state: str, has_alarms: bool, credit: CreditFlow) -> str:
    """The state that listings show (AB-36) of a connection in `state`."""
    if state == "blocked" and has_alarms:
        return "blocked"
    if has_alarms and state == "running":
        return "blocking"
    if credit.in_flow() and state in ("running", "blocked"):
        return "flow"
    return state


def connection_items(
    negotiated: Negotiated, peer: SocketAddress, local: SocketAddress, source: SocketInput, output: SocketOutput
) -> InfoItems:
    """The info items that follow from the handshake, the addresses and the socket. TLS adds to them."""
    user_provided = negotiated.client_properties.get("connection_name")
    return {
        "user": negotiated.user,
        "vhost": negotiated.vhost,
        "peer_host": peer[0],
        "peer_port": peer[1],
        "host": local[0],
        "port": local[1],
        "protocol": (0, 9, 1),
        "auth_mechanism": negotiated.mechanism,
        "frame_max": negotiated.frame_max,
        "channel_max": negotiated.channel_max,
        "timeout": negotiated.heartbeat,
        "client_properties": negotiated.client_properties,
        "recv_oct": source.received,
        "recv_cnt": source.reads,
        "send_oct": output.total_written,
        "send_cnt": output.writes,
        "send_pend": output.size,
        "user_provided_name": (
            user_provided[1].decode("utf-8", "replace") if user_provided and user_provided[0] == "S" else ""
        ),
        "ssl": False,
    }
