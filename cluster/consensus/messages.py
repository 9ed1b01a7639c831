"""What the nodes send each other to agree. Each message is a value with its receiver, its sender and a term.

| message | from, to | answered by |
|---|---|---|
| `PreVote` | a node that misses its leader, to the voters | `PreVoteAnswer` |
| `Vote` | a candidate, to the voters | `VoteAnswer` |
| `Append` | the leader, to each member that lacks entries or does not know that they are committed | `AppendAnswer` |
| `Heartbeat` | the leader, to each member every 250 ms | `HeartbeatAnswer` |
| `Snapshot` | the leader, to a member that needs entries which the log no longer has | `AppendAnswer` |
| `TimeoutNow` | a leader that hands over, to its successor | `Vote`, at once |
| `Barrier` | any member, to the leader | `BarrierAnswer`, when the leader has shown that it still leads |

The term is that of the sender, with one exception: a `PreVote`, and a `PreVoteAnswer` that grants it, have the term
that the sender would have after an election.
"""

from __future__ import annotations

from typing import NamedTuple

from .log import Entry, Mark


class PreVote(NamedTuple):
    """Asks whether the receiver would vote for the sender, whose log ends with this entry."""

    to: str
    sender: str
    term: int
    last_index: int
    last_term: int


class PreVoteAnswer(NamedTuple):
    to: str
    sender: str
    term: int
    is_granted: bool


class Vote(NamedTuple):
    """Asks for a vote. `is_transfer`: the leader has asked for the election, so having a leader is no obstacle."""

    to: str
    sender: str
    term: int
    last_index: int
    last_term: int
    is_transfer: bool


class VoteAnswer(NamedTuple):
    to: str
    sender: str
    term: int
    is_granted: bool


class Append(NamedTuple):
    """These entries follow the previous one, and everything up to `committed` is committed."""

    to: str
    sender: str
    term: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    committed: int


class AppendAnswer(NamedTuple):
    """If accepted: the sender has on its disk what the leader has, up to `index`.

    If not: it lacks the previous entry, which was at `index`. The last entry up to there whose term is not above that
    of the leader's entry is at `last_index`, has `last_term`, and is in a row of entries of this term that begins at
    `first_of_term`. So the leader skips a whole term with each attempt.
    """

    to: str
    sender: str
    term: int
    is_accepted: bool
    index: int  # type: ignore[assignment]  # hides tuple.index
    last_index: int = 0
    last_term: int = 0
    first_of_term: int = 0


class Heartbeat(NamedTuple):
    """`asked` is the leader's tick; the answer returns it."""

    to: str
    sender: str
    term: int
    committed: int
    asked: int


class HeartbeatAnswer(NamedTuple):
    to: str
    sender: str
    term: int
    asked: int


class Snapshot(NamedTuple):
    """The state as of `mark`, in the form `state`, which the core only hands on."""

    to: str
    sender: str
    term: int
    mark: Mark
    state: object


class TimeoutNow(NamedTuple):
    """Asks the receiver, which has the whole log of the leader, to begin an election at once."""

    to: str
    sender: str
    term: int


class Barrier(NamedTuple):
    """Asks up to which index the sender must apply the log to have everything that was committed before now."""

    to: str
    sender: str
    term: int
    serial: int


class BarrierAnswer(NamedTuple):
    to: str
    sender: str
    term: int
    serial: int
    index: int  # type: ignore[assignment]  # hides tuple.index


ConsensusMessage = (
    PreVote
    | PreVoteAnswer
    | Vote
    | VoteAnswer
    | Append
    | AppendAnswer
    | Heartbeat
    | HeartbeatAnswer
    | Snapshot
    | TimeoutNow
    | Barrier
    | BarrierAnswer
)
