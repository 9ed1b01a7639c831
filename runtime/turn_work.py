"""`TurnWork`: how much a process may still do in its present turn.

Nothing interrupts a turn, so what a client asks for is done in turns that each touch a bounded number of messages, and
other processes have turns in between. One message of a client may settle, purge or requeue millions of messages, and
one turn may handle many messages: their work is added up.
"""

from __future__ import annotations

from .coroutines import Slices

#: How many items a process handles in one turn, when a client can make any number of them. One takes 2 to 20 µs, so a
#: turn stays below 5 ms on a busy machine.
STEP = 128

#: The work of the end of a process that is done in one turn, 1 ms. The unit is, for example, a message to another
#: process.
END_OF_TURN = 500


class TurnWork:
    """The work of one process in its turn, as the number of messages that are settled or moved one by one.

    most   what a turn may do; a turn ends behind the step that reaches it
    left   what is left of that: zero or less once the turn has done enough. `after_batch` sets it to `most`
    """

    __slots__ = ("left", "most")

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def pause(self) -> Slices[None]:
        """Wait for another turn if this one has done enough. For handlers that work in slices."""
        if self.left <= 0:
            yield
            self.left = self.most
