"""`CopyReports`: each second a learner reports to its master how far its copy is, and to the log every ten (CL-90).

The master shows the reports in listings (`Copies`), and answers how many messages the queue has, from which the learner
knows how many it lacks. A learner that only waits reports nothing new, so an idle queue sends nothing (CL-73).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ...actors.contracts.queue import to_queue
from ...amqp.errors import AmqpError
from ...routing.phrases import queue_phrase
from ...runtime.errors import ProcessDown, ProcessTimeout, UnknownMessage
from ...settings.limits import shown_size

if TYPE_CHECKING:
    from ...actors.contracts.info_items import InfoItems
    from ...actors.queue.mirroring import Replica
    from ...routing.rows import Member, MirrorGroup
    from .copy_progress import CopyProgress

log = logging.getLogger("warren.mirror")

#: Seconds between two reports to the master, between two lines of the log, and that the master may take to answer.
REPORT_SECONDS = 1.0
LOG_SECONDS = 10.0
ANSWER_SECONDS = 5.0

#: The stages in which a learner gets messages.
WORKING = ("comparing", "copying")


class Copying(Protocol):
    """The learner, as its reports see it."""

    progress: CopyProgress

    @property
    def is_on(self) -> bool:
        """Whether the replica is still a learner."""

    @property
    def stage(self) -> str: ...

    @property
    def messages(self) -> int:
        """How many messages of the queue it has."""

    def status(self) -> InfoItems:
        """What it reports."""


class CopyReports:
    """Belongs to the learner whose process is `replica`."""

    def __init__(self, replica: Replica, learner: Copying) -> None:
        self._replica = replica
        self._learner = learner
        #: What was reported last, and to which master.
        self._reported: tuple[Member, InfoItems] | None = None
        #: How many messages the queue has, as the master has answered; None if it has not.
        self._total: int | None = None
        #: The master has an older version, which takes no reports.
        self._is_refused = False
        self._log_at = replica.now() + LOG_SECONDS

    async def run(self) -> None:
        """Report until the replica is no longer a learner."""
        learner, replica = self._learner, self._replica
        while learner.is_on:
            await self.report()
            if learner.is_on:
                self._log()
                await replica.sleep(REPORT_SECONDS)

    async def report(self) -> None:
        """Report to the master, if there is anything new."""
        learner, replica, group = self._learner, self._replica, self._replica.row.group
        assert group is not None and replica.member is not None
        if learner.stage in WORKING:
            left = None if self._total is None else max(0, self._total - learner.messages)
            learner.progress.sample(replica.now(), left)
        else:
            learner.progress.pause(0 if learner.stage == "following" else None)
        report = group.master, learner.status()
        if report == self._reported or self._is_refused:
            return
        address = replica.context.peers.replica(replica.row.queue_id, group.master)
        message = to_queue.copy_progress(replica.member.generation, report[1])
        try:
            self._total = await replica.ask(address, message, timeout=ANSWER_SECONDS)
            self._reported = report
        except UnknownMessage:
            self._is_refused = True
        except (AmqpError, ProcessDown, ProcessTimeout):
            self._reported = None

    def _log(self) -> None:
        learner, row, now = self._learner, self._replica.row, self._replica.now()
        if learner.stage not in WORKING:
            self._log_at = now + LOG_SECONDS
        elif now >= self._log_at:
            self._log_at = now + LOG_SECONDS
            log.info("%s: this replica is %s", queue_phrase(row.vhost, row.name), described(learner.status()))


def described(status: InfoItems) -> str:
    """How far a copy is, in words."""
    words = [f"{status['stage']}: {status['compared']} messages compared", f"{status['copied']} copied"]
    if status["left"] is not None:
        words.append(f"{status['left']} left")
    words.append(f"{shown_size(status['bytes_per_second'])}/s")
    if status["seconds_left"] is not None:
        words.append(f"about {status['seconds_left']} s")
    if status["alarms"]:
        words.append(f"waiting until the alarm of this node is cleared ({', '.join(status['alarms'])})")
    return ", ".join(words)


class Copies:
    """What the learners of one master have reported."""

    __slots__ = ("_reports",)

    def __init__(self) -> None:
        #: By the generation of the learner. None as long as there is none, as at nearly all masters.
        self._reports: dict[int, InfoItems] | None = None

    def take(self, generation: int, report: InfoItems) -> None:
        """Note what a learner has reported."""
        if self._reports is None:
            self._reports = {}
        self._reports[generation] = report

    def of(self, group: MirrorGroup | None) -> list[InfoItems]:
        """The reports of the learners of this group, with their nodes."""
        reports = self._reports
        if reports is None or group is None:
            return []
        found = [each for each in group.learners if each.generation in reports]
        self._reports = {each.generation: reports[each.generation] for each in found} or None
        return [{"node": each.node, **reports[each.generation]} for each in found]
