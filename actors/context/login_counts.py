"""`LoginCounts`: how many logins a node has accepted and refused since its start (CM-149)."""

from __future__ import annotations

from collections import OrderedDict

#: How many pairs of address and user have counts of their own; of more pairs, those of the latest logins.
SOURCES_KEPT = 1_000
#: Characters of a user name that are kept, because any client may send a long one.
USER_LENGTH = 1_000


class LoginCounts:
    """Connections count their logins here, and operations read them."""

    __slots__ = ("_of_sources", "failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = 0
        #: By address and user: how many succeeded and failed.
        self._of_sources: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def count(self, address: str, user: str, is_accepted: bool) -> None:
        self.succeeded += is_accepted
        self.failed += not is_accepted
        source = address, user[:USER_LENGTH]
        succeeded, failed = self._of_sources.pop(source, (0, 0))
        self._of_sources[source] = succeeded + is_accepted, failed + (not is_accepted)
        if len(self._of_sources) > SOURCES_KEPT:
            self._of_sources.popitem(last=False)

    def rows(self, by_source: bool) -> list[dict[str, object]]:
        """The row of all logins for listings, or one row for each pair of address and user."""
        if not by_source:
            return [_row(self.succeeded, self.failed)]
        return [
            {"remote_address": address, "username": user, **_row(succeeded, failed)}
            for (address, user), (succeeded, failed) in self._of_sources.items()
        ]


def _row(succeeded: int, failed: int) -> dict[str, object]:
    return {
        "protocol": "amqp091",
        "auth_attempts": succeeded + failed,
        "auth_attempts_failed": failed,
        "auth_attempts_succeeded": succeeded,
    }
