"""`Link`: everything between this node and one other node (CL-4 to CL-6, CL-14 to CL-16).

    waiting ──> connecting ──> up
       ^            │          │      a session consists of the three lanes; it ends when one of them does
       └────────────┴──────────┘

Both nodes of a pair connect. An *attempt* makes the three lanes one after the other, under a session id that it has
drawn. Meanwhile the other node's attempt may arrive: the attempt of the node whose name sorts first goes on, and the
other one ends. A session is up when its three lanes have been greeted; it first ends the session that was up before.

While a session is up, the link carries what processes send to addresses of the other node. It gathers what a round of
the loop has produced, and writes it when the round ends, one frame for each lane and one system call for each frame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ...actors.contracts.membership import ToLinkSender, to_link_sender
from ...runtime.contract import Address, Sender
from ...runtime.process import Process
from .admission import Identity
from .config import LinkConfig
from .contract import Facts, LinkItems, ToLink, ToLinkWatcher, to_link_watcher
from .encoding.codecs import CodecError
from .encoding.frames import FrameError
from .encoding.registry import CONTROL, LANE_NAMES
from .greeting import NONCE_BYTES, SESSION_BYTES, Connector, Greeted
from .handshake import Handshake
from .lane import Lane, LaneClosed
from .session import Session

log = logging.getLogger("warren.links")

#: Seconds before the attempts to connect, each give or take `JITTER`; the last one is that of all that follow.
BACKOFF = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
JITTER = 0.2

#: Seconds that a session must have been up before the next attempts begin with the shortest wait again.
STABLE = 5.0

#: Seconds that an attempt may take.
ATTEMPT_SECONDS = 5.0

#: Seconds until an attempt is made again that was due while the link is held (`ToLinks.hold`).
HOLD_SECONDS = 0.1

#: How often in `net_ticktime` the link looks whether anything has come. If nothing has, it sends a ping, which a peer
#: that lives answers.
LOOKS_A_TICKTIME = 2

#: After so many looks in a row without any input from the peer the session ends. That is twice `net_ticktime`: the
#: failure detector decides about nodes, and this only ends what a silent node would keep waiting for ever.
SILENT_LOOKS = 4

#: Every so many looks there is a ping in any case, which measures the round trip.
MEASURING_LOOKS = 10

#: Seconds between two log lines about the same refusal.
REPEAT_SECONDS = 60.0


class Connected(NamedTuple):
    """A connection whose greeting is over."""

    handshake: Handshake
    greeted: Greeted


class Attempt:
    """This node's attempt to make a session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.endpoints: list[Any] = []
        self.handshake: Handshake | None = None
        self.done: dict[str, Connected] = {}

    @property
    def is_greeting(self) -> bool:
        """Whether the other node has taken a connection of this attempt."""
        return bool(self.done) or (self.handshake is not None and self.handshake.is_connected)

    def close(self) -> None:
        for one in self.done.values():
            one.handshake.sock.close()
        if self.handshake is not None:
            self.handshake.sock.close()


