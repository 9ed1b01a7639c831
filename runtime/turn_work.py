"""`TurnWork`: how much a process may still do in its present turn.

Nothing interrupts a turn, so what a client asks for is done in turns that each touch a bounded number of messages, and
other processes have turns in between. One message of a client may settle, purge or requeue millions of messages, and
one turn may handle many messages: their work is added up.
"""

from __future__ import annotations

from .coroutines import Slices

#: What a turn may do, as the number of messages that are settled or moved one by one. Each takes up to 10 µs, if it
#: splits a run and makes another one.
TURN_MESSAGES = 500


class TurnWork:
    """What is left of the work of a turn; zero or less once the turn has done enough. `after_batch` sets it back."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = TURN_MESSAGES

    def pause(self) -> Slices[None]:
        """Wait for another turn if this one has done enough. For handlers that work in slices."""
        if self.left <= 0:
            yield
            self.left = TURN_MESSAGES
