"""`Endpoints`: where a client that is connected to this node reaches the other nodes of the cluster (SP-21).

Each node knows on which addresses it listens, so the channel asks the nodes. An address is listed if the client can be
expected to reach it: only listeners with TLS for a client that uses TLS, only others for one that does not, and the
loopback addresses of another node only for a client that has itself connected to a loopback address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ....runtime.errors import ProcessError
from ...contracts.node import ClientAddress, to_node

if TYPE_CHECKING:
    from ....runtime.process import Process
    from ...context.node_context import NodeContext
    from ...contracts.channel import ChannelConfig

#: Seconds that a node may take to answer where clients reach it. The catalogue leaves out a node that does not answer.
ANSWER_SECONDS = 1.0


class Endpoints:
    """The addresses of some nodes. The nodes are asked when this is made, and `answered` waits for them.
    The program that embeds the broker has connected to no address, and gets none.
    """

    def __init__(self, process: Process, context: NodeContext, config: ChannelConfig, nodes: Iterable[str]) -> None:
        self._by_node: dict[str, list[str]] = {}
        self._asked: dict[str, Awaitable[list[ClientAddress]]] = {}
        if config.reached is None:
            return
        #: Where the client has connected to this node.
        self._reached = ClientAddress(str(config.reached[0]), config.reached[1], config.with_tls)
        for node in nodes:
            if node == context.node_name:
                self._by_node[node] = [_text(self._reached)]
            else:
                asked = process.ask(context.peers.node(node), to_node.client_addresses(), ANSWER_SECONDS)
                self._asked[node] = asked

    async def answered(self) -> None:
        """Wait for the answers."""
        for node, asked in self._asked.items():
            try:
                addresses = await asked
            except ProcessError:
                continue  # the node is away, or its version does not have this message
            self._by_node[node] = [_text(each) for each in addresses if self._is_for_client(each)]

    def of(self, nodes: Iterable[str]) -> list[str]:
        """The addresses of these nodes, `host:port`, in the order of the nodes."""
        return [each for node in nodes for each in self._by_node.get(node, ())]

    def _is_for_client(self, address: ClientAddress) -> bool:
        reached = self._reached
        return address.is_tls == reached.is_tls and (not _is_loopback(address.host) or _is_loopback(reached.host))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(address: ClientAddress) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
