"""The messages of `Pacer`, the process that holds the clocks of pace groups."""

from __future__ import annotations

from ...runtime.contract import Contract, message

#: The name of a clock: virtual host and pace group.
ClockName = tuple[str, str]

#: What happens to messages that would have to wait too long in a paced queue, which are the values of `pace-overflow`.
PACE_OUTCOMES = ("hold", "dead-letter", "nack", "drop")


class ToPacer(Contract):
    """What `Pacer` receives. Times are in ns from the moment at which the message is received, because the clocks of
    two machines have nothing to do with each other.

    A clock is named by the virtual host and the pace group, which has the group of consumers behind it if each of these
    has a clock.
    """

    @message
    def lease(self, vhost: str, group: str, pace: tuple[int, int, int], wanted: int, owed: int) -> None:
        """From queues on any node: send `leased` when slots of this clock are free. One request of a queue replaces the
        one before. `pace` is the rate of the queue (`Pace`), and `owed` how many slots it has used without a lease.
        """

    @message
    def give_back(self, vhost: str, group: str, first: int, last: int, count: int, owed: int) -> None:
        """From queues on any node: these slots of a lease were not used."""


to_pacer = ToPacer()
