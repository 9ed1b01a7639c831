"""`Follower`: how a mirror, and a learner, carry out the instructions of the master (CL-62)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..seams import seam
from ..store.messages.run import Run
from . import instructions
from .backing.mirrored_queue import MirroredQueue
from .safety import Safety
from .sync.sync_target import Placed

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica
    from .sync.learner import Learner


class Follower:
    """See the module. `safety` gets the positions of the runs that must be on the disk."""

    __slots__ = ("_mirrored", "_replica", "_safety", "learner")

    def __init__(self, replica: Replica, mirrored: MirroredQueue, safety: Safety) -> None:
        self._replica = replica
        self._mirrored = mirrored
        self._safety = safety
        #: None for a member of the ring.
        self.learner: Learner | None = None

    def take(self, placed: Placed) -> None:
        """Follow the instructions at these positions."""
        mirrored = self._mirrored
        for position, (kind, content) in placed:
            if kind == instructions.PUBLISH:
                self._take_run(position, content)
            elif kind == instructions.REMOVE:
                mirrored.remove(instructions.removed(content))
            elif kind == instructions.PURGE:
                mirrored.keep_only(list(instructions.removed(content)))
            elif kind == instructions.RESERVE:
                mirrored.reserve(instructions.number_in(content))
            elif kind == instructions.PUBLISH_ONCE:
                digests, content = instructions.published_once(content)
                run = self._take_run(position, content)
                if run is not None:
                    self._remember(run.first, digests, run.origin.persistent)
            elif kind == instructions.ACCEPTED:
                self._remember(*instructions.accepted_in(content))
            elif kind == instructions.WINDOW:
                self._replica.remembering.resize(instructions.number_in(content))
                if self.learner is not None:
                    self.learner.window_changed()
            elif kind == instructions.SEGMENT:
                mirrored.follow_segment()
            elif kind == instructions.KEPT_FROM:
                mirrored.follow_drop(instructions.number_in(content))
            elif kind == instructions.RETURNED:
                mirrored.returned(instructions.returns_in(content))
            elif kind == instructions.LIVES:
                mirrored.note_lives(instructions.lives_in(content))
            elif kind == instructions.ANSWERED:
                for channel_id, floor in instructions.answered_in(content):
                    mirrored.publishers.answered(channel_id, floor)
            elif kind == instructions.TAKEN and not mirrored.publishers.is_complete:
                for taken in instructions.taken_in(content):
                    mirrored.publishers.add(*taken)
                mirrored.publishers.is_complete = True

    def _take_run(self, position: int, content: bytes) -> Run | None:
        """Take and return a run that was published; None if this replica begins anew instead."""
        mirrored = self._mirrored
        parts, run = instructions.published(content)
        if self.learner is not None and self.learner.has_given(run.first):
            # The learner has compared its messages with those of a replica that had not yet received all publishes of
            # an earlier master, so it may have kept a message that the queue does not have.
            self.learner.begin_anew("a message has come with a number that this replica had before")
            return None
        mirrored.publishers.took(parts)
        numbers = mirrored.take(run)
        self._replica.state.effects.messages_came = True
        if mirrored.is_kept(run.origins):
            self._safety.took(position, numbers.start, numbers.stop - 1)
        return run

    @seam("which publishes a mirror remembers")
    def _remember(self, first: int, digests: list[bytes], is_persistent: bool) -> None:
        deduplication = self._replica.state.deduplication
        if deduplication is not None:
            deduplication.follow(first, digests, is_persistent)
