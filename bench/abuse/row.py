"""`AbuseRow`: one line of the table, something that one client can do to the others."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

#: What the abuser does at the broker on this port. The part up to the first `yield` prepares it, the part up to the
#: second is measured, and the rest cleans up.
Abuse = Callable[[int], Generator[None, None, None]]


class AbuseRow(NamedTuple):
    #: What stands in the table.
    name: str
    abuse: Abuse
    #: Why this row cannot be measured with the given broker; empty if it can.
    left_out: str = ""
    #: Whether the witness publishes. Under a memory alarm a client that publishes is blocked, so it asks instead.
    publishes: bool = True
