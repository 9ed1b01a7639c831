"""`RetainedInstructions`: what a member has received of a stream and another member may still need."""

from __future__ import annotations

from collections import deque
from itertools import islice

from .frames import Instruction


class RetainedInstructions:
    """Instructions with the positions `base + 1` to `last`."""

    __slots__ = ("_instructions", "base", "size")

    def __init__(self, base: int) -> None:
        self.base = base
        #: Bytes of all instructions.
        self.size = 0
        # An empty deque has 760 bytes, which an idle member need not have.
        self._instructions: deque[Instruction] | tuple[()] = ()

    @property
    def last(self) -> int:
        return self.base + len(self._instructions)

    def add(self, instructions: list[Instruction]) -> None:
        if isinstance(self._instructions, tuple):
            self._instructions = deque(instructions)
        else:
            self._instructions += instructions
        self.size += sum([len(body) for _, body in instructions])

    def between(self, position: int, last: int) -> list[Instruction]:
        """The instructions behind `position`, which is not before `base`, up to `last`."""
        if position >= last:
            return []
        # Nearly always the last few are wanted, so count from the end.
        behind = self.last - last
        found = list(islice(reversed(self._instructions), behind, behind + last - position))
        found.reverse()
        return found

    def cut(self, position: int, kept_bytes: int = 0) -> None:
        """Forget everything up to `position`, but for the last instructions, of `kept_bytes` together."""
        instructions = self._instructions
        if isinstance(instructions, tuple):
            return
        for _ in range(min(position - self.base, len(instructions))):
            if self.size <= kept_bytes:
                break
            self.size -= len(instructions.popleft()[1])
            self.base += 1
