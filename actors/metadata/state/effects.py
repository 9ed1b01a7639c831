"""Effects: what has to happen outside the state because a command was applied.

Extensions of an embedding program are notified of the changes themselves (`routing/decorators.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....definitions.changes import RecordChange
from ....routing import changes
from ....routing.rows import QueueRow


class StartVhost(NamedTuple):
    """Start the processes of a new virtual host."""

    name: str


class StopVhost(NamedTuple):
    """End the processes and connections of a virtual host that is deleted, and remove its files."""

    name: str


class StartQueue(NamedTuple):
    """Start the process of a new queue."""

    row: QueueRow


class EndQueue(NamedTuple):
    """End the process of a queue that is deleted, if it has one, and remove its files."""

    vhost: str
    queue_id: str


#: A change of a row of the routing table, or of a record of the definitions.
Change = changes.Change | RecordChange

Effect = StartVhost | StopVhost | StartQueue | EndQueue


class Applied(NamedTuple):
    """What a command did: the changes of rows and records in order, and what has to happen because of them."""

    changes: Sequence[Change]
    effects: list[Effect]
