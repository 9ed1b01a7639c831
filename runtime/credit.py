"""Credit: the bookkeeping that keeps mailboxes bounded (FC-1 to FC-12, FC-41, FC-45, FC-53 to FC-56).

*Upstream* sends messages and spends credit; *downstream* takes them and, every M messages, grants M back. An actor is
mostly both, and is **blocked** while it has spent its credit with at least one peer. Being blocked stops nobody from
sending; it only makes the actor keep back the grants it owes, so its own upstream runs dry, up to the socket reader,
which alone stops (FC-13, FC-22). When the last exhausted peer has granted again, what was kept back is granted, and so
on up the chain. No timer is involved.

    credit_from[p]   messages I may still send to p; starts at I, may become negative
    credit_to[p]     messages from p until I owe it the next grant; starts at M
    credit_blocked   peers with credit_from <= 0
    credit_deferred  grants kept back, oldest first

    spend(p, n)      n messages go to p                   p joins credit_blocked on passing zero
    take(p, n)       n messages from p left the mailbox   every M: grant now, or deferred while blocked
    bump(p, n)       p granted n                          p leaves credit_blocked on passing zero
    peer_down(p)     p is gone                            p leaves everything

One bookkeeping serves one actor; nothing is shared. Peers are keyed by any hashable name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

DEFAULT_PAIR = (400, 200)
"""{InitialCredit, MoreCreditAfter} in messages, as RabbitMQ 3.10."""

Pair = tuple[int, int]


def check_pair(pair: object, key: str) -> Pair:
    """`pair` as two ints with 0 < M <= I, or (0, 0) for no crediting. ValueError naming the setting `key` (FC-1)."""
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and all(type(number) is int for number in pair):
        initial, more = pair
        if 0 < more <= initial or (initial, more) == (0, 0):
            return (initial, more)
    raise ValueError(
        f"{key}: {pair!r} is not a pair of integers {{InitialCredit, MoreCreditAfter}}"
        " with 0 < MoreCreditAfter <= InitialCredit, nor {0, 0} for no crediting"
    )


class _BlockClock:
    """How often and how long a class of peers blocked this actor; overlapping blocks count once in time."""

    __slots__ = ("blocked", "blocks", "seconds", "since")

    def __init__(self) -> None:
        self.blocks = 0
        self.seconds = 0.0
        self.blocked = 0
        self.since = 0.0

    def enter(self, now: float) -> None:
        self.blocks += 1
        if not self.blocked:
            self.since = now
        self.blocked += 1

    def leave(self, now: float) -> None:
        self.blocked -= 1
        if not self.blocked:
            self.seconds += now - self.since


class CreditFlow:
    """The credit of one actor with all its peers.

    pair      (I, M) for peers that `relate` gave no other
    grant     called as grant(peer, amount) when a grant is to be sent
    clock     monotonic seconds
    hold      seconds that `in_flow` stays true (FC-41)
    hold_from 'start' of the last block (channels, queues) or its 'end' (connections, FC-42)
    key       name of the setting the pair came from, for the error

    `blocked` may be read as an attribute; it is true while `credit_blocked` is not empty.
    """

    __slots__ = (
        "_clock",
        "_clocks",
        "_credit_from",
        "_credit_to",
        "_deferred",
        "_grant",
        "_hold",
        "_hold_from_end",
        "_pair",
        "_relations",
        "_unblocked_at",
        "blocked_at",
        "credit_blocked",
    )

    def __init__(
        self,
        pair: Pair = DEFAULT_PAIR,
        grant: Callable[[Any, int], None] = lambda peer, amount: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        hold: float = 1.0,
        hold_from: str = "start",
        key: str = "credit_flow_default_credit",
    ) -> None:
        if hold_from not in ("start", "end"):
            raise ValueError(f"hold_from is {hold_from!r}, not 'start' or 'end'")
        self._pair = check_pair(pair, key)
        self._grant = grant
        self._clock = clock
        self._hold = hold
        self._hold_from_end = hold_from == "end"
        self._relations: dict[Hashable, tuple[Pair, str]] = {}
        self._credit_from: dict[Hashable, int] = {}
        self._credit_to: dict[Hashable, int] = {}
        self._deferred: dict[Hashable, int] = {}
        self._clocks: dict[str, _BlockClock] = {}
        self.credit_blocked: dict[Hashable, None] = {}
        self.blocked_at: float | None = None
        self._unblocked_at: float | None = None

    # -- peers -------------------------------------------------------------------------------------

    def relate(
        self, peer: Hashable, pair: Pair | None = None, kind: str = "", key: str = "credit_flow_default_credit"
    ) -> None:
        """Give `peer` a pair of its own, and a class ('channel', 'queue', ...) to count its blocks under.

        Only before the first message of the relation (FC-2): ValueError after.
        """
        if peer in self._credit_from or peer in self._credit_to:
            raise ValueError(f"the pair of {peer!r} is fixed while the relation lasts")
        self._relations[peer] = (self._pair if pair is None else check_pair(pair, key), kind)

    def peer_down(self, peer: Hashable) -> None:
        """`peer` has ended: forget it, and what was kept back for it. The same name later starts afresh."""
        self._credit_from.pop(peer, None)
        self._credit_to.pop(peer, None)
        self._deferred.pop(peer, None)
        if peer in self.credit_blocked:
            self._leave(peer)
        self._relations.pop(peer, None)

    # -- the four movements ------------------------------------------------------------------------

    def spend(self, peer: Hashable, n: int = 1) -> None:
        """`n` credited messages are being sent to `peer`. Never refused (FC-4)."""
        credit = self._credit_from.get(peer)
        if credit is None:
            credit = self._pair_of(peer)[0]
            if not credit:
                return
        self._credit_from[peer] = left = credit - n
        if left <= 0 < credit:
            self._enter(peer)

    def take(self, peer: Hashable, n: int = 1) -> None:
        """`n` credited messages from `peer` were taken from the mailbox; call it before working on them (FC-5)."""
        credit = self._credit_to.get(peer)
        if credit is None:
            credit = self._pair_of(peer)[1]
            if not credit:
                return
        left = credit - n
        if left > 0:
            self._credit_to[peer] = left
            return
        more = self._pair_of(peer)[1]
        grants = 1 + -left // more
        self._credit_to[peer] = left + grants * more
        if self.credit_blocked:
            self._deferred[peer] = self._deferred.get(peer, 0) + grants * more
        else:
            self._grant(peer, grants * more)

    def bump(self, peer: Hashable, n: int) -> None:
        """`peer` granted `n`. From a peer we never sent to, or that is gone: ignored (FC-55)."""
        credit = self._credit_from.get(peer)
        if credit is None:
            return
        self._credit_from[peer] = credit + n
        if credit <= 0 < credit + n:
            self._leave(peer)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        return bool(self.credit_blocked)

    def blocked_peers(self) -> list[Hashable]:
        """Peers whose credit is exhausted, longest first."""
        return list(self.credit_blocked)

    def credit_from(self, peer: Hashable) -> int:
        """Messages I may still send to `peer`; a batch is to be cut there (FC-29). Not credited at all: a lot."""
        credit = self._credit_from.get(peer)
        if credit is None:
            credit = self._pair_of(peer)[0] or UNLIMITED
        return credit

    def credit_to(self, peer: Hashable) -> int:
        """Messages from `peer` until the next grant."""
        credit = self._credit_to.get(peer)
        return self._pair_of(peer)[1] if credit is None else credit

    def deferred(self, peer: Hashable) -> int:
        """Credit kept back from `peer` while blocked."""
        return self._deferred.get(peer, 0)

    def in_flow(self) -> bool:
        """Whether listings show the state `flow`: blocked, or blocked within the hold time (FC-41, FC-42)."""
        if self.credit_blocked:
            return True
        last = self._unblocked_at if self._hold_from_end else self.blocked_at
        return last is not None and self._clock() - last < self._hold

    def blocks(self, kind: str = "") -> int:
        """How often peers of that class blocked this actor."""
        clock = self._clocks.get(kind)
        return clock.blocks if clock is not None else 0

    def blocked_seconds(self, kind: str = "") -> float:
        """How long at least one peer of that class has blocked this actor, the present block included."""
        clock = self._clocks.get(kind)
        if clock is None:
            return 0.0
        return clock.seconds + (self._clock() - clock.since if clock.blocked else 0.0)

    # ----------------------------------------------------------------------------------------------

    def _pair_of(self, peer: Hashable) -> Pair:
        relation = self._relations.get(peer)
        return self._pair if relation is None else relation[0]

    def _clock_of(self, peer: Hashable) -> _BlockClock:
        relation = self._relations.get(peer)
        kind = "" if relation is None else relation[1]
        clock = self._clocks.get(kind)
        if clock is None:
            clock = self._clocks[kind] = _BlockClock()
        return clock

    def _enter(self, peer: Hashable) -> None:
        now = self._clock()
        if not self.credit_blocked:
            self.blocked_at = now  # further peers do not move it, unblocking does not clear it (FC-10)
        self.credit_blocked[peer] = None
        self._clock_of(peer).enter(now)

    def _leave(self, peer: Hashable) -> None:
        now = self._clock()
        del self.credit_blocked[peer]
        self._clock_of(peer).leave(now)
        if self.credit_blocked:
            return
        self._unblocked_at = now
        deferred = self._deferred
        # A grant may run other actors on the spot, in tests, and block us again: then the rest stays deferred.
        while deferred and not self.credit_blocked:
            owed = next(iter(deferred))
            self._grant(owed, deferred.pop(owed))


UNLIMITED = 1 << 62
