"""`Deaths`: which messages of a queue may have died, and the dead letters that they become.

A message dies when a consumer rejects it, when it is returned more often than the queue's delivery limit, when it
expires and no channel holds it, and when a queue of limited length drops its head or refuses a publish. While clients
work the model cannot tell when a message has died, so a crash leaves open whether the message or its dead letter is
there. But just one of them is: `unseen` are the messages of which the auditor must receive one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .copies import Copy, CopyState, PromiseBroken

if TYPE_CHECKING:
    from .queue_model import QueueModel


class Deaths:
    """The deaths in one queue."""

    def __init__(self, queue: QueueModel) -> None:
        self._queue = queue
        #: The queue that the dead letters go to; None if the schedule has none.
        self.target: QueueModel | None = None

    def lifetime(self, copy: Copy) -> float | None:
        """Seconds after which the copy expires if no channel holds it; None for never."""
        if copy.source is not None:
            return None  # a dead letter has lost its expiration, and its queue has no message TTL
        limits = [limit for limit in (copy.message.expiration, self._queue.kind.ttl) if limit is not None]
        return min(limits, default=None)

    def on_reject(self, copy: Copy) -> Copy | None:
        """A channel is about to reject the copy. Returns its dead letter, if it can have one."""
        copy.is_rejected = True
        return self.die(copy, CopyState.SENT) if copy.source is None else None

    def on_refuse(self, copy: Copy) -> None:
        """The queue has refused the copy because it was full, and nothing else can have refused it."""
        if copy.dead_letter is None and self._queue.kind.dead_letters_refused:
            self.die(copy, CopyState.READY)
            copy.state = CopyState.REMOVED

    def on_dead_letter(self, copy: Copy, reason: str, is_certain: bool) -> Copy:
        """A client has received the dead letter of this copy from `target`. Returns that dead letter.

        `is_certain` if neither queue has old deliveries. Raises PromiseBroken if the copy cannot have died.
        """
        self._check_reason(copy, reason)
        if copy.dead_letter is not None:
            return copy.dead_letter
        is_certain = is_certain and not copy.may_have_died
        if is_certain:
            _check_death(copy)
        dead_letter = self.die(copy, CopyState.READY)
        assert dead_letter is not None
        if not is_certain:
            dead_letter.make_ambiguous()
            copy.make_uncertain()
        elif copy.state != CopyState.FORBIDDEN:
            copy.state, copy.holder = CopyState.REMOVED, None
        return dead_letter

    def _check_reason(self, copy: Copy, reason: str) -> None:
        queue, lifetime = self._queue, self.lifetime(copy)
        if reason == "expired":
            if lifetime is None:
                raise PromiseBroken(f"{copy} expired, though nothing limits its age")
            expires_at = copy.message.sent_at + lifetime
            if queue.clock() < expires_at:
                raise PromiseBroken(f"{copy} expired {(expires_at - queue.clock()) * 1000:.0f} ms before its time")
        elif not (
            reason == "rejected"
            and copy.is_rejected
            or reason == "delivery_limit"
            and copy.is_returned_too_often(copy.returns_most)
            or reason == "maxlen"
            and (queue.kind.drops_head or queue.kind.dead_letters_refused)
        ):
            raise PromiseBroken(f"{copy} died for no reason: '{reason}'")

    def unseen(self) -> list[Copy]:
        """The safe copies of which no client has received anything, if nothing but their death can have removed them.

        From now on exactly one of the two must be delivered, the copy or its dead letter.
        """
        queues = (self._queue, self.target)
        if not all(queue is not None and queue.survives_restart and queue.exists is True for queue in queues):
            return []
        if any(queue is not None and queue.may_have_leaked for queue in queues):
            return []
        return [
            copy
            for copy in self._queue.copies.values()
            if copy.is_safe
            and copy.message.persistent  # the dead letter of a transient message in a quorum queue is transient
            and not copy.seen
            and (copy.dead_letter is None or not copy.dead_letter.seen)
            and self.target is not None
            and self.target.existed_at(copy.message.sent_at)
        ]

    def die(self, copy: Copy, state: CopyState) -> Copy | None:
        """Give the copy a dead letter in `state`; None if the schedule has no queue for it."""
        if self.target is None:
            return None
        if copy.dead_letter is not None:
            copy.dead_letter.make_ambiguous()
        else:
            copy.dead_letter = self.target.add_dead_letter(copy, state, self.lives_until(copy))
        return copy.dead_letter

    def lives_until(self, copy: Copy) -> float:
        """A time before which the copy cannot have died."""
        if copy.state == CopyState.UNACKED and copy.is_held:
            return self._queue.clock()
        kind = self._queue.kind
        need_not_expire = (
            copy.is_rejected
            or kind.drops_head
            or kind.dead_letters_refused
            or copy.is_returned_too_often(copy.returns_most)
        )
        lifetime = None if need_not_expire else self.lifetime(copy)
        return copy.message.sent_at + (lifetime or 0.0)

    def may_have_died(self, copy: Copy) -> bool:
        """Whether the copy may have died since the node was last at rest."""
        queue, lifetime = self._queue, self.lifetime(copy)
        if lifetime is not None and queue.clock() >= copy.message.sent_at + lifetime:
            return True
        return queue.kind.drops_head and queue.has_new_messages or copy.is_returned_too_often(copy.returns_most)

    def may_be_gone(self, copy: Copy) -> bool:
        """Whether the copy may have died and left no dead letter that must be in `target`."""
        may_be_given_up = copy.is_returned_too_often(copy.returns_most)
        if self.lifetime(copy) is None and not self._queue.kind.drops_head and not may_be_given_up:
            return False
        target = self.target
        return target is None or copy.may_have_died or not target.has_kept_since(self.lives_until(copy))


def _check_death(copy: Copy) -> None:
    if copy.state in (CopyState.REMOVED, CopyState.FORBIDDEN):
        raise PromiseBroken(f"{copy} died after it was gone")
    if copy.is_held:
        raise PromiseBroken(f"{copy} died while {copy.holder} had it")
