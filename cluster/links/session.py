"""`Session`: what two nodes send each other while the link between them is up.

It turns what processes send into frames, and frames into messages for processes. It knows no socket, and does not watch
or write anything itself: `Link` does that with the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thespian.actors import ActorAddress

from ...runtime.system.remote_systems import RemoteSystems
from .admission import LinkIdentity
from .config import LinkConfig
from .contract import LaneItems
from .encoding.envelopes import Envelopes, Unknown
from .encoding.frames import (
    MSGPACK_TYPE,
    PING,
    RESPONSE,
    SEND,
    Header,
    LinkFrameError,
    RawFrame,
    msgpack_frame,
    msgpack_header,
)
from .encoding.registry import CONTROL
from .lane import LinkLane
from .outbox import Outbox

#: The link is full for senders of contents from the first number of unsent bytes on, until fewer are left than the
#: second number (CL-15).
HIGH_MARK, LOW_MARK = 8_388_608, 4_194_304

#: Most bytes of one message with all its parts.
MAX_MESSAGE = 1_073_741_824


class Session:
    """One session. `flush_later` is called when there is something to write.

    `now` is a clock, `on_unknown` is called with the number of a message that this version does not know, and `on_full`
    with the sender of a credited message, once, while too much waits to be written.
    """

    def __init__(
        self,
        peer: LinkIdentity,
        session: str,
        version: int,
        config: LinkConfig,
        systems: RemoteSystems,
        now: Callable[[], float],
        flush_later: Callable[[], None],
        on_unknown: Callable[[int], None],
        on_full: Callable[[ActorAddress], None],
    ) -> None:
        self.peer = peer
        self.id = session
        self.version = version
        self.since = now()
        #: The name of the peer's system of actors.
        self.system = f"{peer.node}-{peer.incarnation}"
        self.lanes: dict[str, LinkLane] = {}
        self.by_fd: dict[int, LinkLane] = {}
        #: Milliseconds from the last ping to its answer.
        self.round_trip: float | None = None
        #: Whether a lane holds frames for which this node has not applied enough of the log.
        self.is_behind = False
        self._registry = config.registry
        self._systems = systems
        self._now = now
        self._flush_later = flush_later
        self._on_unknown = on_unknown
        self._on_full = on_full
        self._envelopes = Envelopes(config.registry, systems.name, self.system)
        self._outbox = Outbox(self._envelopes)
        #: Bytes that may be sent until the link is full.
        self._room = HIGH_MARK
        #: The senders of credited messages that `on_full` was called for, by address.
        self._waiting: dict[str, ActorAddress] = {}
        self._pinged_at = 0.0
        #: How often the link has looked whether anything has come. `_had_received` are the bytes that had come at the
        #: last look, and `_silent_looks` is for how many looks in a row that number has not risen.
        self.looks = 0
        self._had_received = 0
        self._silent_looks = 0
        #: The header of the last frame, encoded and decoded: nearly all frames have the same.
        self._last_header = b""
        self._header = Header(0, 0, 0, "", {})
        #: Up to which index the sender of that frame has applied the log.
        self._header_index = 0

    def add_lane(self, lane: LinkLane) -> None:
        self.lanes[lane.name] = self.by_fd[lane.fd] = lane

    # -- frames that arrive ------------------------------------------------------------------------

    def frame(self, lane: LinkLane, raw: RawFrame) -> None:
        """Take a frame. Raises LinkFrameError or CodecError if it is malformed."""
        if raw.type != MSGPACK_TYPE:
            raise LinkFrameError("a frame of the greeting after its end")
        if raw.header == self._last_header:
            header, index = self._header, self._header_index
        else:
            header = msgpack_header(raw.header)
            index = header.ext.get("i", 0)
            if type(index) is not int and header.code == SEND:
                raise LinkFrameError("a frame with an index that is no number")
            self._last_header, self._header, self._header_index = raw.header, header, index
        if header.code == SEND:
            if lane.held or (index > self._systems.applied and lane.name != CONTROL):
                lane.held.append((index, raw))
                lane.held_bytes += raw.end - raw.at
                self.is_behind = True
            else:
                self._messages(lane, header, raw)
        elif header.code == PING and not header.flag & RESPONSE:
            lane.write([msgpack_frame(PING, header.opaque, RESPONSE)])
            self._flush_later()
        elif header.code == PING:
            lane.is_pinged = False
            if lane.name == CONTROL and self._pinged_at:
                self.round_trip = round((self._now() - self._pinged_at) * 1000, 3)
                self._pinged_at = 0.0
        # Other codes are those of a newer version, whose sender does not wait for an answer.

    def release(self, lane: LinkLane) -> None:
        """Hand out the frames of a lane for which this node has now applied enough of the log."""
        while lane.held and lane.held[0][0] <= self._systems.applied and not lane.is_closed:
            _, raw = lane.held.popleft()
            lane.held_bytes -= raw.end - raw.at
            self._messages(lane, msgpack_header(raw.header), raw)

    def _messages(self, lane: LinkLane, header: Header, raw: RawFrame) -> None:
        part = header.ext.get("p")
        if part is not None:
            whole = _joined(lane, part, raw.body)
            if whole is None:
                return
            found = self._envelopes.decode(whole)
        elif lane.parts:
            raise LinkFrameError(f"a whole frame after {len(lane.parts)} parts of another message")
        else:
            found = self._envelopes.decode(raw.data, raw.at, raw.end)
        lane.received_messages += len(found)
        arrived, system = self._systems.arrived, self.system
        for one in found:
            if type(one) is tuple:
                arrived(system, *one)
            else:
                assert isinstance(one, Unknown)
                self._on_unknown(one.number)
                if one.ref is not None:
                    self._outbox.add(self._envelopes.unknown_answer(one))
                    self._flush_later()

    # -- messages that leave -----------------------------------------------------------------------

    def carry(self, sender: ActorAddress, target: ActorAddress, message: Any) -> None:
        """Take a message of a process to the other node. Raises NotCarried if it may not cross."""
        if message[0] == "$answer" and self._envelopes.is_withdrawn(target, message[1]):
            return
        encoded = self._envelopes.encode(sender, target, message)
        self._outbox.add(encoded)
        self._flush_later()
        self._room -= encoded[3]
        if self._room <= 0 and sender.addressDetails not in self._waiting:
            entry = self._registry.by_name.get(message[0])
            if entry is not None and entry.is_credited:
                self._waiting[sender.addressDetails] = sender
                self._on_full(sender)

    def silent_looks(self) -> int:
        """Count another look at whether anything has come. Return for how many looks in a row nothing has."""
        self.looks += 1
        received = sum([lane.received_bytes for lane in self.lanes.values()])
        self._silent_looks = self._silent_looks + 1 if received == self._had_received else 0
        self._had_received = received
        return self._silent_looks

    def ping(self) -> None:
        """Send a ping on the lane `control`, and measure the round trip by its answer."""
        self._pinged_at = self._now()
        self.lanes[CONTROL].write([msgpack_frame(PING, 1)])
        self._flush_later()

    def ping_lanes(self) -> None:
        """Send a ping on each of the other lanes whose last one is answered."""
        for lane in self.lanes.values():
            if lane.name != CONTROL and not lane.is_pinged:
                lane.is_pinged = True
                lane.write([msgpack_frame(PING, 1)])
                self._flush_later()

    def stuck_lane(self, looks: int) -> str:
        """The name of a lane that has been silent for so many looks; empty if there is none."""
        stuck = [lane.name for lane in self.lanes.values() if lane.silent_looks() >= looks]
        return stuck[0] if stuck else ""

    def give_to_lanes(self) -> None:
        """Let the lanes have everything that processes have sent."""
        for name, frames, count in self._outbox.take(self._systems.shown):
            lane = self.lanes[name]
            for buffers in frames:
                lane.write(buffers)
            lane.sent_messages += count

    def written(self) -> list[ActorAddress]:
        """Note how much is left to be written. Return the senders that may go on, if the link is no longer full."""
        unsent = 0
        for lane in self.lanes.values():
            unsent += lane.unsent
        if self._room <= 0 and unsent >= LOW_MARK:
            return []
        self._room = HIGH_MARK - unsent
        return self.take_waiting() if self._waiting else []

    def take_waiting(self) -> list[ActorAddress]:
        """The senders that `on_full` was called for; they are then forgotten."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())

    # -- listings ----------------------------------------------------------------------------------

    def lane_items(self) -> list[LaneItems]:
        return [
            {
                "lane": lane.name,
                "received_bytes": lane.received_bytes,
                "sent_bytes": lane.sent_bytes,
                "received_frames": lane.received_frames,
                "sent_frames": lane.sent_frames,
                "received_messages": lane.received_messages,
                "sent_messages": lane.sent_messages,
                "unsent": lane.unsent,
                "held": lane.held_bytes,
            }
            for lane in self.lanes.values()
        ]


def _joined(lane: LinkLane, part: Any, body: bytes) -> bytes | None:
    """The whole body of a message whose last part has arrived; None before. Raises LinkFrameError."""
    if type(part) is not list or [type(item) for item in part] != [int, int]:
        raise LinkFrameError("a part without number and count")
    number, count = part
    if number != len(lane.parts) or not 0 <= number < count or count * len(body) > MAX_MESSAGE:
        raise LinkFrameError(f"part {number} of {count}, after {len(lane.parts)} parts")
    lane.parts.append(body)
    if number + 1 < count:
        return None
    parts, lane.parts = lane.parts, []
    return b"".join(parts)
