"""Bugs of consensus that the search must find. Each replaces one decision of the core by a wrong one (`warren.seams`).
Each docstring says what the bug does.
"""

from __future__ import annotations

from typing import Any

from warren.cluster.consensus.messages import AppendAnswer, Vote, VoteAnswer
from warren.tests.planting import Bugs

MUTANTS = Bugs()
bug = MUTANTS.bug


@bug("consensus: what waits for the disk")
def vote_before_it_is_on_disk(promise: Any, self: Any, message: Any) -> None:
    """A voter answers at once; after a crash it votes again in the same term."""
    if isinstance(message, VoteAnswer):
        self._messages.append(message)
    else:
        promise(self, message)


@bug("consensus: what waits for the disk")
def append_answered_before_it_is_on_disk(promise: Any, self: Any, message: Any) -> None:
    """A member answers that it has entries which are not on its disk, so a crash takes them from it."""
    if isinstance(message, AppendAnswer):
        self._messages.append(message)
    else:
        promise(self, message)


@bug("consensus: which entries are committed")
def earlier_term_committed_by_counting(may_commit: Any, self: Any) -> int:
    """A leader counts an entry of an earlier term as committed when a majority has it, although a later leader may lack
    it.
    """
    return int(max(self._log.committed, self._log.members.reached_by_majority(self._match)))


@bug("consensus: when the members may change")
def change_while_one_is_uncommitted(change_refusal: Any, self: Any, members: Any) -> Any:
    """A leader accepts a second change of the members before the first is committed, so two majorities may share no
    node.
    """
    return self._log.members.why_not(members)


@bug("consensus: whether a log continues another one")
def term_of_previous_entry_not_compared(has: Any, self: Any, index: int, term: int) -> bool:
    """A member appends entries although its entry before them is that of another leader."""
    return self.term_at(index) is not None


@bug("consensus: which log is more complete")
def longer_log_wins(is_behind: Any, self: Any, index: int, term: int) -> bool:
    """A voter prefers the longer log, although a short one with a later last term has more of what is committed."""
    return index >= self.last_index


@bug("consensus: which log is more complete")
def any_log_wins(is_behind: Any, self: Any, index: int, term: int) -> bool:
    """A voter votes for any candidate, without comparing the logs."""
    return True


@bug("consensus: which entries a leader's entries replace")
def late_append_cuts_the_log(merge: Any, self: Any, entries: Any) -> None:
    """An append that arrives late removes entries behind it, although the member has answered for them."""
    if entries and self.committed < entries[0].index <= self.last_index:
        self._truncate(entries[0].index)
    merge(self, entries)


@bug("consensus: who gets a vote")
def votes_twice(may_vote: Any, self: Any, message: Vote) -> bool:
    """A voter gives a second vote in a term."""
    return bool(self.log.is_behind(message.last_index, message.last_term))


@bug("consensus: whether a node has a leader")
def elects_another_while_the_leader_lives(hears_leader: Any, self: Any) -> bool:
    """A voter takes part in an election although it has just answered its leader."""
    return False


@bug("consensus: whether a node has a leader")
def forgets_its_leader_in_a_crash(hears_leader: Any, self: Any) -> bool:
    """A voter that starts again elects another leader at once, although it may have answered one just before."""
    return bool(hears_leader(self)) and (self.leading is not None or self.leader_name is not None)


@bug("consensus: when a barrier is passed")
def barrier_by_old_contact(barrier_contact: Any, self: Any) -> int:
    """A leader answers a barrier by contacts from before it was asked, so it may have been replaced meanwhile."""
    return int(self._now + 1)


@bug("consensus: how many are a majority")
def half_is_a_majority(has_majority: Any, self: Any, count: int) -> bool:
    """Half of the voters elect a leader."""
    return count >= len(self.voters) / 2


@bug("consensus: what a majority has reached")
def half_commits(reached_by_majority: Any, self: Any, value: Any) -> int:
    """An entry is committed when half of the voters have it."""
    values = sorted(map(value, self.voters), reverse=True)
    return int(values[(len(values) - 1) // 2])


@bug("consensus: which entries the write commits")
def two_voters_commit_like_one(committed_when_written: Any, self: Any) -> int:
    """A leader of two voters commits an entry when it has written it itself, as a sole voter may."""
    if self.leading is not None and len(self.log.members.voters) == 2:
        return int(self.log.last_index)
    return int(committed_when_written(self))
