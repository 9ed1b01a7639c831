"""`Learner`: how a replica that is not yet a member of its ring gets the messages of the queue (CL-83 to CL-86).

If its disk has messages of an earlier life, it compares them with those of its left neighbour first, and keeps what the
neighbour has too (`comparison`). It copies the rest from there, one chunk after the other (`sync_target`), and when it
has all messages it asks the master to admit it. `status` calls these stages `comparing`, `copying` and `following`, and
`waiting` if it does nothing for now.

With `ha-sync-mode: manual` a learner that has compared what it had waits, as RabbitMQ's mirrors do, until an operator
has it synchronised, the policy changes to `automatic`, or the queue has no message left that is older than this
replica, so that there is little to copy. While it waits it keeps no message. An operator may also stop a copy that has
begun; the learner keeps the messages that it has, and waits.

At most `COPIES_MOST` learners of a node copy at a time; the next one waits until one of them has its copy. A learner
copies nothing while its node has an alarm, because a copy takes memory and disk space (CL-88). If no part comes for
`mirror_sync_timeout`, it lets others copy and asks again (CL-90). `copy_reports` has what it reports meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...actors.contracts.metadata import to_metadata
from ...actors.contracts.queue import ToQueue, to_queue
from ...amqp.errors import AmqpError
from ...definitions.features import MIRRORED_DEDUPLICATION
from ...routing.phrases import queue_phrase
from ...routing.rows import Member
from ...runtime.errors import ProcessDown, ProcessTimeout, UnknownMessage
from ...runtime.exit_reason import ExitKind, ExitReason
from ...settings.limits import shown_size
from ...store.deduplication.digest_records import split_digests
from ...store.queue.levels.level_tags import LEVEL_SHIFT, NUMBER_MASK
from .. import instructions
from ..policy import policy_of
from .approach import Approach
from .attempts import Attempts
from .comparison import Comparison, Unfit
from .copy_gate import CopyGate
from .copy_progress import CopyProgress
from .copy_reports import CopyReports
from .oldest_numbers import OldestNumbers
from .sync_target import END, Placed, SyncTarget
from .window_copy import WindowCopy

if TYPE_CHECKING:
    from ...actors.contracts.info_items import InfoItems
    from ...actors.queue.mirroring import Replica
    from ...gm_ring.frames import Instruction
    from ...gm_ring.ring import RingMember
    from ...runtime.contract import ProcessMessage
    from ..backing.mirrored_queue import MirroredQueue

log = logging.getLogger("warren.mirror")

#: Seconds after which a learner requests a chunk again: the other replica may not run yet, or lag behind in the stream.
RETRY_SECONDS = 0.25

#: Seconds between two checks whether the stream has reached the position of a chunk. It has, unless a part of it was
#: lost and is sent again.
STREAM_SECONDS = 0.025

#: Bytes of chunks that a learner takes before it waits until its disk has them.
UNSYNCED_BYTES = 4 << 20

#: Seconds after which a learner that has all messages asks the master again, since the master may have changed.
FOLLOWS_SECONDS = 1.0

#: Seconds between two checks of the policy by a waiting learner.
WAITING_SECONDS = 1.0


class Learner:
    """See the module. `follow` carries out instructions of the stream, given with their positions."""

    def __init__(
        self, replica: Replica, ring: RingMember, mirrored: MirroredQueue, follow: Callable[[Placed], None]
    ) -> None:
        self._replica = replica
        self._ring = ring
        self._mirrored = mirrored
        self._follow = follow
        self._target = SyncTarget()
        #: The replica has joined the ring, or has ended.
        self._is_over = False
        comparison = Comparison(replica.backing, replica.loader)
        #: By level, where the numbering of an earlier life of this replica stands.
        self._earlier = comparison.ends
        #: Compares what the disk has of the earlier life; None if there is nothing, or if that is done.
        self._comparison = comparison if comparison.ends else None
        deduplication = replica.state.deduplication
        if deduplication is not None:
            replica.remembering.dispose(deduplication.forget())
        #: Copies what the queue remembers for deduplication. None as long as some node may be too old to have such
        #: queues.
        self._window_copy: WindowCopy | None = None
        if (MIRRORED_DEDUPLICATION,) in replica.context.definitions.features:
            self._window_copy = WindowCopy(deduplication)
        #: The part or chunk that was requested when the one before it came: its cursor, and the awaitable answer.
        self._requested: tuple[Member, int, Awaitable[Any]] | None = None
        #: Bytes of the chunks that were taken since the disk had all of them.
        self._unsynced = 0
        self.progress = CopyProgress()
        self._attempts = Attempts()
        self.gate = CopyGate(replica)
        self._approach = Approach()
        #: An operator has asked for the copy.
        self._is_asked = False
        #: The mode that the policy had when an operator stopped the copy. Another mode ends the stop.
        self._stopped_in: str | None = None
        self._oldest = OldestNumbers()

    def has_given(self, number: int) -> bool:
        """Whether an earlier life of this replica had this number, or one behind it."""
        return (number & NUMBER_MASK) < self._earlier.get(number >> LEVEL_SHIFT, 0)

    @property
    def stage(self) -> str:
        if self._target.is_done:
            return "following"
        if self._target.is_paused:
            return "waiting"
        return "copying" if self._comparison is None else "comparing"

    @property
    def messages(self) -> int:
        """How many messages of the queue it has, as far as it has compared those of an earlier life."""
        return self._mirrored.totals().depth if self._comparison is None else self._comparison.kept

    def status(self) -> InfoItems:
        """Its stage, whether an operator has stopped the copy and has not asked for it since, and its progress."""
        found = {"stage": self.stage, "is_stopped": self._stopped_in is not None, "alarms": list(self.gate.alarms)}
        return found | self.progress.items()

    def end(self) -> None:
        """End the loop: the replica is no longer a learner."""
        self._is_over = True
        self._mirrored.copies(False)
        self.gate.give_back()
        if self._window_copy is not None:
            self._window_copy.end()

    def window_changed(self) -> None:
        """Note that the stream has begun, resized or ended the window of the queue: a copy under way begins again."""
        if self._window_copy is not None and not self._window_copy.is_done:
            self._window_copy.end()
            self._window_copy = WindowCopy(self._replica.state.deduplication)

    def begin(self, position: int) -> None:
        """Begin to copy; the stream begins behind this position."""
        self._target.begin(position)
        self._mirrored.copies(True)
        self._replica.spawn(self._run())
        self._replica.spawn(CopyReports(self._replica, self).run())

    def came(self, first: int, taken: list[Instruction]) -> None:
        """Take instructions of the stream, with positions from `first` on."""
        self._note_unseen(taken)
        self._follow(self._target.came(first, taken))

    def _note_unseen(self, taken: list[Instruction]) -> None:
        """Note who has published what comes in the stream, and which numbers are given.

        The chunks that bring these messages do not name their publishers, and once the learner is the master, channels
        ask it. If it is the master before it has these messages, it must not give their numbers to others.
        """
        for instruction in taken:
            run = instructions.run_in(instruction)
            if run is not None:
                self._mirrored.publishers.took(instructions.publishers(run))
                first = instructions.first_number(run)
                self._mirrored.reserve(first + 1)
                self._approach.published(first)

    def synchronise(self, is_wanted: bool) -> bool:
        """Start the copy for an operator, or stop it. Returns whether that changed anything."""
        target = self._target
        is_copying = not target.is_done and (not target.is_paused or self.gate.is_queued)
        self._is_asked = is_wanted
        if is_wanted:
            self._stopped_in = None
            if not self.gate.is_queued:
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
    def is_on(self) -> bool:
        return not self._is_over and self._ring.has_part

    def _pause(self) -> None:
        self._follow(self._target.pause())
        self.gate.give_back()
        self._attempts.pause()
        self._oldest.begin()

    # -- the stages

    async def _run(self) -> None:
        replica, target = self._replica, self._target
        await self._note_floors()
        if self._comparison is None:
            self._begin_copy()
        while self.is_on:
            source = self._ring.left
            if target.is_done and (self._window_copy is None or self._window_copy.is_done):
                self._ask_to_be_admitted()
                await replica.sleep(FOLLOWS_SECONDS)
            elif source is None:
                await replica.sleep(RETRY_SECONDS)
            elif self._window_copy is not None and target.is_done:
                await self._get_window(self._window_copy, Member(*source))
            elif target.is_paused:
                await self._wait(Member(*source))
            elif self._comparison is not None:
                await self._compare(self._comparison, Member(*source))
                await self._retry()
            elif await self._may_get_chunk():
                await self._get_chunk(Member(*source))
                await self._retry()

    async def _may_get_chunk(self) -> bool:
        """Whether the next chunk may be requested at once. Waits otherwise."""
        if await self.gate.has_alarm():
            self._attempts.pause()
            return False
        if self.gate.may_start():
            return True
        # Nothing is kept of the stream until another learner of the node has its copy.
        self._attempts.pause()
        self._follow(self._target.pause())
        if await self.gate.wait():
            self._approach.begin()
            self._target.resume()
        return False

    async def _retry(self) -> None:
        """If no part has come for a while, ask for it again, and let other learners of the node copy first."""
        replica, attempts = self._replica, self._attempts
        seconds = replica.context.settings.mirror_sync_timeout
        if self.is_on and attempts.has_failed(replica.now(), seconds):
            self._requested = None
            self.gate.give_back()
            level = logging.WARNING if attempts.pause_seconds else logging.INFO
            text = "%s: this replica has got nothing for %g s, and asks again (attempt %d)"
            log.log(level, text, self._phrase, seconds, attempts.count + 1)
            await replica.sleep(attempts.pause_seconds)

    async def _note_floors(self) -> None:
        """Ask which numbers the masters may have given until now. This replica gets only what the stream has from now
        on. If it became the master without knowing the earlier numbers, it would give some of them a second time.
        """
        replica = self._replica
        while self.is_on:
            source = self._ring.left
            if source is not None:
                try:
                    self._mirrored.note_floors(*await self._ask(Member(*source), to_queue.sync_floors()))
                    return
                except UnknownMessage:  # the other node has an older version
                    return
                except (AmqpError, ProcessDown, ProcessTimeout):
                    pass
            await replica.sleep(RETRY_SECONDS)

    def _begin_copy(self) -> None:
        if self._mode == "manual" and not self._is_asked:
            self._pause()
            log.info("%s: this replica waits until an operator synchronises it (ha-sync-mode: manual)", self._phrase)
        else:
            self._approach.begin()
            log.info("%s: this replica gets the messages of the queue", self._phrase)

    async def _compare(self, comparison: Comparison, source: Member) -> None:
        """Compare the next part of what this replica has; begin to copy the rest behind the last part."""
        replica, target = self._replica, self._target
        first = target.cursor
        if comparison.limit(first) is None:
            self._end_comparison(comparison)
            return
        try:
            position, cursor, following, spans, digest = await self._request(source, first)
            if target.is_too_early(position):
                # Another replica has sent this. Of its messages, some may have left here already.
                await replica.sleep(RETRY_SECONDS)
                return
            if comparison.limit(cursor) is not None:
                # The source reads the next part while this replica reads its own messages of this one.
                self._requested = source, cursor, self._request(source, cursor)
            wanted = [range(low, high + 1) for low, high in spans]
            surplus = await comparison.surplus(first, cursor, following, wanted, digest)
        except (AmqpError, ProcessDown, ProcessTimeout):
            await replica.sleep(RETRY_SECONDS)
            return
        except (Unfit, UnknownMessage) as error:
            self.begin_anew(str(error))
            return
        if await self._may_take(position):
            before, after = target.chunk(position, cursor)
            self._attempts.came()
            self.progress.compared = comparison.kept + comparison.removed
            self._follow(before)
            self._mirrored.remove(surplus)
            self._follow(after)
            if target.is_done:
                self._end_comparison(comparison)
            # Messages to remove may stand behind others that must first be read from the disk, which goes on at the end
            # of each turn (`MirroredQueue.remove_more`).
            await replica.synced()

    def _end_comparison(self, comparison: Comparison) -> None:
        self._comparison = None
        log.info(
            "%s: this replica has kept %d messages that it had before, and removed %d",
            self._phrase,
            comparison.kept,
            comparison.removed,
        )
        if self._target.is_done:
            self._end_copy()
        else:
            self._begin_copy()

    def begin_anew(self, why: str) -> None:
        """End this replica, so that the next one on this node begins without messages."""
        replica, row = self._replica, self._replica.row
        assert replica.member is not None
        log.info("%s: the replica on this node copies the whole queue: %s", self._phrase, why)
        self._is_over = True
        unfit = to_metadata.replica_unfit(row.vhost, row.name, row.queue_id, replica.member.generation)
        replica.send(replica.context.metadata, unfit)
        # End at once: this replica must not report to the ring that it has stored anything more.
        replica.stop(ExitReason(ExitKind.EXIT, why))

    async def _may_take(self, position: int) -> bool:
        """Whether a part with the messages of this position may be taken, once the stream has come as far."""
        replica, target = self._replica, self._target
        while self.is_on and target.is_ahead(position):
            await replica.sleep(STREAM_SECONDS)
        if not self.is_on or target.is_paused:
            return False
        if target.is_too_early(position):
            await replica.sleep(RETRY_SECONDS)
            return False
        return True

    async def _wait(self, source: Member) -> None:
        """Resume the copy if there is a reason to; sleep otherwise."""
        mode = self._mode
        if mode != self._stopped_in:
            self._stopped_in = None
        is_due = self._is_asked or (mode == "automatic" and self._stopped_in is None)
        if not is_due and self._stopped_in is None and self._oldest.is_due(self._replica.now()):
            is_due = await self._has_nothing_older(source)
        if is_due and self.is_on:
            log.info("%s: this replica gets the messages of the queue", self._phrase)
            self._approach.begin()
            self._target.resume()
        elif self.is_on:
            await self._replica.sleep(WAITING_SECONDS)

    async def _has_nothing_older(self, source: Member) -> bool:
        """Whether every message in the queue was published after this replica began to wait."""
        try:
            levels = await self._ask(source, to_queue.sync_numbers())
        except (AmqpError, ProcessDown, ProcessTimeout):
            return False
        return self._oldest.are_young(levels)

    async def _report_lag(self) -> None:
        """Tell the master that this replica copies without coming nearer."""
        replica, group = self._replica, self._replica.row.group
        assert group is not None and replica.member is not None
        log.info("%s: clients publish faster than this replica copies; the master slows them down", self._phrase)
        address = replica.context.peers.replica(replica.row.queue_id, group.master)
        # A master of an older version answers UnknownMessage: it cannot slow the clients down.
        with suppress(AmqpError, ProcessDown, UnknownMessage):
            await replica.ask(address, to_queue.copy_lags(replica.member.generation))

    async def _get_chunk(self, source: Member) -> None:
        replica, target = self._replica, self._target
        try:
            position, cursor, runs = await self._request(source, target.cursor)
        except (AmqpError, ProcessDown, ProcessTimeout):
            await replica.sleep(RETRY_SECONDS)
            return
        if cursor != END and not target.is_paused:
            # Request the next chunk while this one is taken, so that neither the source nor the disk here has to wait
            # for the other one.
            self._requested = source, cursor, self._request(source, cursor)
        if not await self._may_take(position):
            return
        before, after = target.chunk(position, cursor)
        self._attempts.came()
        self._follow(before)
        had = self._mirrored.totals().depth
        self._follow([(position, (instructions.PUBLISH, content)) for content in runs])
        size = sum(map(len, runs))
        self._unsynced += size
        self.progress.took(self._mirrored.totals().depth - had, size)
        if target.is_done:
            self._end_copy()
        self._follow(after)
        if self._unsynced > UNSYNCED_BYTES:
            # Go on when the disk has these, so that a slow disk does not fill the memory.
            await replica.synced()
            self._unsynced = 0
        if not target.is_done:
            if self._approach.lags(cursor, replica.now()):
                replica.spawn(self._report_lag())
            await self.gate.keep_pace(size)

    async def _get_window(self, copy: WindowCopy, source: Member) -> None:
        """Get the next part of what the queue remembers for deduplication.

        The part is taken when the stream has come as far as the source had when it sent the part. It is requested again
        if it may lack digests that the stream brought before this replica began to keep them.
        """
        replica = self._replica
        copy.begin(self._target.reached)
        try:
            position, size, generation, following, persistent, transient = await self._ask(
                source, to_queue.sync_window(copy.at)
            )
        except (AmqpError, ProcessDown, ProcessTimeout):
            await replica.sleep(RETRY_SECONDS)
            return
        if copy.is_too_early(position):
            await replica.sleep(RETRY_SECONDS)
            return
        if not await self._may_take(position) or copy is not self._window_copy:
            return
        if size != copy.size:
            # A policy has changed the size, and this node has noticed that earlier or later than the source.
            replica.remembering.resize(size)
            self.window_changed()
            return
        old = copy.take(generation, following, split_digests(persistent), split_digests(transient))
        self._unsynced += len(persistent)
        if self._unsynced > UNSYNCED_BYTES or copy.is_done:
            # A member of the ring must have the whole window on its disk, so wait for the disk before joining.
            await replica.synced()
            self._unsynced = 0
        if old is not None:
            replica.remembering.dispose(old)

    def _request(self, source: Member, cursor: int) -> Awaitable[Any]:
        """The answer with what is compared or copied from this cursor on, which may have been requested before."""
        requested, self._requested = self._requested, None
        self._attempts.begin(self._replica.now())
        if requested is not None and requested[:2] == (source, cursor):
            return requested[2]
        limit = None if self._comparison is None else self._comparison.limit(cursor)
        message: ProcessMessage[ToQueue, Any] = (
            to_queue.sync_chunk(cursor) if limit is None else to_queue.sync_held(cursor, limit)
        )
        return self._ask(source, message)

    def _ask(self, source: Member, message: ProcessMessage[ToQueue, Any]) -> Awaitable[Any]:
        """Ask the replica that this one copies."""
        replica = self._replica
        address = replica.context.peers.replica(replica.row.queue_id, source)
        answer: Awaitable[Any] = replica.ask(address, message, timeout=replica.context.settings.mirror_sync_timeout)
        return answer

    def _end_copy(self) -> None:
        progress = self.progress
        log.info(
            "%s: this replica has all messages of the queue, and has copied %d of them (%s)",
            self._phrase,
            progress.copied,
            shown_size(progress.copied_bytes),
        )
        self.gate.give_back()
        self._mirrored.copies(False)
        # The queue keeps messages in memory again once its head is there.
        self._replica.state.head_read.prepare()

    def _ask_to_be_admitted(self) -> None:
        replica = self._replica
        group = replica.row.group
        assert group is not None and replica.member is not None
        address = replica.context.peers.replica(replica.row.queue_id, group.master)
        replica.send(address, to_queue.follows(replica.member.generation))

    @property
    def _phrase(self) -> str:
        return queue_phrase(self._replica.row.vhost, self._replica.row.name)
