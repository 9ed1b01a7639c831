"""`Links`: listens for other nodes, and is the parent of the links to them.

    Links
      Link      one for each node that this one is to reach, or that has connected to this one

An accepted connection belongs to `Links` until its greeting is complete, because only the greeting names the node that
opened it. When both sides have admitted each other, the connection goes to the `Link` of that node. At most
`MOST_GREETING` connections are in their greeting; one more closes the oldest of them. A client that opens thousands of
connections without a greeting closes its own in this way, because a node completes its greeting within milliseconds.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress

from ...definitions.features import FEATURES
from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitReason
from ...runtime.log_format import one_line
from ...runtime.process import Process
from ...settings.cluster_settings import DEFAULT_CLUSTER_PORT
from .admission import BAD_SECRET, MALFORMED, ClusterMembership, LinkIdentity, Refusal
from .config import LinkConfig, LinksError, tls_context
from .contract import LinkItems, ToLink, ToLinks, ToLinkWatcher, to_link
from .encoding.messages import MESSAGES
from .encoding.registry import Registry
from .greeting import NONCE_BYTES, Acceptor
from .handshake import Connected, LinkHandshake
from .link import Link
from .refusals import Refusals

if TYPE_CHECKING:
    from ...actors.context.node_context import NodeContext
    from ...settings import Settings

log = logging.getLogger("warren.links")

#: Connections in their greeting at a time; one more ends the oldest of them.
MOST_GREETING = 128

#: Seconds that a greeting may take.
GREETING_SECONDS = 5.0

#: Connections accepted in one turn.
ACCEPTS_PER_TURN = 8

#: The name by which the process is found in its node.
NAME = "links"

#: Connections that may wait in the operating system to be accepted.
BACKLOG = 128

#: Seconds for which no connection is accepted after an error, such as a lack of descriptors or memory.
PAUSE = 0.2

#: Timers: close connections whose greeting takes too long; accept again.
LATE, ACCEPT = "late greetings", "accept"


class Links(Process):
    """See the module."""

    contract = ToLinks
    reply_errors = (LinksError,)

    #: The messages that may cross the links; tests use messages of their own.
    registry: Registry = MESSAGES

    own: LinkIdentity
    settings: Settings
    config: LinkConfig
    refusals: Refusals

    def __init__(self) -> None:
        super().__init__()
        self.watchers: list[Address[ToLinkWatcher]] = []
        #: The links by node, and the nodes by the address of their link.
        self.links: dict[str, Address[ToLink]] = {}
        self.nodes: dict[str, str] = {}
        self.peers: dict[str, tuple[str, int]] = {}
        #: Connections in their greeting by descriptor, the oldest one first, and when each was accepted.
        self.greeting: dict[int, tuple[LinkHandshake, float]] = {}
        self.socket: Any = None

    async def on_start(self, sender: Sender, context: NodeContext, node_id: str, incarnation: str) -> tuple[str, int]:
        settings = self.settings = context.settings
        self.own = LinkIdentity(context.node_name, node_id, incarnation, features=frozenset(FEATURES))
        self.refusals = Refusals(self.now)
        self.config = await self.run_blocking(LinkConfig.of, settings, self.registry)
        host = settings.host if settings.cluster_host is None else settings.cluster_host
        port = DEFAULT_CLUSTER_PORT if settings.cluster_port is None else settings.cluster_port
        try:
            family, address = (await self.run_blocking(self.sockets.resolve, host, port))[0]
            self.socket = self.sockets.listen(family, address, BACKLOG)
        except OSError as error:
            raise LinksError(
                f"cannot listen for other nodes on {host}:{port}: {error.strerror or error}; free that port, or choose "
                "another one with cluster_host and cluster_port"
            ) from None
        self.watch(self.socket.fileno())
        self.register(NAME)
        name = self.socket.getsockname()
        log.info("%s listens for other nodes on %s:%s", self.own.node, name[0], name[1])
        return (name[0], name[1])

    # -- messages of members and watchers ----------------------------------------------------------

    def on_set_peers(self, sender: Sender, peers: dict[str, tuple[str, int]]) -> None:
        former, self.peers = self.peers, dict(peers)
        self.peers.pop(self.own.node, None)
        for node in former.keys() - self.peers.keys():
            if node in self.links:
                self.send(self.links[node], to_link.place(None))
        for node, place in self.peers.items():
            if former.get(node) != place or node not in self.links:
                self.send(self._link(node), to_link.place(place))

    def on_set_membership(self, sender: Sender, membership: ClusterMembership) -> None:
        self.own = self.own._replace(cluster_id=membership.cluster_id, facts=membership.facts, membership=membership)
        for link in self.links.values():
            self.send(link, to_link.greet_as(self.own))

    def on_subscribe(self, sender: Sender, watcher: Address[ToLinkWatcher]) -> None:
        self.watchers.append(watcher)
        self.monitor(watcher, ("watcher", watcher.actorAddressString))
        for link in self.links.values():
            self.send(link, to_link.watched_by(watcher))

    def on_down(self, name: tuple[str, str], reason: ExitReason) -> None:
        """A watcher has ended."""
        for watcher in [one for one in self.watchers if one.actorAddressString == name[1]]:
            self.watchers.remove(watcher)
            for link in self.links.values():
                self.send(link, to_link.unwatched_by(watcher))

    def on_disconnect(self, sender: Sender, node: str, reason: str) -> None:
        if node in self.links:
            self.send(self.links[node], to_link.end_session(reason))

    async def on_hold(self, sender: Sender, node: str, sends: bool, receives: bool) -> bool:
        return await self.ask(self._link(node), to_link.hold(sends, receives))

    async def on_reload_certificates(self, sender: Sender) -> str:
        if self.config.server_tls is None:
            return ""
        try:
            server = await self.run_blocking(tls_context, self.settings, False)
            client = await self.run_blocking(tls_context, self.settings, True)
        except LinksError as error:
            log.error("the certificate for other nodes stays, because the new one cannot be used: %s", error)
            return str(error)
        self.config = self.config._replace(server_tls=server, client_tls=client)
        for link in self.links.values():
            self.send(link, to_link.use(self.config))
        log.info("the certificate for other nodes is loaded again; connections that are made from now on get it")
        return ""

    async def on_links(self, sender: Sender) -> list[LinkItems]:
        answers = await self.ask_each([(link, to_link.items()) for link in list(self.links.values())])
        rows: list[LinkItems] = []
        for answer in answers:
            if isinstance(answer, Exception):
                if not isinstance(answer, ProcessDown):
                    raise answer
            else:
                rows.append(answer)
        return sorted(rows, key=lambda row: row["node"])

    def _link(self, node: str) -> Address[ToLink]:
        link = self.links.get(node)
        if link is None:
            link = self.links[node] = self.createActor(Link)
            self.nodes[link.actorAddressString] = node
            self.send(link, to_link.start(self.config, node, self.own, list(self.watchers)))
        return link

    def on_child_exited(self, address: ActorAddress) -> None:
        """A link has ended because it was not needed, or has crashed. A node that is still a peer gets another link."""
        node = self.nodes.pop(address.actorAddressString)
        del self.links[node]
        if node in self.peers:
            self.send(self._link(node), to_link.place(self.peers[node]))

    # -- accepted connections ----------------------------------------------------------------------

    def on_readable(self, fd: int) -> None:
        if fd in self.greeting:
            self._advance(self.greeting[fd][0])
        elif self.socket is not None and fd == self.socket.fileno():
            self._accept()

    def on_writable(self, fd: int) -> None:
        if fd in self.greeting:
            self._advance(self.greeting[fd][0])

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of descriptors or memory, or the other side has hung up. Without a pause the loop would spin.
                log.warning("cannot accept a connection of another node: %s", error.strerror)
                self.unwatch(self.socket.fileno())
                self.start_timer(PAUSE, ACCEPT)
                return
            host = str(address[0])
            if self.refusals.is_waiting(host):
                sock.close()
                continue
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                sock.close()
                continue
            self._greet(self.sockets.adopt(sock.detach()), f"{host}:{address[1]}")

    def _greet(self, sock: Any, address: str) -> None:
        if len(self.greeting) >= MOST_GREETING:
            self._give_up(next(iter(self.greeting)))
        elif not self.greeting:
            self.start_timer(GREETING_SECONDS, LATE)
        acceptor = Acceptor(self.own, self.config.key, self.random_bytes(NONCE_BYTES))
        handshake = LinkHandshake(sock, acceptor, address, self.config.server_tls)
        self.greeting[handshake.fd] = (handshake, self.now())
        self.watch(handshake.fd)

    def _give_up(self, fd: int) -> None:
        handshake, _ = self.greeting.pop(fd)
        self.unwatch(fd)
        handshake.sock.close()

    def _advance(self, handshake: LinkHandshake) -> None:
        try:
            step = handshake.advance()
        except OSError as error:
            self._give_up(handshake.fd)
            log.debug("a connection from %s ended in its greeting: %s", handshake.address, error.strerror or error)
            return
        if step is None:
            self.watch(handshake.fd, read=True, write=handshake.wants_write)
        elif step.greeted is None:
            self._give_up(handshake.fd)
            assert step.refused is not None
            self._refused(handshake.address, step.refused)
        else:
            del self.greeting[handshake.fd]
            self.unwatch(handshake.fd)
            self.send(self._link(step.greeted.peer.node), to_link.accepted(Connected(handshake, step.greeted)))

    def _refused(self, address: str, refusal: Refusal) -> None:
        host = address.rpartition(":")[0]
        if refusal.code in (MALFORMED, BAD_SECRET):
            self.refusals.add(host)
        if self.refusals.is_news(host, refusal.sentence):
            log.warning("no link with the node at %s: %s", address, one_line(refusal.sentence))

    def on_timer(self, payload: str) -> None:
        if payload == ACCEPT:
            if self.socket is not None:
                self.watch(self.socket.fileno())
            return
        oldest = self.now() - GREETING_SECONDS
        for fd, (handshake, since) in list(self.greeting.items()):
            if since > oldest:
                break
            self._give_up(fd)
            silence = Refusal(MALFORMED, f"it has sent no greeting for {GREETING_SECONDS:g} s")
            self._refused(handshake.address, silence)
        if self.greeting:
            self.start_timer(GREETING_SECONDS, LATE)

    def on_exit(self) -> None:
        for fd in list(self.greeting):
            self._give_up(fd)
        if self.socket is not None:
            self.unwatch(self.socket.fileno())
            self.socket.close()
            self.socket = None