class Link(Process):
    """See the module."""

    contract = ToLink

    config: LinkConfig
    node: str
    identity: Identity
    watchers: list[Address[ToLinkWatcher]]
    state_since: float

    def __init__(self) -> None:
        super().__init__()
        #: The node's host and port; None if this node has none for it, so that only the other node can connect.
        self.place: tuple[str, int] | None = None
        self.attempt: Attempt | None = None
        #: Lanes that the other node has made of a session that is not up, by session id. Only the latest is kept.
        self.arriving: dict[str, dict[str, Connected]] = {}
        self.session: Session | None = None
        #: Attempts that have failed since a session was up for long enough.
        self.failures = 0
        self.sessions = 0
        self.is_flush_due = False
        #: Whether what this node sends is kept back, and what comes is left unread.
        self.holds_output = self.holds_input = False
        self.reason = ""
        self._last_logged = ("", 0.0)
        self._timers: dict[str, int] = {}

    def on_start(
        self,
        sender: Sender,
        config: LinkConfig,
        node: str,
        identity: Identity,
        watchers: list[Address[ToLinkWatcher]],
    ) -> None:
        self.config = config
        self.node = node
        self.identity = identity
        self.watchers = watchers
        self.state_since = self.now()

    # -- messages of Links -------------------------------------------------------------------------

    def on_place(self, sender: Sender, place: tuple[str, int] | None) -> None:
        if place is None and self.place is not None and self.session is not None:
            self._end_session("the node is no peer any more")
        changed, self.place = place != self.place, place
        if place is None:
            self._drop_attempt()
            self._cancel("attempt")
            self._leave_if_idle()
        elif changed and self.session is None:
            self._drop_attempt()
            self._attempt_in(0.0)

    def on_greet_as(self, sender: Sender, identity: Identity) -> None:
        self.identity = identity

    def on_watched_by(self, sender: Sender, watcher: Address[ToLinkWatcher]) -> None:
        self.watchers.append(watcher)
        if self.session is not None:
            self.send(watcher, self._up_message(self.session))

    def on_unwatched_by(self, sender: Sender, watcher: Address[ToLinkWatcher]) -> None:
        self.watchers = [one for one in self.watchers if one != watcher]

    def on_hold(self, sender: Sender, sends: bool, receives: bool) -> bool:
        self.holds_output, self.holds_input = sends, receives
        if self.session is not None:
            for lane in list(self.session.lanes.values()):
                self._watch(lane)
            self._flush()
        return True

    def on_end_session(self, sender: Sender, reason: str) -> None:
        if self.session is not None:
            self._end_session(reason)
            self._attempt_later()

    def on_items(self, sender: Sender) -> LinkItems:
        session = self.session
        state = "up" if session is not None else "connecting" if self.attempt is not None else "waiting"
        return {
            "node": self.node,
            "state": state if not (state == "waiting" and self.reason) else "refused",
            "since": round(self.now() - (self.state_since if session is None else session.since), 3),
            "address": "" if self.place is None else f"{self.place[0]}:{self.place[1]}",
            "incarnation": "" if session is None else session.peer.incarnation,
            "round_trip": None if session is None else session.round_trip,
            "open": 0 if session is None else self._host.systems.open_across(session.system),
            "sessions": self.sessions,
            "version": 0 if session is None else session.version,
            "reason": self.reason,
            "lanes": [] if session is None else session.lane_items(),
        }

    # -- connecting --------------------------------------------------------------------------------

    def _attempt_later(self) -> None:
        """After a failure, or the end of a session."""
        if self.place is None:
            self._leave_if_idle()
            return
        wait = BACKOFF[min(self.failures, len(BACKOFF) - 1)]
        drawn = int.from_bytes(self.random_bytes(2), "big") / 65_535
        self._attempt_in(wait * (1 + JITTER * (2 * drawn - 1)))

    def _attempt_in(self, seconds: float) -> None:
        self._cancel("attempt")
        self._timers["attempt"] = self.start_timer(seconds, ("attempt", ""))

    def _begin_attempt(self) -> None:
        if self.place is None or self.session is not None or self.attempt is not None or self.arriving:
            return
        if self.holds_output or self.holds_input:
            self._attempt_in(HOLD_SECONDS)
            return
        attempt = self.attempt = Attempt(self.random_bytes(SESSION_BYTES).hex())
        self._timers["late"] = self.start_timer(ATTEMPT_SECONDS, ("late", attempt.session))
        self.spawn(self._resolve(attempt, *self.place))

    async def _resolve(self, attempt: Attempt, host: str, port: int) -> None:
        try:
            endpoints = await self.run_blocking(self.sockets.resolve, host, port)
        except OSError as error:
            if self.attempt is attempt:
                self._attempt_failed(f"the address {host} is not known: {error.strerror or error}")
            return
        if self.attempt is attempt:
            attempt.endpoints = endpoints
            self._connect(attempt)

    def _connect(self, attempt: Attempt) -> None:
        """Make the next lane."""
        lane = next(name for name in LANE_NAMES if name not in attempt.done)
        family, address = attempt.endpoints[0]
        try:
            sock = self.sockets.connect(family, address)
        except OSError as error:
            self._not_connected(attempt, error)
            return
        nonce = self.random_bytes(NONCE_BYTES)
        connector = Connector(self.identity, self.config.key, nonce, self.node, lane, attempt.session)
        handshake = attempt.handshake = Handshake(sock, connector, self._place_text(), self.config.client_tls)
        self.watch(handshake.fd, read=True, write=True)

    def _not_connected(self, attempt: Attempt, error: OSError) -> None:
        """Try the node's next address, if it has several, because the connection could not be made."""
        if len(attempt.endpoints) > 1 and not attempt.done:
            del attempt.endpoints[0]
            self._connect(attempt)
        elif isinstance(error, ConnectionRefusedError):
            self._attempt_failed(f"nobody listens on {self._place_text()}", is_gone=True)
        else:
            self._attempt_failed(f"{self._place_text()} cannot be reached: {error.strerror or error}")

    def _advance(self, attempt: Attempt, handshake: Handshake) -> None:
        was_connected = handshake.is_connected
        try:
            step = handshake.advance()
        except OSError as error:
            self.unwatch(handshake.fd)
            handshake.sock.close()
            attempt.handshake = None
            if was_connected or handshake.is_connected:
                self._attempt_failed(f"{self._place_text()}: {error.strerror or error}")
            else:
                self._not_connected(attempt, error)
            return
        if step is None:
            self.watch(handshake.fd, read=True, write=handshake.wants_write)
            return
        self.unwatch(handshake.fd)
        attempt.handshake = None
        if step.greeted is None:
            handshake.sock.close()
            assert step.refused is not None
            who = f"{self._place_text()} refuses" if step.refused.by_peer else "refused"
            self._attempt_failed(f"{who}: {step.refused.sentence}")
            return
        attempt.done[step.greeted.lane] = Connected(handshake, step.greeted)
        if len(attempt.done) < len(LANE_NAMES):
            self._connect(attempt)
            return
        self.attempt = None
        self._cancel("late")
        self._begin_session(attempt.done)

    def _attempt_failed(self, sentence: str, is_gone: bool = False) -> None:
        self._drop_attempt()
        self.failures += 1
        self.reason = sentence
        self._log_refusal(sentence)
        for watcher in self.watchers:
            self.send(watcher, to_link_watcher.link_refused(self.node, sentence, is_gone))
        self._attempt_later()

    def _log_refusal(self, sentence: str) -> None:
        last, at = self._last_logged
        now = self.now()
        if sentence != last or now - at >= REPEAT_SECONDS:
            self._last_logged = (sentence, now)
            log.info("no link to %s: %s", self.node, sentence)

    def _drop_attempt(self) -> None:
        self._cancel("late")
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            if attempt.handshake is not None:
                self.unwatch(attempt.handshake.fd)
            attempt.close()

    def _place_text(self) -> str:
        return "" if self.place is None else f"{self.place[0]}:{self.place[1]}"

    # -- lanes that the other node makes -----------------------------------------------------------

    def on_accepted(self, sender: Sender, connected: Connected) -> None:
        greeted, own = connected.greeted, self.identity.node
        if self.holds_output or self.holds_input:
            connected.handshake.sock.close()
            return
        if self.attempt is not None:
            if own < self.node and self.attempt.is_greeting:
                connected.handshake.sock.close()
                return
            self._drop_attempt()
        lanes = self.arriving.get(greeted.session)
        if lanes is None:
            self._drop_arriving()
            self._cancel("attempt")
            lanes = self.arriving[greeted.session] = {}
            self._timers["arriving"] = self.start_timer(ATTEMPT_SECONDS, ("arriving", greeted.session))
        lanes[greeted.lane] = connected
        if len(lanes) == len(LANE_NAMES):
            self.arriving.clear()
            self._cancel("arriving")
            self._begin_session(lanes)

    def _drop_arriving(self) -> None:
        self._cancel("arriving")
        for lanes in self.arriving.values():
            for one in lanes.values():
                one.handshake.sock.close()
        self.arriving.clear()

    # -- the session -------------------------------------------------------------------------------

    def _begin_session(self, connected: dict[str, Connected]) -> None:
        if self.session is not None:
            self._end_session("the node has made a new session")
        greeted = connected[CONTROL].greeted
        session = self.session = Session(
            greeted.peer,
            greeted.session,
            greeted.version,
            self.config,
            self._host.systems,
            self.now,
            self._flush_later,
            self._unknown,
            self._full,
        )
        self.sessions += 1
        self._last_logged = ("", 0.0)
        self._host.systems.system_up(session.system, session.carry)
        up = self._up_message(session)
        for watcher in self.watchers:
            self.send(watcher, up)
        log.info("link to %s is up, to its run %s", self.node, session.peer.incarnation)
        for name in LANE_NAMES:
            handshake = connected[name].handshake
            lane = Lane(name, handshake.fd, handshake.sock, handshake.reader, session.frame)
            if handshake.unsent:
                lane.write([handshake.unsent])
            session.add_lane(lane)
        for lane in list(session.lanes.values()):
            self._watch(lane)
            if self.session is session:
                self._serve(lane, lane.hand_out)
        if self.session is session:
            self._timers["look"] = self.start_timer(0, ("look", session.id))

    def _up_message(self, session: Session) -> Any:
        peer = session.peer
        facts: Facts = {**peer.facts, "cluster_id": peer.cluster_id, "features": sorted(peer.features)}
        return to_link_watcher.link_up(peer.node, peer.incarnation, peer.node_id, facts)

    def _end_session(self, reason: str) -> None:
        """End the session that is up: first the asks and monitors across it, then notify the watchers."""
        session = self.session
        if session is None:
            return
        self.session = None
        self._cancel("look")
        for lane in session.lanes.values():
            self.unwatch(lane.fd)
            lane.close()
        self._host.systems.system_down(session.system)
        self._free(session.take_waiting())
        if self.now() - session.since >= STABLE:
            self.failures = 0
        self.reason = reason
        self.state_since = self.now()
        log.info("link to %s is down: %s", self.node, reason)
        for watcher in self.watchers:
            self.send(watcher, to_link_watcher.link_down(self.node, reason))

    def _leave_if_idle(self) -> None:
        """End this process if it is neither wanted nor used."""
        if self.place is None and self.session is None and not self.arriving:
            self.stop()

    # -- descriptors -------------------------------------------------------------------------------

    def on_readable(self, fd: int) -> None:
        session, attempt = self.session, self.attempt
        if session is not None and (lane := session.by_fd.get(fd)) is not None:
            if self.holds_input:
                self._watch(lane)
            else:
                self._serve(lane, lane.read)
        elif attempt is not None and attempt.handshake is not None and attempt.handshake.fd == fd:
            self._advance(attempt, attempt.handshake)
        else:
            self.unwatch(fd)

    def on_writable(self, fd: int) -> None:
        session, attempt = self.session, self.attempt
        if session is not None and (lane := session.by_fd.get(fd)) is not None:
            if self.holds_output:
                self._watch(lane)
            else:
                self._serve(lane, lane.flush)
                self._free(session.written())
        elif attempt is not None and attempt.handshake is not None and attempt.handshake.fd == fd:
            self._advance(attempt, attempt.handshake)
        else:
            self.unwatch(fd)

    def _serve(self, lane: Lane, action: Callable[[], None]) -> None:
        """Read from a lane, write to it, or hand out what it holds; the link breaks if that fails."""
        try:
            action()
        except LaneClosed as error:
            self._broken(lane, str(error))
        except (FrameError, CodecError) as error:
            log.warning("link to %s: malformed input on the lane %s: %s", self.node, lane.name, error)
            self._broken(lane, f"malformed input: {error}")
        else:
            if not lane.is_closed:
                self._watch(lane)

    def _watch(self, lane: Lane) -> None:
        reads = lane.held_bytes < self.config.windows[lane.name] and not self.holds_input
        self.watch(lane.fd, read=reads, write=lane.wants_write and not self.holds_output)

    def _broken(self, lane: Lane, reason: str) -> None:
        if not lane.is_closed:
            self._end_session(f"{reason} (lane {lane.name})")
            self._attempt_later()

    # -- the end of a round ------------------------------------------------------------------------

    def _flush_later(self) -> None:
        if not self.is_flush_due:
            self.is_flush_due = True
            self.call_at_round_end()

    def on_round_end(self) -> None:
        self._flush()

    def after_batch(self) -> None:
        session = self.session
        if session is not None and session.is_behind:
            self._hand_out_held(session)
        if self.is_flush_due:
            self._flush()

    def _hand_out_held(self, session: Session) -> None:
        """Go on with frames that this node has applied enough for, if it has applied more meanwhile."""
        for lane in list(session.lanes.values()):
            if lane.held and not lane.is_closed:
                self._serve(lane, partial(session.release, lane))
        session.is_behind = any(lane.held for lane in session.lanes.values())
        if session.is_behind:
            self._host.systems.wake_when_applied(self.myAddress)

    def _flush(self) -> None:
        self.is_flush_due = False
        session = self.session
        if session is None:
            return
        session.give_to_lanes()
        if not self.holds_output:
            for lane in list(session.lanes.values()):
                if lane.unsent and not lane.is_closed:
                    self._serve(lane, lane.flush)
        self._free(session.written())

    def _full(self, sender: Address[ToLinkSender]) -> None:
        self.send(sender, to_link_sender.link_full(self.node))

    def _free(self, senders: list[Address[ToLinkSender]]) -> None:
        for sender in senders:
            self.send(sender, to_link_sender.link_free(self.node))

    def _unknown(self, number: int) -> None:
        self._log_refusal(f"it sends messages that this version does not know, such as number {number}")

    # -- timers ------------------------------------------------------------------------------------

    def on_timer(self, payload: tuple[str, str]) -> None:
        kind, about = payload
        self._timers.pop(kind, None)
        session = self.session
        if kind == "attempt":
            self._begin_attempt()
        elif kind == "late" and self.attempt is not None and self.attempt.session == about:
            self._attempt_failed(f"{self._place_text()} does not answer")
        elif kind == "arriving" and about in self.arriving:
            self._drop_arriving()
            self._attempt_later()
        elif kind == "look" and session is not None and session.id == about:
            self._look(session)

    def _look(self, session: Session) -> None:
        silent = session.silent_looks()
        if silent == SILENT_LOOKS:
            self._end_session(f"nothing has come for {SILENT_LOOKS * self.config.ticktime / LOOKS_A_TICKTIME:g} s")
            self._attempt_later()
            return
        if silent or session.looks % MEASURING_LOOKS == 1:
            session.ping()
        self._timers["look"] = self.start_timer(self.config.ticktime / LOOKS_A_TICKTIME, ("look", session.id))

    def _cancel(self, kind: str) -> None:
        timer = self._timers.pop(kind, None)
        if timer is not None:
            self.cancel_timer(timer)

    def on_exit(self) -> None:
        self._drop_attempt()
        self._drop_arriving()
        self._end_session("this node stops")
