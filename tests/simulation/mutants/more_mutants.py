"""Bugs of expiry, dead letters, files and connections that end, which the simulation must find. Each docstring says
what the bug does.
"""

from __future__ import annotations

from typing import Any

from warren.store.messages.message import each_of

from .one_node import bug


@bug("which dead messages become dead letters")
def dead_letter_lost(publish: Any, self: Any, reason: str, messages: Any) -> Any:
    """A queue drops the last of several messages that die together."""
    is_recorded, _, wide = publish(self, reason, messages[:-1] if len(messages) > 1 else messages)
    return is_recorded, len(messages), wide


@bug("which dead messages become dead letters")
def dead_letters_reversed(publish: Any, self: Any, reason: str, messages: Any) -> Any:
    """Messages that die together become dead letters in reverse order."""
    return publish(self, reason, messages[::-1])


@bug("whether a new consumer becomes the single active one")
def two_single_active_consumers(is_activated: Any, self: Any) -> bool:
    """The second consumer becomes active although the first has not left."""
    return is_activated(self) or len(self) == 2


@bug("which unroutable messages are returned")
def return_omitted(give_back: Any, self: Any, publication: Any, content: Any) -> None:
    """Only the first of several unroutable mandatory messages is returned."""
    if not self._output.frames:
        give_back(self, publication, content)


@bug("where a moved body is")
def body_misplaced_in_garbage_collection(next_offset: Any, self: Any) -> int:
    """When two files are combined, the index records each body but the first at the place of the previous one."""
    before = [move.offset for move in self.moves if move.offset is not None]
    return before[-1] if before else int(next_offset(self))


@bug("which dead letters a queue records as taken")
def dead_letter_taken_without_record(take_over: Any, self: Any, *taken: Any) -> int:
    """The record with which a target accepts a dead letter does not say that it was in transit, so a crash brings it
    again.
    """
    return int(self.position)


@bug("when the journal may delete what a queue has written")
async def flushed_before_it_is_written(flush_synced: Any, self: Any) -> bool:
    """A queue reports that its entries are in its segments before they are."""
    return True


@bug("which messages of a run a block has")
def block_without_the_last(add: Any, self: Any, run: Any) -> None:
    """A block reader's block leaves out the last message of a run of several."""
    add(self, run.part(0, len(run.contents) - 1) if len(run.contents) > 1 else run)


@bug("whether a silent client is dead")
def silent_peer_kept(step: Any, self: Any, received: int) -> bool:
    """A connection does not end when heartbeats are missed."""
    return False


@bug("which queues end with their connection")
def exclusive_queue_left_behind(exclusive_to: Any, *arguments: Any) -> Any:
    """Exclusive queues stay when their connection ends."""
    return ()


@bug("whether a queue may end with the channel of its last consumer")
def auto_delete_forgotten(consumers_left: Any, *arguments: Any) -> None:
    """An auto-delete queue stays when its last consumer ends with its channel."""


@bug("where requeued messages go")
def expiry_lost_on_requeue(insert: Any, self: Any, returned: Any) -> None:
    """A requeued message never expires."""
    for run in returned:
        run.expiries = None
    insert(self, returned)


@bug("when a message expires")
def expired_too_early(of: Any, self: Any, origins: Any) -> Any:
    """Messages with an expiration expire after half of it."""
    count = len(origins) if isinstance(origins, list) else 1
    halves = [
        origin._replace(expiration=origin.expiration and origin.expiration // 2) for origin in each_of(origins, count)
    ]
    return of(self, halves if isinstance(origins, list) else halves[0])


@bug("how many bytes an acknowledgement frees")
def bytes_miscounted(settle: Any, self: Any, run: Any, piece: slice, count: int) -> int:
    """An acknowledgement in the middle of a run does not reduce the count of bytes."""
    before = self.body_bytes
    found = int(settle(self, run, piece, count))
    if piece.start and count == 1:
        self.body_bytes = before
    return found


@bug("which deliveries a group returns to their member")
def message_kept_by_a_group(without_taker: Any, self: Any, tags: Any) -> Any:
    """A message that a member delivers for a consumer which has left meanwhile is neither given to another consumer nor
    returned.
    """
    return ()


@bug("where the settlement of a group's delivery goes")
def settlement_of_a_group_cut_short(take: Any, self: Any, tags: Any) -> Any:
    """When several messages are settled together, the member gets all of them but the last."""
    found = take(self, tags)
    for of_member in found.values():
        if len(of_member) > 1:
            of_member.pop()
    return found
