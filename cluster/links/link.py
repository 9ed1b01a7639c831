"""`Link`: everything between this node and one other node (CL-4 to CL-6, CL-14 to CL-16).

    waiting ──> connecting ──> up
       ^            │          │      a session consists of the three lanes; it ends when one of them does
       └────────────┴──────────┘

`Connecting` makes the connections. A session is up when its three lanes have been greeted; it first ends the session
that was up before.

While a session is up, the link carries what processes send to addresses of the other node. It gathers what a round of
the loop has produced, and writes it when the round ends, one frame for each lane and one system call for each frame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ...actors.contracts.membership import ToLinkSender, to_link_sender
from ...runtime.contract import Address, Sender
from ...runtime.process import Process
from .admission import Facts, LinkIdentity
from .config import LinkConfig
from .connecting import Connecting
from .contract import LinkItems, ToLink, ToLinkWatcher, to_link_watcher
from .encoding.codecs import CodecError
from .encoding.frames import LinkFrameError
from .encoding.registry import CONTROL, LANE_NAMES
from .handshake import Connected
from .lane import LaneClosed, LinkLane
from .session import Session

log = logging.getLogger("warren.links")

#: Seconds that a session must have been up before the next attempts begin with the shortest wait again.
STABLE = 5.0

#: A session that ends within this many seconds counts as an attempt that has failed. While the other node makes an
#: attempt of its own, it may close each connection of this node at once. If its attempt leads to an earlier run of this
#: node, which never answers, hundreds of sessions a second would begin and end here until the other node gives it up.
FLEETING = 0.1

#: The kind of a timer. The others are those of `Connecting`.
LOOK = "look"

#: How often in `net_ticktime` the link looks whether anything has come. If nothing has, it sends a ping, which a peer
#: that lives answers.
LOOKS_A_TICKTIME = 2

#: After this many looks in a row without any input from the peer the session ends. That is twice `net_ticktime`: the
#: failure detector decides about nodes, and this only ends what a silent node would keep waiting for ever.
SILENT_LOOKS = 4

#: Once in this many looks there is a ping in any case, which measures the round trip. The other lanes are pinged as
#: often: they may be idle for hours, and a firewall between the nodes forgets an idle connection without notice.
MEASURING_LOOKS = 10

#: After this many looks the session ends if one lane is silent, however much comes by the others: ten times
#: `net_ticktime`. Otherwise whatever is sent by that lane would be lost until TCP gives up, after a quarter of an hour.
STUCK_LOOKS = 20


class Link(Process):
    """See the module."""

    contract = ToLink

    config: LinkConfig
    node: str
    connecting: Connecting
    watchers: list[Address[ToLinkWatcher]]
    state_since: float

    def __init__(self) -> None:
        super().__init__()
        self.session: Session | None = None
        self.sessions = 0
        self.is_flush_due = False
        #: Whether what this node sends is kept back, and what comes is left unread.
        self.holds_output = self.holds_input = False
        #: Why the last session ended, or the last attempt failed.
        self.reason = ""
        self._look_timer: int | None = None

    def on_start(
        self,
        sender: Sender,
        config: LinkConfig,
        node: str,
        identity: LinkIdentity,
        watchers: list[Address[ToLinkWatcher]],
    ) -> None:
        self.config = config
        self.node = node
        self.watchers = watchers
        self.connecting = Connecting(
            self, config, node, identity, self._begin_session, self._not_connected, lambda: self.session is not None
        )
        self.state_since = self.now()

    # -- messages of Links -------------------------------------------------------------------------

    def on_place(self, sender: Sender, place: tuple[str, int] | None) -> None:
        if place is None and self.connecting.place is not None and self.session is not None:
            self._end_session("the node is no peer any more")
        self.connecting.moved(place)
        if place is None:
            self._leave_if_idle()

    def on_greet_as(self, sender: Sender, identity: LinkIdentity) -> None:
        self.connecting.identity = identity

    def on_use(self, sender: Sender, config: LinkConfig) -> None:
        self.config = self.connecting.config = config

    def on_watched_by(self, sender: Sender, watcher: Address[ToLinkWatcher]) -> None:
        self.watchers.append(watcher)
        if self.session is not None:
            self.send(watcher, self._up_message(self.session))

    def on_unwatched_by(self, sender: Sender, watcher: Address[ToLinkWatcher]) -> None:
        self.watchers = [one for one in self.watchers if one != watcher]

    def on_hold(self, sender: Sender, sends: bool, receives: bool) -> bool:
        self.holds_output, self.holds_input = sends, receives
        self.connecting.is_held = sends or receives
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
        session, connecting = self.session, self.connecting
        state = "up" if session is not None else "connecting" if connecting.is_connecting else "waiting"
        return {
            "node": self.node,
            "state": state if not (state == "waiting" and self.reason) else "refused",
            "since": round(self.now() - (self.state_since if session is None else session.since), 3),
            "address": connecting.place_text(),
            "incarnation": "" if session is None else session.peer.incarnation,
            "round_trip": None if session is None else session.round_trip,
            "open": 0 if session is None else self._host.systems.open_across(session.system),
            "sessions": self.sessions,
            "version": 0 if session is None else session.version,
            "reason": self.reason,
            "rejected": dict(connecting.rejected),
            "lanes": [] if session is None else session.lane_items(),
        }

    # -- connections ---

    def on_accepted(self, sender: Sender, connected: Connected) -> None:
        self.connecting.accepted(connected)

    def _not_connected(self, sentence: str, is_gone: bool) -> None:
        """Notify the watchers of an attempt that has failed, and plan the next one."""
        self.reason = sentence
        for watcher in self.watchers:
            self.send(watcher, to_link_watcher.link_refused(self.node, sentence, is_gone))
        self._attempt_later()

    def _attempt_later(self) -> None:
        """Attempt to connect again after a while, because an attempt has failed or a session has ended."""
        if self.connecting.place is None:
            self._leave_if_idle()
        else:
            self.connecting.attempt_later()

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
        self.connecting.session_began()
        self._host.systems.system_up(session.system, session.carry)
        up = self._up_message(session)
        for watcher in self.watchers:
            self.send(watcher, up)
        log.info("link to %s is up, to its run %s", self.node, session.peer.incarnation)
        for name in LANE_NAMES:
            handshake = connected[name].handshake
            lane = LinkLane(name, handshake.fd, handshake.sock, handshake.reader, session.frame)
            if handshake.unsent:
                lane.write([handshake.unsent])
            session.add_lane(lane)
        for lane in list(session.lanes.values()):
            self._watch(lane)
            if self.session is session:
                self._serve(lane, lane.hand_out)
        if self.session is session:
            self._look_timer = self.start_timer(0, (LOOK, session.id))

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
        if self._look_timer is not None:
            self.cancel_timer(self._look_timer)
            self._look_timer = None
        for lane in session.lanes.values():
            self.unwatch(lane.fd)
            lane.close()
        self._host.systems.system_down(session.system)
        self._free(session.take_waiting())
        age = self.now() - session.since
        if age >= STABLE:
            self.connecting.failures = 0
        elif age < FLEETING:
            self.connecting.failures += 1
        self.reason = reason
        self.state_since = self.now()
        log.info("link to %s is down: %s", self.node, reason)
        for watcher in self.watchers:
            self.send(watcher, to_link_watcher.link_down(self.node, reason))

    def _leave_if_idle(self) -> None:
        """End this process if it is neither wanted nor used."""
        if self.session is None and self.connecting.is_unused:
            self.stop()

    # -- descriptors -------------------------------------------------------------------------------

    def on_readable(self, fd: int) -> None:
        session = self.session
        if session is not None and (lane := session.by_fd.get(fd)) is not None:
            if self.holds_input:
                self._watch(lane)
            else:
                self._serve(lane, lane.read)
        elif not self.connecting.serve(fd):
            self.unwatch(fd)

    def on_writable(self, fd: int) -> None:
        session = self.session
        if session is not None and (lane := session.by_fd.get(fd)) is not None:
            if self.holds_output:
                self._watch(lane)
            else:
                self._serve(lane, lane.flush)
                self._free(session.written())
        elif not self.connecting.serve(fd):
            self.unwatch(fd)

    def _serve(self, lane: LinkLane, action: Callable[[], None]) -> None:
        """Read from a lane, write to it, or hand out what it holds; the link breaks if that fails."""
        try:
            action()
        except LaneClosed as error:
            self._broken(lane, str(error))
        except (LinkFrameError, CodecError) as error:
            log.warning("link to %s: malformed input on the lane %s: %s", self.node, lane.name, error)
            self._broken(lane, f"malformed input: {error}")
        else:
            if not lane.is_closed:
                self._watch(lane)

    def _watch(self, lane: LinkLane) -> None:
        wanted = (
            lane.held_bytes < self.config.windows[lane.name] and not self.holds_input,
            lane.wants_write and not self.holds_output,
        )
        if wanted != lane.watched:
            lane.watched = wanted
            self.watch(lane.fd, *wanted)

    def _broken(self, lane: LinkLane, reason: str) -> None:
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
            for lane in [lane for lane in session.lanes.values() if lane.unsent]:
                if not lane.is_closed:
                    self._serve(lane, lane.flush)
        self._free(session.written())

    def _full(self, sender: Address[ToLinkSender]) -> None:
        self.send(sender, to_link_sender.link_full(self.node))

    def _free(self, senders: list[Address[ToLinkSender]]) -> None:
        for sender in senders:
            self.send(sender, to_link_sender.link_free(self.node))

    def _unknown(self, number: int) -> None:
        self.connecting.log_refusal(f"it sends messages that this version does not know, such as number {number}")

    # -- timers ------------------------------------------------------------------------------------

    def on_timer(self, payload: tuple[str, str]) -> None:
        kind, about = payload
        if kind == LOOK:
            if self.session is not None and self.session.id == about:
                self._look(self.session)
        elif self.connecting.timer_due(kind, about):
            self._attempt_later()

    def _look(self, session: Session) -> None:
        silent = session.silent_looks()
        if silent == SILENT_LOOKS:
            self._end_session(f"nothing has come for {SILENT_LOOKS * self.config.ticktime / LOOKS_A_TICKTIME:g} s")
            self._attempt_later()
            return
        stuck = session.stuck_lane(STUCK_LOOKS)
        if stuck:
            seconds = STUCK_LOOKS * self.config.ticktime / LOOKS_A_TICKTIME
            self._end_session(f"nothing has come for {seconds:g} s (lane {stuck})")
            self._attempt_later()
            return
        if silent or session.looks % MEASURING_LOOKS == 1:
            session.ping()
        if session.looks % MEASURING_LOOKS == 0:
            session.ping_lanes()
        self._look_timer = self.start_timer(self.config.ticktime / LOOKS_A_TICKTIME, (LOOK, session.id))

    def on_exit(self) -> None:
        if hasattr(self, "connecting"):
            self.connecting.end()
        self._end_session("this node stops")
