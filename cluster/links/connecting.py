"""`Connecting`: how this node and another one make the connections of a session.

Both nodes of a pair connect. An *attempt* makes the three lanes one after the other, under a session id that it has
drawn. Meanwhile the other node's attempt may arrive: the attempt of the node whose name sorts first goes on, and the
other one ends. There is one exception: this node's attempt always ends if the run of the other node whose attempt
arrives has not answered it. It may be connected to an earlier run, which never answers, and the run that arrives has
admitted no lane of it. When three lanes of one attempt have been greeted, `begin_session` of the link gets them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .admission import REASONS
from .encoding.registry import LANE_NAMES
from .greeting import NONCE_BYTES, SESSION_BYTES, Connector
from .handshake import Connected, LinkHandshake

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...runtime.process import Process
    from .admission import LinkIdentity
    from .config import LinkConfig

log = logging.getLogger("warren.links")

#: Seconds before the attempts to connect, each give or take `JITTER`; the last one holds for all further attempts.
BACKOFF = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
JITTER = 0.2

#: Seconds that an attempt may take.
ATTEMPT_SECONDS = 5.0

#: Seconds until an attempt is made again that was due while the link is held (`ToLinks.hold`).
HOLD_SECONDS = 0.1

#: Seconds between two log lines about the same refusal.
REPEAT_SECONDS = 60.0

#: The kinds of timers: an attempt is due; an attempt, or that of the other node, has taken too long.
ATTEMPT, LATE, ARRIVING = "attempt", "late", "arriving"


class Attempt:
    """This node's attempt to make a session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.endpoints: list[Any] = []
        self.handshake: LinkHandshake | None = None
        self.done: dict[str, Connected] = {}

    def is_answered_by(self, incarnation: str) -> bool:
        """Whether this run of the other node has answered the attempt, and no other run has."""
        peers = [one.greeted.peer for one in self.done.values()]
        if self.handshake is not None and self.handshake.side.peer is not None:
            peers.append(self.handshake.side.peer)
        return bool(peers) and all(peer.incarnation == incarnation for peer in peers)

    def close(self) -> None:
        for one in self.done.values():
            one.handshake.sock.close()
        if self.handshake is not None:
            self.handshake.sock.close()


