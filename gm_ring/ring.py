"""`RingMember`: one member of a ring. Frames, views and its own instructions in; frames, deliveries and reports out.

The class has no clock, does no I/O and holds no address. The owner of a member calls its methods for each event, then
`end_turn`, and carries out the returned `Turn` in the order of its fields.

**Lap one.** A member sends each instruction that it receives on to its right neighbour, then delivers it. The right
neighbour of a stream's speaker is the first to receive an instruction, and the speaker's left neighbour the last: it
does not send it on, because the speaker has it. So, from the speaker on, no member has received more than the one
before it.

**Lap two.** `Numbers` go the same way. They contain the position up to which the sender and all members before it have
received a stream (`received`), and the position up to which it is safe at all of them (`stored`). So the numbers that
the last member sends to the speaker hold for the whole ring. Lap two does not wait for lap one: both use the same
connections, with numbers behind instructions.

**Done.** The next `Pubs` contain the position up to which all members have received the stream. Until then a member
keeps instructions, because its right neighbour may die and the one behind that may lack them.

**Attachments.** A member whose left neighbour has changed sends the new one its positions, and receives everything
behind them. So a lost connection costs one frame, and an instruction that comes twice is recognised by its position. A
frame counts only on the present attachment, so that no frame of an earlier neighbour, an earlier connection or an
earlier speaker is taken for a new one.

**Learners** follow the last member of the ring. They send their positions to it, and to the speakers, which wait for
them if the view counts them. A learner is admitted behind the member that it has followed. When another learner was
admitted, the rest follow that one from then on. It may have received less than they, so speakers get no positions from
a learner that may be ahead of the member before it: it is not admitted yet. A learner whose neighbour has left the ring
leaves, and its replica begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..seams import seam
from .frames import Attach, Fenced, Frame, Instruction, Numbers, Position, Pubs, Seed, StreamProgress
from .receiver import Receiver, SentStream
from .stream_state import StreamState
from .turn import Completed, StreamDelivery, Turn
from .view import Member, Stream, View, begins_anew, has_new_speaker

#: Bytes that a learner keeps beyond what members need, because others that copy the queue may follow it next.
KEPT_FOR_LEARNERS = 256 << 10

#: Bytes that a member keeps at most for learners that have not acknowledged them. They were sent, so a learner lacks
#: them only if its connection was lost. Then it leaves, and its replica begins anew (CL-88).
KEPT_FOR_SLOW_LEARNERS = 16 << 20

#: How many frames of senders that are not in the view are kept until a view may have them.
STRANGERS_MOST = 64


class RingMember:
    """See the module. `me` is in the view, in the ring or as a learner; a learner is new, and so is a founder."""

    def __init__(self, me: Member, view: View) -> None:
        self.me = me
        self.view = view
        #: Whether the member must leave the ring, because it lacks instructions that no member keeps any more, or may
        #: have instructions whose positions others use for different ones.
        self.is_out_of_sync = False
        self._streams: dict[Stream, StreamState] = {}
        self._receivers: dict[Member, Receiver] = {}
        #: The last frames of senders that are not in the view yet: `Attach`, and `StreamProgress` by stream.
        self._strangers: dict[tuple[Member, Stream | None], Frame] = {}
        #: Frames of a later view. The speaker's window bounds them.
        self._held: list[tuple[Member, Frame]] = []
        #: The left neighbour to which this member has attached. The number of the attachment rises each time.
        self._left: Member | None = None
        self._attachment = 0
        #: Whether the left neighbour has sent anything on the present attachment.
        self._is_answered = True
        #: The latest epoch of which another member has a view without this one (`Fenced`). Nothing is sent before this
        #: member has a view of this epoch too.
        self._fenced = 0
        self._frames: list[tuple[Member, Frame]] = []
        #: The other learners, while this member is one. Once it is in the ring: those of them that have not attached.
        self._fellows = self._others(view.learners)
        if self._is_member:
            self._begin_streams()
        self._attach()

    # -- state, for the owner

    @property
    def _is_member(self) -> bool:
        return self.me in self.view.members

    @property
    def has_part(self) -> bool:
        """Whether the view has this member at all."""
        return self._is_member or self.me in self.view.learners

    def speaks(self, stream: Stream) -> bool:
        return self.view.speakers.get(stream) == self.me

    def last(self, stream: Stream) -> int:
        """The position up to which this member has received the stream."""
        state = self._streams.get(stream)
        return state.retained.last if state is not None else 0

    def safe_at(self, stream: Stream) -> int:
        """The position up to which the stream is safe at this member."""
        state = self._streams.get(stream)
        return state.safe if state is not None else 0

    @property
    def left(self) -> Member | None:
        """The member that this one is attached to."""
        return self._left

    @property
    def is_unanswered(self) -> bool:
        """Whether the left neighbour has sent nothing since this member attached: it may not run yet (`retry`)."""
        return self.has_part and not self._is_answered

    def owed(self, stream: Stream) -> tuple[int, int]:
        """How many bytes of the stream others may need from this member, and how many instructions not all members have
        received. What is kept for learners that may follow this member next does not count.
        """
        state, kept = self._streams[stream], KEPT_FOR_LEARNERS if self._fellows else 0
        return max(0, state.retained.size - kept), state.retained.last - state.done

    def kept_from(self, stream: Stream) -> int:
        """The position up to which this member has forgotten the stream."""
        return self._streams[stream].retained.base

    def slowest_learners(self, stream: Stream) -> list[Member]:
        """The learners of this member because of which it cannot forget more of the stream."""
        base, done = self.kept_from(stream), self._streams[stream].done
        followers = [(name, each) for name, each in self._receivers.items() if name in self.view.learners]
        return [name for name, each in followers if each.streams[stream].acked <= base < done]

    def lag_of_right(self) -> int:
        """How many instructions the right neighbour has not been sent."""
        right = self.view.right_of(self.me)
        receiver = self._receivers.get(right) if right is not None else None
        sent = receiver.streams if receiver is not None else {}
        return sum(
            [
                state.retained.last - (sent[stream].position if stream in sent else state.done)
                for stream, state in self._streams.items()
                if self.view.speakers[stream] != right
            ]
        )

    @property
    def owes_done(self) -> bool:
        """Whether a receiver lacks the latest `done` of a stream of which this member is the speaker (`tell_done`)."""
        return any([True for _ in self._without_done()])

    # -- events, from the owner

    def broadcast(self, stream: Stream, instructions: list[Instruction]) -> int:
        """Add instructions to the stream as its speaker. Returns the position of the last one.

        They are not delivered at this member, because its owner has them already.
        """
        state = self._streams[stream]
        assert self.speaks(stream), f"{self.me} does not speak for the stream {stream!r}"
        state.retained.add(instructions)
        state.delivered = state.retained.last
        return state.retained.last

    def safe(self, stream: Stream, position: int) -> None:
        """Note that all delivered instructions up to `position` are safe at this member."""
        state = self._streams.get(stream)
        if state is not None:
            state.safe = max(state.safe, min(position, state.retained.last))

    def change_view(self, view: View) -> None:
        """Apply a later view, or one of the same epoch with other learners."""
        old, self.view = self.view, view
        if not self.has_part:
            self._receivers.clear()
            self._strangers.clear()
            self._held.clear()
            return
        for stream in [stream for stream in self._streams if stream not in view.speakers]:
            del self._streams[stream]
        if self._streams:
            self._begin_streams()
        for stream, state in self._streams.items():
            if self._may_be_ahead(old, stream, state):
                # The member that continues the stream would give the same positions to other instructions.
                self.is_out_of_sync = True
            if view.epoch != old.epoch:
                state.counted = {}  # learners send their positions again, unless they may be ahead of the last member
            state.counted = {name: numbers for name, numbers in state.counted.items() if name in view.learners}
        if not self._is_member and view.left_of(self.me) != self._left and self._streams:
            if self._left not in view.members or has_new_speaker(old, view):
                # The new neighbour may have received less than this learner, and the stream may continue differently.
                self.is_out_of_sync = True
            for state in self._streams.values():
                state.ahead = state.retained.last
        self._fellows = self._others(view.learners if not self._is_member else self._fellows & {*view.learners})
        right = view.right_of(self.me)
        for name in [name for name in self._receivers if name != right and not self._is_follower(name)]:
            del self._receivers[name]
        if view.left_of(self.me) != self._left or begins_anew(old, view):
            self._attach()
        strangers, self._strangers = self._strangers, {}
        for (name, _), frame in strangers.items():
            self.receive(name, frame)
        held, self._held = self._held, []
        for sender, frame in held:
            self.receive(sender, frame)

    def _others(self, learners: Collection[Member]) -> frozenset[Member]:
        """These learners without this one; none if they follow another member."""
        is_followed = not self._is_member or self.view.members[-1] == self.me
        return frozenset(learners) - {self.me} if is_followed else frozenset()

    def _begin_streams(self) -> None:
        """Begin the streams of the view that this member does not have yet."""
        for stream in self.view.speakers:
            if stream not in self._streams:
                self._streams[stream] = StreamState(0, 0)

    def _may_be_ahead(self, old: View, stream: Stream, state: StreamState) -> bool:
        """Whether this member may have received more of the stream than a member before it in the new view.

        From the speaker on, each member has at most what those before it have. So a member can be ahead only of one
        that was not before it in the old view, and only if it has instructions that not all members are known to have.
        """
        if self.speaks(stream):
            return False
        if old.speakers.get(stream) == self.me:
            return state.reported[0] < state.retained.last
        if state.done >= state.retained.last or not (self._is_member or has_new_speaker(old, self.view)):
            return False
        return state.is_ahead or not self._before(old, stream) >= self._before(self.view, stream)

    def _before(self, view: View, stream: Stream) -> set[Member]:
        """The members of the ring from the speaker of the stream up to this one; all of them if this one is a
        learner.
        """
        speaker, members = view.speakers.get(stream), view.members
        at = members.index(speaker) if speaker in members else 0
        order = members[at:] + members[:at]
        return set(order[: order.index(self.me)] if self.me in order else order)

    def neighbour_is_back(self, member: Member) -> None:
        """Attach again if needed: the connection to this member was lost and is up again."""
        if member == self._left or (not self._is_member and member in self.view.speakers.values()):
            self._attach()

    def _attach(self) -> None:
        self._left = self.view.left_of(self.me)
        self._attachment += 1
        self._is_answered = self._left is None
        for state in self._streams.values():
            state.told = state.home = (0, 0)
            state.is_fed = False
        if self._left is not None:
            positions = [(stream, state.retained.last, state.safe) for stream, state in self._streams.items()]
            self._send(self._left, Attach(self._attachment, self.view.epoch, positions))

    def retry(self) -> None:
        """Attach again if the left neighbour has not answered."""
        if self.is_unanswered:
            self._attach()

    def tell_done(self) -> None:
        """Send the latest `done` to the receivers that lack it, in frames without instructions."""
        for name, receiver, stream, state in list(self._without_done()):
            self._send_pubs(name, receiver, stream, state, receiver.streams[stream], state.retained.last)

    def _without_done(self) -> Iterator[tuple[Member, Receiver, Stream, StreamState]]:
        """The receivers that lack the latest `done` of a stream of which this member is the speaker."""
        for stream, state in self._streams.items():
            if self.speaks(stream):
                for name, receiver in self._receivers.items():
                    sent = receiver.streams.get(stream)
                    if sent is not None and (sent.done or 0) < state.done:
                        yield name, receiver, stream, state

    def receive(self, sender: Member, frame: Frame) -> None:
        """Handle a frame. It is dropped if it belongs to an earlier view or attachment."""
        if not self.has_part or self.is_out_of_sync:
            return
        if isinstance(frame, Fenced):
            self._fenced = max(self._fenced, frame.epoch)
        elif frame.epoch > self.view.epoch:
            self._held.append((sender, frame))
        elif isinstance(frame, Attach):
            self._on_attach(sender, frame)
        elif isinstance(frame, StreamProgress):
            self._on_progress(sender, frame)
        elif sender == self._left and frame.attachment == self._attachment:
            # A new learner has no streams before it gets a seed, so nothing else counts as an answer. Other frames may
            # come behind a seed that arrived before the learner could receive it; then it must attach again.
            self._is_answered = bool(self._streams) or isinstance(frame, Seed)
            if isinstance(frame, Pubs):
                state = self._streams.get(frame.stream)
                if state is not None and not self.speaks(frame.stream) and not state.take(frame):
                    self._lacks(state)
            elif isinstance(frame, Numbers):
                self._on_numbers(frame)
            else:
                self._on_seed(frame)
        elif self._is_stranger(sender):
            self._on_stranger(sender, frame)

    def _lacks(self, state: StreamState) -> None:
        """Get what this member lacks of a stream before the instructions that have come."""
        if state.is_fed:
            # What came before was lost with a connection, which is up again. The report of that from the owner of
            # this ring is still under way.
            self._attach()
        else:
            # The neighbour does not retain what comes behind the positions with which this member has attached.
            self.is_out_of_sync = True

    def _is_stranger(self, member: Member) -> bool:
        return member not in self.view.members and member not in self.view.learners

    def _is_follower(self, member: Member) -> bool:
        return member in self.view.learners and self.view.members[-1] == self.me

    def _on_stranger(self, sender: Member, frame: Pubs | Numbers | StreamProgress | Attach | Seed) -> None:
        """Handle a frame of a member that is not in the view any more, or yet. Learners come without a new epoch."""
        if frame.epoch < self.view.epoch:
            self._send(sender, Fenced(self.view.epoch))
        if isinstance(frame, Attach | StreamProgress) and len(self._strangers) < STRANGERS_MOST:
            self._strangers[sender, frame.stream if isinstance(frame, StreamProgress) else None] = frame

    def _on_attach(self, sender: Member, frame: Attach) -> None:
        if self._is_stranger(sender):
            self._on_stranger(sender, frame)
            return
        if sender != self.view.right_of(self.me) and not self._is_follower(sender):
            # One of the two members has a later view than the other. If it is the sender, the next view here will have
            # it as the right neighbour, so keep its frame until then.
            self._strangers[sender, None] = frame
            return
        known = self._receivers.get(sender)
        if known is not None and known.attachment >= frame.attachment:
            return
        self._strangers.pop((sender, None), None)
        self._fellows -= {sender}
        receiver = self._receivers[sender] = Receiver(frame.attachment)
        if not frame.positions:
            self._seed(sender, receiver)
        for stream, received, _ in frame.positions:
            state = self._streams.get(stream)
            if state is not None:
                receiver.streams[stream] = SentStream(received)

    def _seed(self, sender: Member, receiver: Receiver) -> None:
        """Begin to send to a new member.

        Its right neighbour will be the first member of the ring, which never needs a stream of which it is the speaker.
        """
        starts: list[Position] = []
        for stream, state in self._streams.items():
            last = state.retained.last
            base = last if self.view.speakers[stream] == self.view.members[0] else state.retained.base
            starts.append((stream, base, last))
            receiver.streams[stream] = SentStream(base)
        self._send(sender, Seed(receiver.attachment, self.view.epoch, starts))

    def _on_seed(self, frame: Seed) -> None:
        self._streams = {stream: StreamState(base, start) for stream, base, start in frame.starts}
        self._begin_streams()
        for state in self._streams.values():
            state.has_begun = True

    def _on_numbers(self, frame: Numbers) -> None:
        state = self._streams.get(frame.stream)
        if state is not None:
            received, stored = state.told
            state.told = max(received, frame.received), max(stored, frame.stored)
            if self.speaks(frame.stream):
                # The sender is the last member, and its numbers include those of all members before it.
                state.home = state.told

    def _on_progress(self, sender: Member, frame: StreamProgress) -> None:
        if sender not in self.view.learners:
            if self._is_stranger(sender):
                self._on_stranger(sender, frame)
            return
        receiver = self._receivers.get(sender)
        if receiver is not None and receiver.attachment == frame.attachment:
            sent = receiver.streams.get(frame.stream)
            if sent is not None:
                sent.acked = max(sent.acked, frame.received)
        state = self._streams.get(frame.stream)
        if state is not None and self.speaks(frame.stream) and frame.epoch == self.view.epoch:
            state.counted[sender] = (frame.received, frame.stored)

    # -- effects, for the owner

    def end_turn(self) -> Turn:
        """The frames, deliveries and reports that follow from the calls since the last turn."""
        deliveries: list[StreamDelivery] = []
        completed: list[Completed] = []
        if self.has_part and not self.is_out_of_sync:
            for stream, state in self._streams.items():
                if self.speaks(stream):
                    self._complete(stream, state, completed)
                if state.has_begun:
                    state.has_begun = False
                    deliveries.append(StreamDelivery(stream, state.delivered + 1 - len(state.fresh), []))
                if state.fresh:
                    deliveries.append(StreamDelivery(stream, state.delivered + 1 - len(state.fresh), state.fresh))
                    state.fresh = []
            if self._fenced <= self.view.epoch:
                for name, receiver in self._receivers.items():
                    self._feed(name, receiver)
                if not self._is_member:
                    self._send_progress()
            self._forget()
        frames, self._frames = self._frames, []
        return Turn(frames, deliveries, completed)

    def _complete(self, stream: Stream, state: StreamState, completed: list[Completed]) -> None:
        last = state.retained.last
        received, stored = (last, last) if len(self.view.members) == 1 else state.home
        for name in self.view.counted:
            others_received, others_stored = state.counted.get(name, (0, 0))
            received, stored = min(received, others_received), min(stored, others_stored)
        state.done = max(state.done, received)
        report = received, stored, self.view.serial
        if report != state.reported:
            state.reported = report
            completed.append(Completed(stream, *report))

    def _feed(self, name: Member, receiver: Receiver) -> None:
        """Send a receiver the instructions and numbers that it lacks."""
        is_right = name in self.view.members
        for stream, state in self._streams.items():
            sent = receiver.streams.get(stream)
            if sent is None:
                sent = receiver.streams[stream] = SentStream(0)  # the stream is new to the receiver
            speaks = self.speaks(stream)
            numbers = (state.retained.last, 0) if speaks else self._numbers(stream, state)
            if self.view.speakers[stream] != name and (
                # Answer the receiver's Attach, even without instructions.
                sent.done is None
                # Send only up to `numbers`: what all before this member have. So no member is ahead of one before it.
                or sent.position < max(numbers[0], state.retained.base)
                or (not speaks and sent.done < state.done)
            ):
                self._send_pubs(name, receiver, stream, state, sent, numbers[0])
            if is_right and not speaks:
                if numbers != sent.shown:
                    self._send(name, Numbers(receiver.attachment, self.view.epoch, stream, *numbers))
                    sent.shown = numbers

    @seam("replica: what a member and all before it have")
    def _numbers(self, stream: Stream, state: StreamState) -> tuple[int, int]:
        """Up to where this member and all between the speaker and it have received the stream, and have it safe."""
        if self.view.speakers[stream] == self._left:
            return state.retained.last, state.safe
        received, stored = state.told
        return min(received, state.retained.last), min(stored, state.safe)

    def _send_pubs(
        self, name: Member, receiver: Receiver, stream: Stream, state: StreamState, sent: SentStream, last: int
    ) -> None:
        """Send the instructions up to `last` that the receiver lacks, with the present `done`."""
        # If the receiver lacks instructions that are no longer retained, it detects the gap, and leaves the ring.
        begin = max(sent.position, state.retained.base)
        instructions = state.retained.between(begin, last)
        self._send(name, Pubs(receiver.attachment, self.view.epoch, stream, begin + 1, state.done, instructions))
        sent.position = max(begin, last)
        sent.done = state.done
        if instructions:
            # The receiver concludes that all before it have these instructions.
            received, stored = sent.shown or (0, 0)
            sent.shown = max(received, last), stored

    def _send_progress(self) -> None:
        for stream, state in self._streams.items():
            speaker = None if state.is_ahead else self.view.speakers.get(stream)
            numbers = (state.retained.last, state.safe, self._attachment, self.view.epoch, speaker)
            if numbers != state.progress:
                state.progress = numbers
                for name in _distinct((self._left, speaker)):
                    self._send(name, StreamProgress(self._attachment, self.view.epoch, stream, *numbers[:2]))

    @seam("replica: what a member keeps")
    def _forget(self) -> None:
        """Drop instructions that no receiver can need from this member any more."""
        for stream, state in self._streams.items():
            needed = [
                receiver.streams[stream].acked
                for name, receiver in self._receivers.items()
                if name in self.view.learners
            ]
            state.retained.cut(min([state.done, *needed]), KEPT_FOR_LEARNERS if self._fellows else 0)
            state.retained.cut(state.done, KEPT_FOR_SLOW_LEARNERS)

    def _send(self, to: Member, frame: Frame) -> None:
        self._frames.append((to, frame))


def _distinct(members: Iterable[Member | None]) -> list[Member]:
    return list(dict.fromkeys([member for member in members if member is not None]))
