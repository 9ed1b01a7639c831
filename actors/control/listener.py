"""`ControlListener`: a socket to which commands connect, and the parent of their sessions.

A node has up to two: the one in its place (`place`), whose sessions belong to the owner of the node, and one on a TCP
port, whose clients must prove that they know a secret. Each has its own sessions, so that strangers who fill the TCP
port cannot keep the owner out.
"""

from __future__ import annotations

import logging
import socket
from typing import Any

from thespian.actors import ActorAddress

from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..context.starting import ToNewControlListener, ToNewControlSession, to_new_control_session
from ..contracts.node import ToNode
from . import place
from .proof import SecretError, read_secret
from .session import ControlSession

log = logging.getLogger("warren.control")

#: Sessions at once. More clients wait in the operating system until a session ends.
SESSIONS_MAX = 64

#: How many clients may wait in the operating system.
BACKLOG = 128

#: Seconds without accepting when the node is out of descriptors or memory.
PAUSE = 0.2


class ControlError(ProcessError):
    """The node cannot listen for commands. The text has the reason and the way out."""


class ControlListener(Process):
    """See the module."""

    contract = ToNewControlListener
    reply_errors = (ControlError,)

    def __init__(self) -> None:
        super().__init__()
        self.socket: Any = None
        self.sessions: set[str] = set()
        self.secret: bytes | None = None
        #: The run file that names this listener; None for one on a TCP port.
        self.run_file: place.RunFile | None = None
        self.is_accepting = False

    async def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode], is_local: bool) -> str:
        self.context, self.node = context, node
        try:
            return await (self._listen_in_place() if is_local else self._listen_on_port())
        except (OSError, place.PlaceError, SecretError) as error:
            self.stop("cannot listen")
            settings = context.settings
            where = f"in '{settings.control_dir}'" if is_local else f"on port {settings.control_port}"
            raise ControlError(f"cannot listen for commands {where}: {error}") from None

    async def _listen_in_place(self) -> str:
        settings = self.context.settings
        directory = settings.control_dir
        assert directory is not None
        path = await self.run_blocking(place.prepare, directory)
        if place.has_unix_sockets():
            self.socket = self.sockets.listen(socket.AF_UNIX, (path,), BACKLOG)
            run_file = place.new_run_file(settings.node_name, socket=path)
        else:
            self.secret = await self.run_blocking(place.cookie, directory)
            self.socket = self.sockets.listen(socket.AF_INET, ("127.0.0.1", 0), BACKLOG)
            host, port = self.socket.getsockname()[:2]
            run_file = place.new_run_file(settings.node_name, host=host, port=port)
        await self.run_blocking(place.publish, directory, run_file)
        self.run_file = run_file
        self._accept_more()
        log.info("%s listens for commands in %s", settings.node_name, directory)
        return directory

    async def _listen_on_port(self) -> str:
        settings = self.context.settings
        assert settings.control_port is not None and settings.control_cookie_file is not None
        self.secret = await self.run_blocking(read_secret, settings.control_cookie_file)
        candidates = await self.run_blocking(self.sockets.resolve, settings.control_host, settings.control_port)
        self.socket = self.sockets.listen(*candidates[0], BACKLOG)
        self._accept_more()
        host, port = self.socket.getsockname()[:2]
        log.info("%s listens for commands on %s:%s", settings.node_name, host, port)
        return f"{host}:{port}"

    def _accept_more(self) -> None:
        """Watch for clients unless there are as many sessions as are allowed."""
        wanted = self.socket is not None and len(self.sessions) < SESSIONS_MAX
        if wanted != self.is_accepting:
            self.is_accepting = wanted
            (self.watch if wanted else self.unwatch)(self.socket.fileno())

    def on_readable(self, fd: int) -> None:
        try:
            client, _ = self.socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("cannot accept a command: %s; trying again in %s s", error.strerror, PAUSE)
            self.is_accepting = False
            self.unwatch(fd)
            self.start_timer(PAUSE)
            return
        address: Address[ToNewControlSession] = self.createActor(ControlSession)
        self.sessions.add(address.actorAddressString)
        self.send(address, to_new_control_session.start(self.context, self.node, client.detach(), self.secret))
        self._accept_more()

    def on_timer(self, payload: None) -> None:
        """Accept clients again, because the pause is over."""
        self._accept_more()

    def on_child_exited(self, address: ActorAddress) -> None:
        self.sessions.discard(address.actorAddressString)
        self._accept_more()

    def on_exit(self) -> None:
        if self.socket is not None:
            if self.is_accepting:
                self.unwatch(self.socket.fileno())
            self.socket.close()
            self.socket = None
        if self.run_file is not None and self.context.settings.control_dir is not None:
            # This waits for the disk on this thread, because a process that ends cannot wait for another thread.
            place.withdraw(self.context.settings.control_dir, self.run_file)
