"""Bugs of clusters that schedules of three nodes must find. Each docstring says what the bug does."""

from __future__ import annotations

from typing import Any

from warren.cluster.consensus.messages import AppendAnswer
from warren.cluster.membership.majority.pause import PauseAction
from warren.tests.planting import Bugs

from .message_mutants import MUTANTS

CLUSTER_MUTANTS = Bugs()
cluster_bug = CLUSTER_MUTANTS.bug


@cluster_bug("cluster: which changes are in force")
def in_force_when_committed(applied: Any, self: Any, leading: Any) -> int:
    """A change counts as in force when it is committed, although other nodes may not have applied it."""
    return int(self.raft.log.committed)


@cluster_bug("cluster: what becomes of publishes to a queue that has gone")
def lost_publish_confirmed(queue_gone: Any, self: Any, queue_id: str, is_crashed: bool) -> None:
    """A publish to a queue whose node has died is confirmed."""
    queue_gone(self, queue_id, False)


@cluster_bug("cluster: whether a connection waits for a lease")
def served_without_lease(needs_lease: Any, self: Any) -> bool:
    """A node that reaches no majority answers its clients."""
    return False


@cluster_bug("consensus: what waits for the disk")
def append_answered_before_it_is_on_disk(promise: Any, self: Any, message: Any) -> None:
    """A member answers that it has entries which are not on its disk, so a crash takes them from it."""
    if isinstance(message, AppendAnswer):
        self._messages.append(message)
    else:
        promise(self, message)


@cluster_bug("consensus: how many are a majority")
def half_is_a_majority(has_majority: Any, self: Any, count: int) -> bool:
    """One of three voters elects a leader."""
    return count >= (len(self.voters) - 1) / 2


@cluster_bug("consensus: what a majority has reached")
def one_commits(reached_by_majority: Any, self: Any, value: Any) -> int:
    """An entry is committed when one voter has it."""
    return int(max(map(value, self.voters)))


@cluster_bug("consensus: which log is more complete")
def any_log_wins(is_behind: Any, self: Any, index: int, term: int) -> bool:
    """A voter votes for any candidate, without comparing the logs."""
    return True


@cluster_bug("lease: from when it counts")
def lease_from_the_answer(granted: Any, self: Any, asked_at: float, seconds: float) -> None:
    """A lease is counted from the arrival of the answer instead of from the question."""
    granted(self, asked_at + 0.5, seconds)


@cluster_bug("lease: when a node has lost it for certain")
def declared_down_at_once(has_ended: Any, self: Any, node: str, now: float) -> bool:
    """A node is declared down as soon as it has missed a heartbeat."""
    return now - self._granted.get(node, self._began) >= 0.4


@cluster_bug("pause: what a node does without a lease")
def never_begins_anew(step: Any, self: Any, now: float, has_lease: bool, is_declared_down: bool) -> Any:
    """A node that was declared down goes on instead of beginning a new run."""
    action = step(self, now, has_lease, False)
    return None if action is PauseAction.RESTART else action


#: Bugs of single nodes that schedules of clusters find, too.
SHARED = ("confirm_before_sync", "lost_requeue", "redelivered_flag_lost")
CLUSTER_MUTANTS.update((name, MUTANTS[name]) for name in SHARED)
