"""What each queue of a virtual host is to be recovered from, and which queues have nothing to recover.

A queue without a message has nothing on the disk but its numbering: where the numbers of its messages continue. Its
process is needed only when somebody publishes to it, consumes from it or asks it something, so the supervisor
creates it as a dormant process (`runtime/system/dormant.py`) and the start of a hundred thousand such queues costs next
to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...definitions.definitions import Definitions
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...store.data_dir.data_dir import queue_number
from ...store.data_dir.vhost_dir import LEVEL_BITS
from ...store.messages.lives import Numbering
from ...store.queue.variable.queue_recovery import empty_terms, numbering_of
from ..contracts.disk import FoundJournal
from ..contracts.queue import QueueRecovery
from ..queue.policed_settings import deduplicates, policed_settings

if TYPE_CHECKING:
    from ..contracts.queue import Terms


def queue_recoveries(
    rows: Iterable[QueueRow],
    terms: dict[int, Terms],
    levels: Iterable[int],
    journal: FoundJournal,
    definitions: Definitions,
    routing: RoutingTable,
) -> Iterator[tuple[QueueRow, QueueRecovery]]:
    """The recovery of each queue; one with `numberings` has no message.

    terms     of the queues, if all stopped cleanly; otherwise none
    levels    the priority levels that have a directory
    """
    on_disk: dict[int, set[int]] = {}
    for level in levels:
        on_disk.setdefault(level >> LEVEL_BITS, set()).add(level)
    for row in rows:
        queue = queue_number(row.queue_id)
        of_queue = terms.get(queue)
        is_occupied = queue in journal.occupied or of_queue is None and queue in on_disk
        # its process has to look for messages or remembered publishes, so it is not dormant
        if is_occupied or deduplicates(row, definitions, routing):
            numberings = None
        elif of_queue is not None:
            numberings = _numberings_of(of_queue)
        else:
            numberings = journal.numberings.get(queue, _NEVER_USED)
        yield row, QueueRecovery(of_queue, False, frozenset(on_disk.get(queue, ())), numberings)


def may_be_dormant(row: QueueRow, definitions: Definitions, routing: RoutingTable) -> bool:
    """Whether the queue may stay without a process while nobody needs it.

    A queue that expires needs its timer, and a mirrored one has other replicas that need it.
    """
    if row.group is not None:
        return False
    if not row.arguments and definitions.policies_of(row.vhost) is None:
        return True
    return policed_settings(row, definitions, routing).expires is None


def terms_of_dormant(row: QueueRow, numberings: dict[int, Numbering]) -> Terms:
    """The terms of a queue that was not needed since the start: it has nothing but these numberings."""
    levels = {priority: empty_terms(numbering) for priority, numbering in numberings.items()}
    if levels.keys() - {0} or row.arguments.get("x-max-priority") is not None:
        return {"levels": levels}
    return levels.get(0) or empty_terms(Numbering())


def _numberings_of(terms: Terms) -> dict[int, Numbering] | None:
    """The numberings of a queue that has neither message nor segment according to its terms; None for any other."""
    levels = terms.get("levels")
    numberings = {}
    for priority, of_level in {0: terms}.items() if levels is None else levels.items():
        numbering = numbering_of(of_level)
        if numbering is None:
            return None
        numberings[int(priority)] = numbering
    return numberings


#: The numberings of a queue that never had a message, shared by all such queues. Nobody changes it.
_NEVER_USED: dict[int, Numbering] = {}
