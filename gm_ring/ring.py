"""`RingMember`: one member of a ring. Frames, views and its own instructions in; frames, deliveries and reports out.

It has no clock, does no I/O and holds no address. Whoever owns it calls its methods with what has come, then
`end_turn`, and does what the `Turn` says, in the order of its fields.

**Lap one.** A member sends what it has received on to its right, then delivers it. The right neighbour of a stream's
speaker is the first to get an instruction, and the speaker's left neighbour the last: it sends no instructions on, for
the speaker has them. So, from the speaker on, no member has received more than the one before it.

**Lap two.** `Numbers` go the same way. They say up to where the sender and all before it have received a stream
(`received`), and up to where it is safe at all of them (`stored`). What the last member tells the speaker holds for
all. Lap two does not wait for lap one: both run on the same connections, numbers behind instructions.

**Done.** The next `Pubs` say up to where all have received the stream. Until then a member keeps instructions, because
its right neighbour may die and the one behind it may lack them.

**Attachments.** A member whose left neighbour has changed tells the new one what it has, and gets everything behind
that. So a lost connection costs one frame, and what is sent twice is known by its position. A frame counts only on the
present attachment. Therefore nothing of an earlier neighbour, an earlier connection or an earlier speaker is ever taken
for something new.

**Learners** follow the last member of the ring. They tell it what they have, and the speakers as well, which count
them if the view says so. When a learner is admitted it has its place behind the member that it has followed. A learner
that would have to follow another member begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..seams import seam
from .frames import Attach, Fenced, Frame, Instruction, Numbers, Position, Progress, Pubs, Seed
from .retained import Retained
from .view import Member, Stream, View

#: The most frames of strangers that are kept until a view knows them.
STRANGERS_MOST = 64


class Delivery(NamedTuple):
    """Instructions that have come, with the positions from `first` on.

    The first of a learner has none: it says where the stream begins for it.
    """

    stream: Stream
    first: int
    instructions: list[Instruction]


class Completed(NamedTuple):
    """To the owner of a speaker: up to where all others that count have the stream.

    `serial` is that of the view for which this holds. In a new view the numbers begin again at 0.
    """

    stream: Stream
    received: int
    stored: int
    serial: int


class Turn(NamedTuple):
    """What is to be done after some calls."""

    frames: list[tuple[Member, Frame]]
    deliveries: list[Delivery]
    completed: list[Completed]


class _StreamState:
    """What a member knows of one stream."""

    __slots__ = ("counted", "delivered", "done", "fresh", "has_begun", "home", "reported", "retained", "safe", "told")

    def __init__(self, base: int, start: int) -> None:
        self.retained = Retained(base)
        self.done = base
        #: The owner knows everything up to here, or needs not know it.
        self.delivered = start
        #: Up to where the stream is safe at this member. The owner of a learner says when what was before is safe.
        self.safe = 0
        #: What the left neighbour has told on the present attachment: received, stored.
        self.told = (0, 0)
        #: Of a speaker: the numbers that have come home on the present attachment.
        self.home = (0, 0)
        #: Of a speaker: the numbers of learners.
        self.counted: dict[Member, tuple[int, int]] = {}
        #: The last report to the owner.
        self.reported = (0, 0, -1)
        #: The owner of a learner has to be told where the stream begins.
        self.has_begun = False
        #: What has come in this turn, for the owner.
        self.fresh: list[Instruction] = []


class _Down:
    """A member that has attached to this one: its right neighbour, or a follower."""

    __slots__ = ("acked", "attachment", "done", "sent", "shown")

    def __init__(self, attachment: int) -> None:
        self.attachment = attachment
        #: By stream: up to where instructions were sent, and the `done` that was told with them.
        self.sent: dict[Stream, int] = {}
        self.done: dict[Stream, int] = {}
        #: By stream: the numbers that the receiver knows of this member.
        self.shown: dict[Stream, tuple[int, int]] = {}
        #: Of a follower, by stream: up to where it has received.
        self.acked: dict[Stream, int] = {}


class RingMember:
    """See the module. `me` is in the view, in the ring or as a learner; a learner is new, and so is a founder."""

    def __init__(self, me: Member, view: View) -> None:
        self.me = me
        self.view = view
        #: The member lacks what nobody sends it any more, so it has to leave the ring.
        self.is_out_of_sync = False
        self._streams: dict[Stream, _StreamState] = {}
        self._downs: dict[Member, _Down] = {}
        #: The last that those said who are not known yet: that they attach, and their numbers of each stream.
        self._strangers: dict[tuple[Member, Stream | None], Frame] = {}
        #: Frames of a later view. The window of whoever speaks bounds them.
        self._held: list[tuple[Member, Frame]] = []
        #: The left neighbour to which this member has attached. The number of the attachment rises each time.
        self._left: Member | None = None
        self._attachment = 0
        #: The left neighbour has said something on the present attachment.
        self._is_answered = True
        #: Another member has a view without this one: say nothing more before a view with this epoch is here.
        self._fenced = 0
        self._frames: list[tuple[Member, Frame]] = []
        if self._is_member:
            self._begin_streams()
        self._attach()

    # -- what an owner asks

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
        """Up to where this member has received the stream."""
        state = self._streams.get(stream)
        return state.retained.last if state is not None else 0

    def safe_at(self, stream: Stream) -> int:
        """Up to where the stream is safe here."""
        state = self._streams.get(stream)
        return state.safe if state is not None else 0

    @property
    def left(self) -> Member | None:
        """The member that this one is attached to."""
        return self._left

    @property
    def is_unanswered(self) -> bool:
        """Nothing has come from the left neighbour since this member has attached: it may not run yet (`retry`)."""
        return self.has_part and not self._is_answered

    @property
    def retained_bytes(self) -> int:
        return sum([state.retained.size for state in self._streams.values()])

    def lag_of_right(self) -> int:
        """How many instructions the right neighbour has not been sent."""
        right = self.view.right_of(self.me)
        down = self._downs.get(right) if right is not None else None
        return sum(
            [
                state.retained.last - (down.sent[stream] if down is not None and stream in down.sent else state.done)
                for stream, state in self._streams.items()
                if self.view.speakers[stream] != right
            ]
        )

    @property
    def owes_done(self) -> bool:
        """Whether the others may forget something that this member has not told them about (`tell_done`)."""
        return any([True for _ in self._without_done()])

    # -- what happens

    def broadcast(self, stream: Stream, instructions: list[Instruction]) -> int:
        """Say something as the speaker of the stream. Returns the position of the last instruction.

        The owner has it already; it is not delivered here.
        """
        state = self._streams[stream]
        assert self.speaks(stream), f"{self.me} does not speak for the stream {stream!r}"
        state.retained.add(instructions)
        state.delivered = state.retained.last
        return state.retained.last

    def safe(self, stream: Stream, position: int) -> None:
        """What was delivered up to `position` is safe at this member."""
        state = self._streams.get(stream)
        if state is not None:
            state.safe = max(state.safe, min(position, state.retained.last))

    def change_view(self, view: View) -> None:
        """A later view is in force, or the same one with other learners."""
        old, self.view = self.view, view
        if not self.has_part:
            self._downs.clear()
            self._strangers.clear()
            self._held.clear()
            return
        for stream in [stream for stream in self._streams if stream not in view.speakers]:
            del self._streams[stream]
        if self._streams:
            self._begin_streams()
        for stream, state in self._streams.items():
            if self._may_be_ahead(old, stream, state):
                # The member that goes on with the stream would give the same positions to something else.
                self.is_out_of_sync = True
            state.counted = {name: numbers for name, numbers in state.counted.items() if name in view.learners}
        if not self._is_member and view.left_of(self.me) != self._left and self._streams:
            # The new neighbour may have less than this learner, and others may go on from there with something else.
            self.is_out_of_sync = True
        right = view.right_of(self.me)
        for name in [name for name in self._downs if name != right and not self._is_follower(name)]:
            del self._downs[name]
        if view.left_of(self.me) != self._left or _begins_anew(old, view):
            self._attach()
        strangers, self._strangers = self._strangers, {}
        for (name, _), frame in strangers.items():
            self.receive(name, frame)
        held, self._held = self._held, []
        for sender, frame in held:
            self.receive(sender, frame)

    def _begin_streams(self) -> None:
        """A stream that this member does not know begins with the view."""
        for stream in self.view.speakers:
            if stream not in self._streams:
                self._streams[stream] = _StreamState(0, 0)

    def _may_be_ahead(self, old: View, stream: Stream, state: _StreamState) -> bool:
        """Whether this member may have more of the stream than one that stands before it now. That cannot be if members
        have only died or come; but if they have another order, somebody who had less may have got to the front.
        """
        if self.speaks(stream):
            return False
        if old.speakers.get(stream) == self.me:
            return state.reported[0] < state.retained.last
        stayed = [name for name in old.members if name in self.view.members]
        is_reordered = stayed != [name for name in self.view.members if name in old.members]
        return is_reordered and state.done < state.retained.last

    def neighbour_is_back(self, member: Member) -> None:
        """The connection to this member was lost and is there again."""
        if member == self._left or (not self._is_member and member in self.view.speakers.values()):
            self._attach()

    def _attach(self) -> None:
        self._left = self.view.left_of(self.me)
        self._attachment += 1
        self._is_answered = self._left is None
        for state in self._streams.values():
            state.told = state.home = (0, 0)
        if self._left is not None:
            positions = [(stream, state.retained.last, state.safe) for stream, state in self._streams.items()]
            self._say(self._left, Attach(self._attachment, self.view.epoch, positions))

    def retry(self) -> None:
        """Attach once more if the left neighbour has not answered."""
        if self.is_unanswered:
            self._attach()

    def tell_done(self) -> None:
        """Tell the others what they may forget, though nothing else is to be said."""
        for name, down, stream, state in list(self._without_done()):
            self._send_pubs(name, down, stream, state, state.retained.last)

    def _without_done(self) -> Iterator[tuple[Member, _Down, Stream, _StreamState]]:
        """The receivers that were not told what they may forget of the streams for which this member speaks."""
        for stream, state in self._streams.items():
            if self.speaks(stream):
                for name, down in self._downs.items():
                    if stream in down.sent and down.done.get(stream, 0) < state.done:
                        yield name, down, stream, state

    def receive(self, sender: Member, frame: Frame) -> None:
        """A frame has come. It is dropped if it belongs to the past."""
        if not self.has_part or self.is_out_of_sync:
            return
        if isinstance(frame, Fenced):
            self._fenced = max(self._fenced, frame.epoch)
        elif frame.epoch > self.view.epoch:
            self._held.append((sender, frame))
        elif isinstance(frame, Attach):
            self._on_attach(sender, frame)
        elif isinstance(frame, Progress):
            self._on_progress(sender, frame)
        elif sender == self._left and frame.attachment == self._attachment:
            # A new learner can begin with nothing but a seed, and that may have come before anybody received it.
            self._is_answered = bool(self._streams) or isinstance(frame, Seed)
            if isinstance(frame, Pubs):
                self._on_pubs(frame)
            elif isinstance(frame, Numbers):
                self._on_numbers(frame)
            else:
                self._on_seed(frame)
        elif self._is_stranger(sender):
            self._on_stranger(sender, frame)

    def _is_stranger(self, member: Member) -> bool:
        return member not in self.view.members and member not in self.view.learners

    def _is_follower(self, member: Member) -> bool:
        return member in self.view.learners and self.view.members[-1] == self.me

    def _on_stranger(self, sender: Member, frame: Pubs | Numbers | Progress | Attach | Seed) -> None:
        """A frame of a member that the view does not have: any more, or yet. Learners come without a new epoch."""
        if frame.epoch < self.view.epoch:
            self._say(sender, Fenced(self.view.epoch))
        if isinstance(frame, Attach | Progress) and len(self._strangers) < STRANGERS_MOST:
            self._strangers[sender, frame.stream if isinstance(frame, Progress) else None] = frame

    def _on_attach(self, sender: Member, frame: Attach) -> None:
        if self._is_stranger(sender):
            self._on_stranger(sender, frame)
            return
        if sender != self.view.right_of(self.me) and not self._is_follower(sender):
            # One of the two has a later view. If it is the sender, it will be the right neighbour here as well.
            self._strangers[sender, None] = frame
            return
        known = self._downs.get(sender)
        if known is not None and known.attachment >= frame.attachment:
            return
        self._strangers.pop((sender, None), None)
        down = self._downs[sender] = _Down(frame.attachment)
        if not frame.positions:
            self._seed(sender, down)
        for stream, received, _ in frame.positions:
            state = self._streams.get(stream)
            if state is not None:
                down.sent[stream] = down.acked[stream] = received

    def _seed(self, sender: Member, down: _Down) -> None:
        """Begin to feed a new member. The first member of the ring will be its right neighbour, and needs nothing of
        the streams for which it speaks itself.
        """
        starts: list[Position] = []
        for stream, state in self._streams.items():
            last = state.retained.last
            base = last if self.view.speakers[stream] == self.view.members[0] else state.retained.base
            starts.append((stream, base, last))
            down.sent[stream] = down.acked[stream] = base
        self._say(sender, Seed(down.attachment, self.view.epoch, starts))

    def _on_seed(self, frame: Seed) -> None:
        self._streams = {stream: _StreamState(base, start) for stream, base, start in frame.starts}
        self._begin_streams()
        for state in self._streams.values():
            state.has_begun = True

    def _on_pubs(self, frame: Pubs) -> None:
        state = self._streams.get(frame.stream)
        if state is None or self.speaks(frame.stream):
            return
        retained = state.retained
        known = retained.last + 1 - frame.first
        if known < 0:
            self.is_out_of_sync = True
            return
        last = frame.first + len(frame.instructions) - 1
        fresh = frame.instructions[known:] if known else frame.instructions
        if fresh:
            at = retained.last + 1
            retained.add(fresh)
            if state.delivered < retained.last:
                state.fresh += fresh[state.delivered + 1 - at :] if state.delivered >= at else fresh
                state.delivered = retained.last
        if frame.instructions:
            received, stored = state.told
            state.told = max(received, last), stored
        state.done = max(state.done, min(frame.done, retained.last))

    def _on_numbers(self, frame: Numbers) -> None:
        state = self._streams.get(frame.stream)
        if state is not None:
            received, stored = state.told
            state.told = max(received, frame.received), max(stored, frame.stored)
            if self.speaks(frame.stream):
                # The numbers are those of everybody: the sender is the last, and has counted those before it.
                state.home = state.told

    def _on_progress(self, sender: Member, frame: Progress) -> None:
        if sender not in self.view.learners:
            if self._is_stranger(sender):
                self._on_stranger(sender, frame)
            return
        down = self._downs.get(sender)
        if down is not None and down.attachment == frame.attachment:
            down.acked[frame.stream] = max(down.acked.get(frame.stream, 0), frame.received)
        state = self._streams.get(frame.stream)
        if state is not None and self.speaks(frame.stream):
            state.counted[sender] = (frame.received, frame.stored)

    # -- what follows

    def end_turn(self) -> Turn:
        """What is to be sent, delivered and reported because of the calls since the last turn."""
        deliveries: list[Delivery] = []
        completed: list[Completed] = []
        if self.has_part and not self.is_out_of_sync:
            for stream, state in self._streams.items():
                if self.speaks(stream):
                    self._complete(stream, state, completed)
                if state.has_begun:
                    state.has_begun = False
                    deliveries.append(Delivery(stream, state.delivered + 1 - len(state.fresh), []))
                if state.fresh:
                    deliveries.append(Delivery(stream, state.delivered + 1 - len(state.fresh), state.fresh))
                    state.fresh = []
            if self._fenced <= self.view.epoch:
                for name, down in self._downs.items():
                    self._feed(name, down)
                if not self._is_member:
                    self._tell_as_learner()
            self._forget()
        frames, self._frames = self._frames, []
        return Turn(frames, deliveries, completed)

    def _complete(self, stream: Stream, state: _StreamState, completed: list[Completed]) -> None:
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

    def _feed(self, name: Member, down: _Down) -> None:
        """Send a receiver what it lacks."""
        is_right = name in self.view.members
        for stream, state in self._streams.items():
            if stream not in down.sent:
                # The stream is new to the receiver.
                down.sent[stream] = down.acked[stream] = 0
            speaks = self.speaks(stream)
            numbers = (state.retained.last, 0) if speaks else self._numbers(stream, state)
            if self.view.speakers[stream] != name and (
                # The receiver is to know that it has been heard.
                stream not in down.done
                # Not what the left neighbour may lack. So nobody is ever ahead of those before it.
                or down.sent[stream] < max(numbers[0], state.retained.base)
                or (not speaks and down.done.get(stream, 0) < state.done)
            ):
                self._send_pubs(name, down, stream, state, numbers[0])
            if is_right and not speaks:
                if numbers != down.shown.get(stream):
                    self._say(name, Numbers(down.attachment, self.view.epoch, stream, *numbers))
                    down.shown[stream] = numbers

    @seam("replica: what a member and all before it have")
    def _numbers(self, stream: Stream, state: _StreamState) -> tuple[int, int]:
        """Up to where this member, and all between the speaker and it, have the stream."""
        if self.view.speakers[stream] == self._left:
            return state.retained.last, state.safe
        received, stored = state.told
        return min(received, state.retained.last), min(stored, state.safe)

    def _send_pubs(self, name: Member, down: _Down, stream: Stream, state: _StreamState, last: int) -> None:
        """Send what the receiver lacks up to `last`, and what may be forgotten."""
        # If the receiver needs more than is retained, it finds the gap.
        sent = max(down.sent[stream], state.retained.base)
        instructions = state.retained.between(sent, last)
        self._say(name, Pubs(down.attachment, self.view.epoch, stream, sent + 1, state.done, instructions))
        down.sent[stream] = max(sent, last)
        down.done[stream] = state.done
        if instructions:
            # The receiver concludes that all before it have these instructions.
            received, stored = down.shown.get(stream, (0, 0))
            down.shown[stream] = max(received, last), stored

    def _tell_as_learner(self) -> None:
        for stream, state in self._streams.items():
            numbers = (state.retained.last, state.safe, self._attachment)
            if numbers != state.reported:
                state.reported = numbers
                for name in _distinct((self._left, self.view.speakers.get(stream))):
                    self._say(name, Progress(self._attachment, self.view.epoch, stream, *numbers[:2]))

    @seam("replica: what a member keeps")
    def _forget(self) -> None:
        """Keep only what somebody may need from this member."""
        for stream, state in self._streams.items():
            needed = [down.acked[stream] for name, down in self._downs.items() if name in self.view.learners]
            state.retained.cut(min([state.done, *needed]))

    def _say(self, to: Member, frame: Frame) -> None:
        self._frames.append((to, frame))


def _begins_anew(old: View, view: View) -> bool:
    """Whether the members attach anew though their neighbours stay: somebody else speaks; or somebody has come, for
    whom no number counts that was told before; or there were views between the two, in which the neighbour may have had
    another one.
    """
    return view.epoch != old.epoch and (
        view.epoch > old.epoch + 1
        or not set(view.members) <= set(old.members)
        or any([old.speakers.get(stream) != speaker for stream, speaker in view.speakers.items()])
    )


def _distinct(members: Iterable[Member | None]) -> list[Member]:
    return list(dict.fromkeys([member for member in members if member is not None]))
