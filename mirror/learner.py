"""`Learner`: how a replica that is not yet a member of its ring gets the messages of the queue (CL-83, CL-85).

It copies one chunk after the other from its left neighbour (`sync_target`), and when it has all messages it asks the
master to admit it. `status` calls these stages `waiting`, `copying` and `following`.

With `ha-sync-mode: manual` a learner waits, as RabbitMQ's mirrors do, until an operator has it synchronised, the policy
changes to `automatic`, or the queue has no message left that is older than this replica, so that there is little to
copy. While it waits it keeps no message. An operator may also stop a copy that has begun; the learner keeps the
messages that it has, and waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..actors.contracts.queue import to_queue
from ..amqp.errors import AmqpError
from ..routing.phrases import queue_phrase
from ..routing.rows import Member
from ..runtime.errors import ProcessDown
from . import instructions
from .policy import policy_of
from .sync_target import Placed, SyncTarget

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica
    from ..gm_ring.frames import Instruction
    from ..gm_ring.ring import RingMember

log = logging.getLogger("warren.mirror")

#: Seconds after which a learner requests a chunk again: the other replica may not run yet, or lag behind in the stream.
RETRY_SECONDS = 0.25

#: Seconds between two checks whether the stream has reached the position of a chunk that came too early.
STREAM_SECONDS = 0.025

#: Seconds after which a learner that has all messages asks the master again, since the master may have changed.
FOLLOWS_SECONDS = 1.0

#: Seconds between two checks of the policy by a waiting learner. It asks for the queue's oldest numbers as often at
#: first, then after twice as long each time, up to a maximum.
WAITING_SECONDS = 1.0
OLDEST_SECONDS_MOST = 30.0


class Learner:
    """See the module. `follow` carries out instructions of the stream, given with their positions."""

    def __init__(self, replica: Replica, ring: RingMember, follow: Callable[[Placed], None]) -> None:
        self._replica = replica
        self._ring = ring
        self._follow = follow
        self._target = SyncTarget()
        #: The replica has joined the ring, or has ended.
        self._is_over = False
        #: An operator has asked for the copy.
        self._is_asked = False
        #: The mode that the policy had when an operator stopped the copy. Another mode ends the stop.
        self._stopped_in: str | None = None
        #: By level, the number that the next message would have got when this replica began to wait.
        self._began_at: dict[int, int] | None = None
        #: When it asks for the oldest numbers again, and the seconds from then to the next time.
        self._look_at = self._look_seconds = 0.0

    @property
    def stage(self) -> str:
        if self._target.is_done:
            return "following"
        return "waiting" if self._target.is_paused else "copying"

    def end(self) -> None:
        """End the loop: the replica is no longer a learner."""
        self._is_over = True

    def begin(self, position: int) -> None:
        """Begin to copy; the stream begins behind this position."""
        self._target.begin(position)
        self._replica.spawn(self._run())

    def came(self, first: int, taken: list[Instruction]) -> None:
        """Take instructions of the stream, with positions from `first` on."""
        self._follow(self._target.came(first, taken))

    def synchronise(self, is_wanted: bool) -> bool:
        """Start the copy for an operator, or stop it. Returns whether that changed anything."""
        target = self._target
        is_copying = not target.is_done and not target.is_paused
        self._is_asked = is_wanted
        if is_wanted:
            # `_run` goes on with the next chunk when its sleep ends.
            target.resume()
            return not target.is_done
        if is_copying:
            self._stopped_in = self._mode
            self._pause()
        return is_copying

    @property
    def _mode(self) -> str:
        return str(policy_of(self._replica).get("ha-sync-mode", "automatic"))

    @property
    def _is_on(self) -> bool:
        return not self._is_over and self._ring.has_part

    def _pause(self) -> None:
        self._follow(self._target.pause())
        self._began_at = None
        self._look_at, self._look_seconds = 0.0, WAITING_SECONDS

    # -- the stages

    async def _run(self) -> None:
        replica, target = self._replica, self._target
        if self._mode == "manual" and not self._is_asked:
            self._pause()
            log.info("%s: this replica waits until an operator synchronises it (ha-sync-mode: manual)", self._phrase)
        else:
            log.info("%s: this replica gets the messages of the queue", self._phrase)
        while self._is_on:
            source = self._ring.left
            if target.is_done:
                self._ask_to_be_admitted()
                await replica.sleep(FOLLOWS_SECONDS)
            elif source is None:
                await replica.sleep(RETRY_SECONDS)
            elif target.is_paused:
                await self._wait(Member(*source))
            else:
                await self._get_chunk(Member(*source))

    async def _wait(self, source: Member) -> None:
        """Resume the copy if there is a reason to; sleep otherwise."""
        mode = self._mode
        if mode != self._stopped_in:
            self._stopped_in = None
        is_due = self._is_asked or (mode == "automatic" and self._stopped_in is None)
        if not is_due and self._stopped_in is None and self._replica.now() >= self._look_at:
            is_due = await self._has_nothing_older(source)
        if is_due and self._is_on:
            log.info("%s: this replica gets the messages of the queue", self._phrase)
            self._target.resume()
        elif self._is_on:
            await self._replica.sleep(WAITING_SECONDS)

    async def _has_nothing_older(self, source: Member) -> bool:
        """Whether every message in the queue was published after this replica began to wait."""
        replica = self._replica
        self._look_at = replica.now() + self._look_seconds
        self._look_seconds = min(self._look_seconds * 2, OLDEST_SECONDS_MOST)
        address = replica.context.peers.replica(replica.row.queue_id, source)
        try:
            levels = await replica.ask(address, to_queue.sync_numbers())
        except (AmqpError, ProcessDown):
            return False
        if self._began_at is None:
            self._began_at = {level: following for level, _, following in levels}
        # A level that did not exist then has no older message.
        return all(oldest >= self._began_at.get(level, 0) for level, oldest, _ in levels)

    async def _get_chunk(self, source: Member) -> None:
        replica, target = self._replica, self._target
        address = replica.context.peers.replica(replica.row.queue_id, source)
        try:
            position, cursor, runs = await replica.ask(address, to_queue.sync_chunk(target.cursor))
        except (AmqpError, ProcessDown):
            await replica.sleep(RETRY_SECONDS)
            return
        while self._is_on and target.is_ahead(position):
            await replica.sleep(STREAM_SECONDS)
        if not self._is_on or target.is_paused:
            return
        if target.is_too_early(position):
            await replica.sleep(RETRY_SECONDS)
            return
        before, after = target.chunk(position, cursor)
        self._follow(before)
        self._follow([(position, (instructions.PUBLISH, content)) for content in runs])
        self._follow(after)
        if target.is_done:
            log.info("%s: this replica has all messages of the queue", self._phrase)
        # Request the next chunk when this one is on the disk, so that a slow disk does not fill the memory.
        await replica.synced()

    def _ask_to_be_admitted(self) -> None:
        replica = self._replica
        group = replica.row.group
        assert group is not None and replica.member is not None
        address = replica.context.peers.replica(replica.row.queue_id, group.master)
        replica.send(address, to_queue.follows(replica.member.generation))

    @property
    def _phrase(self) -> str:
        return queue_phrase(self._replica.row.vhost, self._replica.row.name)
