"""Which commands are proposed again when a snapshot hides what became of them (`Changing.note`).

Nobody else would propose them: the process that has ended, or was started, reports that once. They may be repeated
because each names the queue by its id, and the process or member that it is about. So a command that has taken effect
after all changes nothing the second time.
"""

from __future__ import annotations

from .commands import AddLearner, Command, DeleteQueue, LoseMember, RestartQueue
from .state import State


def should_repeat(state: State, command: Command) -> bool:
    """Whether this command is to be proposed again: by `state` it has not taken effect, and still can."""
    if not isinstance(command, (AddLearner, DeleteQueue, LoseMember, RestartQueue)):
        return False
    row = state.queue(command.vhost, command.name)
    if row is None or row.queue_id != command.queue_id:
        return False
    if isinstance(command, DeleteQueue):
        return True
    if isinstance(command, RestartQueue):
        return row.generation < command.generation
    group = row.group
    if group is None:
        return False
    if isinstance(command, LoseMember):
        return command.member in group.everyone
    return command.node in group.wanted and group.member_on(command.node) is None
