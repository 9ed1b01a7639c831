"""`Stage`: how far the life of one replica of a queue is."""

from __future__ import annotations


class Stage:
    """What a replica may do now. The process changes it, and its parts read it.

        created → open → released → ending → (the process ends)

    A replica that is recovered is open before it is released: the exchanges and queues to which its dead letters may go
    are not there yet.
    """

    __slots__ = ("is_ending", "is_held", "is_open", "is_released")

    def __init__(self) -> None:
        #: True from the end of the recovery to the beginning of the deletion.
        self.is_open = False
        #: Whether the queue is open, and every exchange and queue that may get its dead letters is there.
        self.is_released = False
        #: Whether the queue is being deleted, or ends by itself: then it refuses consumers and gets.
        self.is_ending = False
        #: True after `hold`, when the node stops: then no message leaves a queue with a disk any more.
        self.is_held = False
