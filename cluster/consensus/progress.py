"""`Progress`: how far one member's log agrees with the leader's, and how the leader sends entries to it.

probing       The leader does not know where the logs part. It sends one append, then waits for the answer to it or
              to a heartbeat. It replicates when an append was accepted.
replicating   The logs agree. The leader sends one append after the other, up to `MOST_APPENDS` or `MOST_BYTES` that
              are unanswered. It probes when one was rejected, or when the connection broke.
snapshot      The member needs entries that the log no longer has, and receives the state. The leader probes when
              the member answers for that state, or for entries behind which the log can go on, or when the
              connection broke. If the log no longer has what follows the state, the member receives another one.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

#: Appends to one member that may be unanswered.
MOST_APPENDS = 64
#: Bytes of entries in these.
MOST_BYTES = 4 << 20
#: A learner that lacks this many entries at most has caught up.
LEVEL_ENTRIES = 1000


class Sending(Enum):
    """See the module."""

    PROBING = "probing"
    REPLICATING = "replicating"
    SNAPSHOT = "snapshot"


class Progress:
    """See the module.

    match      the member has the leader's log on its disk up to here
    next       the next entry to send
    contact    the tick of the latest heartbeat that the member has answered
    """

    __slots__ = (
        "_bytes",
        "_probed",
        "_unanswered",
        "commit_sent",
        "contact",
        "is_waiting",
        "level_rounds",
        "match",
        "next",
        "snapshot",
        "state",
    )

    def __init__(self, next_index: int) -> None:
        self.match = 0
        self.next = next_index
        self.state = Sending.PROBING
        #: The last entry of the state that was sent to the member; None as long as none was.
        self.snapshot: int | None = None
        #: Whether the leader waits for an answer before it probes again.
        self.is_waiting = False
        #: The tick of the latest append while probing.
        self._probed = -1
        self.contact = -1
        #: The highest commit index that was sent.
        self.commit_sent = 0
        #: How many heartbeats in a row the member answered while it lacked `LEVEL_ENTRIES` at most.
        self.level_rounds = 0
        #: Last index and bytes of each append that is unanswered, oldest first.
        self._unanswered: deque[tuple[int, int]] = deque()
        self._bytes = 0

    @property
    def may_send(self) -> bool:
        """Whether another append may be sent now."""
        if self.state is Sending.REPLICATING:
            return len(self._unanswered) < MOST_APPENDS and self._bytes < MOST_BYTES
        return self.state is Sending.PROBING and not self.is_waiting

    def sent(self, last_index: int, size: int, committed: int, now: int) -> None:
        """Note that an append whose last entry is at `last_index` was sent in the tick `now`."""
        self.commit_sent = max(self.commit_sent, committed)
        if self.state is Sending.REPLICATING:
            if last_index >= self.next:
                self._unanswered.append((last_index, size))
                self._bytes += size
            self.next = last_index + 1
        else:
            self.is_waiting = True
            self._probed = now

    def accepted(self, index: int) -> None:
        """Note that the member has the log up to `index`."""
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        while self._unanswered and self._unanswered[0][0] <= index:
            self._bytes -= self._unanswered.popleft()[1]

    def is_rejection_of(self, previous_index: int) -> bool:
        """Whether the rejection of an append behind this entry is a new one. Answers may arrive late, twice and in any
        order.
        """
        if self.state is Sending.REPLICATING:
            return previous_index > self.match
        return self.state is Sending.PROBING and previous_index == self.next - 1

    def heartbeat_answered(self, asked: int, last_index: int) -> None:
        """Note the member's answer to the heartbeat of the tick `asked`; the leader's log ends at `last_index`."""
        if asked > self._probed:
            # The member answers in order and this heartbeat was sent later than the append, so the append or its answer
            # was lost.
            self.is_waiting = False
        if asked > self.contact:
            self.contact = asked
            self.level_rounds = self.level_rounds + 1 if last_index - self.match <= LEVEL_ENTRIES else 0

    def replicate(self) -> None:
        """Send without waiting for answers from now on, because the logs agree up to `match`."""
        self._enter(Sending.REPLICATING)
        self.next = self.match + 1

    def probe(self, next_index: int | None = None, is_waiting: bool = False) -> None:
        """Find out where the logs part; `is_waiting`: not before the member has answered a heartbeat."""
        self._enter(Sending.PROBING)
        self.next = max(next_index or 0, self.match + 1)
        self.is_waiting = is_waiting

    def send_snapshot(self) -> None:
        self._enter(Sending.SNAPSHOT)

    def _enter(self, state: Sending) -> None:
        self.state = state
        self.snapshot = None
        self.is_waiting = False
        self._unanswered.clear()
        self._bytes = 0