class Connecting:
    """Belongs to `process`, the link to `node`.

    begin_session   is called with the lanes of a session, by name
    failed          is called after an attempt that has failed, with the reason, and whether nobody listens there
    has_session     returns whether a session is up, beside which no attempt is made
    """

    def __init__(
        self,
        process: Process,
        config: LinkConfig,
        node: str,
        identity: LinkIdentity,
        begin_session: Callable[[dict[str, Connected]], None],
        failed: Callable[[str, bool], None],
        has_session: Callable[[], bool],
    ) -> None:
        self._process = process
        #: What the next connections are made with.
        self.config = config
        self._node = node
        #: The identity that this node sends in greetings.
        self.identity = identity
        self._begin_session = begin_session
        self._failed = failed
        self._has_session = has_session
        #: The node's host and port; None if this node has none for it, so that only the other node can connect.
        self.place: tuple[str, int] | None = None
        self._attempt: Attempt | None = None
        #: By reason: the attempts that one of the two nodes has refused.
        self.rejected: dict[str, int] = {}
        #: By session id: the lanes that the other node has made of a session that still lacks others. Only the latest
        #: such session is kept.
        self._arriving: dict[str, dict[str, Connected]] = {}
        #: Attempts that have failed since a session was up for long enough.
        self.failures = 0
        #: Whether no connection is made or taken.
        self.is_held = False
        self._last_logged = ("", 0.0)
        self._timers: dict[str, int] = {}

    @property
    def is_connecting(self) -> bool:
        """Whether this node attempts to make a session."""
        return self._attempt is not None

    @property
    def is_unused(self) -> bool:
        """Whether this node is not to connect to the other one, and no lane of the other one is arriving."""
        return self.place is None and not self._arriving

    def place_text(self) -> str:
        """Where the node is, for people; empty if that is not known."""
        return "" if self.place is None else f"{self.place[0]}:{self.place[1]}"

    def moved(self, place: tuple[str, int] | None) -> None:
        """Connect to the node at another place from now on, or, without a place, no more."""
        changed, self.place = place != self.place, place
        if place is None:
            self._drop_attempt()
            self._cancel(ATTEMPT)
        elif changed and not self._has_session():
            self._drop_attempt()
            self._attempt_in(0.0)

    def session_began(self) -> None:
        """Note that a session is up. The next refusal is logged, even if it was logged before the session."""
        self._last_logged = ("", 0.0)

    def end(self) -> None:
        """Close all connections that are being made. The link ends."""
        self._drop_attempt()
        self._drop_arriving()

    def log_refusal(self, sentence: str) -> None:
        """Log why the nodes are not linked, not too often."""
        last, at = self._last_logged
        now = self._process.now()
        if sentence != last or now - at >= REPEAT_SECONDS:
            self._last_logged = (sentence, now)
            log.info("no link to %s: %s", self._node, sentence)

    # -- attempts of this node ---

    def attempt_later(self) -> None:
        """Attempt to connect again after a while, because an attempt has failed or a session has ended."""
        wait = BACKOFF[min(self.failures, len(BACKOFF) - 1)]
        drawn = int.from_bytes(self._process.random_bytes(2), "big") / 65_535
        self._attempt_in(wait * (1 + JITTER * (2 * drawn - 1)))

    def _attempt_in(self, seconds: float) -> None:
        self._cancel(ATTEMPT)
        self._timers[ATTEMPT] = self._process.start_timer(seconds, (ATTEMPT, ""))

    def _begin_attempt(self) -> None:
        if self.place is None or self._has_session() or self._attempt is not None or self._arriving:
            return
        if self.is_held:
            self._attempt_in(HOLD_SECONDS)
            return
        process = self._process
        attempt = self._attempt = Attempt(process.random_bytes(SESSION_BYTES).hex())
        self._timers[LATE] = process.start_timer(ATTEMPT_SECONDS, (LATE, attempt.session))
        process.spawn(self._resolve(attempt, *self.place))

    async def _resolve(self, attempt: Attempt, host: str, port: int) -> None:
        process = self._process
        try:
            endpoints = await process.run_blocking(process.sockets.resolve, host, port)
        except OSError as error:
            if self._attempt is attempt:
                self._attempt_failed(f"the address {host} is not known: {error.strerror or error}")
            return
        if self._attempt is attempt:
            attempt.endpoints = endpoints
            self._connect(attempt)

    def _connect(self, attempt: Attempt) -> None:
        """Make the next lane."""
        process, config = self._process, self.config
        lane = next(name for name in LANE_NAMES if name not in attempt.done)
        family, address = attempt.endpoints[0]
        try:
            sock = process.sockets.connect(family, address)
        except OSError as error:
            self._not_connected(attempt, error)
            return
        nonce = process.random_bytes(NONCE_BYTES)
        connector = Connector(self.identity, config.key, nonce, self._node, lane, attempt.session)
        handshake = attempt.handshake = LinkHandshake(sock, connector, self.place_text(), config.client_tls)
        process.watch(handshake.fd, read=True, write=True)

    def _not_connected(self, attempt: Attempt, error: OSError) -> None:
        """Try the node's next address, if it has several, because the connection could not be made."""
        if len(attempt.endpoints) > 1 and not attempt.done:
            del attempt.endpoints[0]
            self._connect(attempt)
        elif isinstance(error, ConnectionRefusedError):
            self._attempt_failed(f"nobody listens on {self.place_text()}", is_gone=True)
        else:
            self._attempt_failed(f"{self.place_text()} cannot be reached: {error.strerror or error}")

    def serve(self, fd: int) -> bool:
        """Go on with a handshake whose descriptor is ready. Returns False if no handshake has this descriptor."""
        attempt = self._attempt
        if attempt is None or attempt.handshake is None or attempt.handshake.fd != fd:
            return False
        self._advance(attempt, attempt.handshake)
        return True

    def _advance(self, attempt: Attempt, handshake: LinkHandshake) -> None:
        process = self._process
        was_connected = handshake.is_connected
        try:
            step = handshake.advance()
        except OSError as error:
            process.unwatch(handshake.fd)
            handshake.sock.close()
            attempt.handshake = None
            if was_connected or handshake.is_connected:
                self._attempt_failed(f"{self.place_text()}: {error.strerror or error}")
            else:
                self._not_connected(attempt, error)
            return
        if step is None:
            process.watch(handshake.fd, read=True, write=handshake.wants_write)
            return
        process.unwatch(handshake.fd)
        attempt.handshake = None
        if step.greeted is None:
            handshake.sock.close()
            assert step.refused is not None
            reason = REASONS.get(step.refused.code, "other")
            self.rejected[reason] = self.rejected.get(reason, 0) + 1
            who = f"{self.place_text()} refuses" if step.refused.by_peer else "refused"
            self._attempt_failed(f"{who}: {step.refused.sentence}")
            return
        attempt.done[step.greeted.lane] = Connected(handshake, step.greeted)
        if len(attempt.done) < len(LANE_NAMES):
            self._connect(attempt)
            return
        self._attempt = None
        self._cancel(LATE)
        self._begin_session(attempt.done)

    def _attempt_failed(self, sentence: str, is_gone: bool = False) -> None:
        self._drop_attempt()
        self.failures += 1
        self.log_refusal(sentence)
        self._failed(sentence, is_gone)

    def _drop_attempt(self) -> None:
        self._cancel(LATE)
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            if attempt.handshake is not None:
                self._process.unwatch(attempt.handshake.fd)
            attempt.close()

    # -- lanes that the other node makes ---

    def accepted(self, connected: Connected) -> None:
        """Take a lane that the other node has made and that was greeted."""
        greeted, own = connected.greeted, self.identity.node
        if self.is_held:
            connected.handshake.sock.close()
            return
        if self._attempt is not None:
            if own < self._node and self._attempt.is_answered_by(greeted.peer.incarnation):
                connected.handshake.sock.close()
                return
            self._drop_attempt()
        lanes = self._arriving.get(greeted.session)
        if lanes is None:
            self._drop_arriving()
            self._cancel(ATTEMPT)
            lanes = self._arriving[greeted.session] = {}
            self._timers[ARRIVING] = self._process.start_timer(ATTEMPT_SECONDS, (ARRIVING, greeted.session))
        lanes[greeted.lane] = connected
        if len(lanes) == len(LANE_NAMES):
            self._arriving.clear()
            self._cancel(ARRIVING)
            self._begin_session(lanes)

    def _drop_arriving(self) -> None:
        self._cancel(ARRIVING)
        for lanes in self._arriving.values():
            for one in lanes.values():
                one.handshake.sock.close()
        self._arriving.clear()

    # -- timers ---

    def timer_due(self, kind: str, session: str) -> bool:
        """Handle a timer of this kind. Returns True if the link is to make another attempt later."""
        self._timers.pop(kind, None)
        if kind == ATTEMPT:
            self._begin_attempt()
        elif kind == LATE and self._attempt is not None and self._attempt.session == session:
            self._attempt_failed(f"{self.place_text()} does not answer")
        elif kind == ARRIVING and session in self._arriving:
            self._drop_arriving()
            return True
        return False

    def _cancel(self, kind: str) -> None:
        timer = self._timers.pop(kind, None)
        if timer is not None:
            self._process.cancel_timer(timer)
