"""`CreditFlow`: the bookkeeping of credit, which bounds the mailboxes (FC-1 to FC-12, FC-41, FC-45, FC-53 to FC-56).

An *upstream* actor sends messages and spends credit. Its *downstream* peer takes them and, after every M messages,
grants M back. Most actors are both. An actor is **blocked** while it has spent its credit with at least one peer. A
blocked actor may still send; it only defers the grants that it owes. So the actors upstream of it run out of credit,
one after the other, up to the connection, which alone stops: it reads no more from its socket (FC-13, FC-22). When the
last exhausted peer has granted credit again, the actor sends the deferred grants, which unblocks the actors upstream in
the same way. No timer is involved.

In these tables this actor has the pair (I, M) with its peer p:

    credit_from[p]     messages that this actor may still send to p; begins at I, may become negative
    credit_to[p]       messages from p until this actor owes p the next grant; begins at M
    credit_blocked     peers with credit_from <= 0
    credit_deferred    grants that are kept back, oldest first

    spend(p, n)        n messages are sent to p            p joins credit_blocked if its credit falls to 0
    take(p, n)         n messages of p left the mailbox    after every M a grant, which is deferred while blocked
    bump(p, n)         p has granted n                     p leaves credit_blocked if its credit rises above 0
    peer_down(p)       p has ended                         p leaves all of these

Each actor has a `CreditFlow` of its own. A peer is known by any hashable name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ..seams import seam

#: (initial credit, more credit after) in messages, as in RabbitMQ 3.10.
DEFAULT_PAIR = (400, 200)

#: The pair of a queue with its journal and its message stores: the default of `msg_store_credit_disc_bound`.
STORE_PAIR = (4000, 800)

#: The credit between processes of two nodes, as a multiple of that between processes of one node. A message takes many
#: times as long to the other node and back, and each frame costs as much as dozens of small messages. With this credit
#: a frame has so many messages that a queue on another node takes 100-byte messages as fast as one on this node.
ACROSS_LINKS = 4

#: The credit with a peer that is not credited.
UNLIMITED = 1 << 62

#: Whole seconds before the present one over which the share of blocked time is taken (FC-67).
SHARE_SECONDS = 5

Pair = tuple[int, int]

#: What an actor has agreed on with a peer: the pair, and the kind under which blocks by this peer are counted.
Relation = tuple[Pair, str]

#: The relations of actors that share none.
_NONE_SHARED: Mapping[Hashable, Relation] = {}


def check_pair(pair: object, key: str) -> Pair:
    """Return `pair` if it is two ints with 0 < M <= I, or (0, 0) for no crediting (FC-1).

    Otherwise raises ValueError with the name of the setting, `key`.
    """
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        initial, more = pair
        if type(initial) is not int or type(more) is not int:
            pass
        elif 0 < more <= initial or (initial, more) == (0, 0):
            return pair if isinstance(pair, tuple) else (initial, more)
    raise ValueError(
        f"{key}: {pair!r} is not a pair of integers {{InitialCredit, MoreCreditAfter}}"
        " with 0 < MoreCreditAfter <= InitialCredit, nor {0, 0} for no crediting"
    )


def pair_across_links(pair: Pair) -> Pair:
    """The pair of two processes of different nodes, where processes of one node have `pair`."""
    return (pair[0] * ACROSS_LINKS, pair[1] * ACROSS_LINKS)


def link_peer(node: str) -> str:
    """The name of the link to `node` among the peers of the processes that send over it (CL-15)."""
    return f"link {node}"


class _BlockClock:
    """How often and for how long one kind of peer blocked this actor; the time of overlapping blocks counts once."""

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


class _BlockedTime:
    """For how long an actor was blocked by whichever peer: since its start, and in each of the last seconds.

    A block mostly ends within the second of the clock in which it began, so `add` makes only one entry for it.
    """

    __slots__ = ("_by_second", "total")

    def __init__(self) -> None:
        self.total = 0.0
        #: By whole second of the clock: the blocked time in this second.
        self._by_second: dict[int, float] = {}

    def add(self, since: float, until: float) -> None:
        """Count a block that has ended."""
        self.total += until - since
        by_second, last = self._by_second, int(until)
        if last not in by_second:
            for second in [second for second in by_second if second < last - SHARE_SECONDS]:
                del by_second[second]
        for second in range(max(int(since), last - SHARE_SECONDS), last + 1):
            blocked = min(until, second + 1) - max(since, second)
            by_second[second] = by_second.get(second, 0.0) + blocked

    def share(self, now: float, since: float | None) -> float:
        """The blocked share of the time since `SHARE_SECONDS` full seconds ago. `since` is when the present block
        began; None if there is none.
        """
        begin = int(now) - SHARE_SECONDS
        blocked = sum([seconds for second, seconds in self._by_second.items() if second >= begin])
        if since is not None:
            blocked += now - max(since, begin)
        return min(1.0, blocked / (now - begin))


class _Blocks:
    """What an actor keeps of the blocks that it has had. Most actors are never blocked."""

    __slots__ = ("clocks", "deferred", "last", "time")

    def __init__(self) -> None:
        #: By kind of peer.
        self.clocks: dict[str, _BlockClock] = {}
        self.time = _BlockedTime()
        #: By peer that has ever blocked this actor: when the last block began, or ended if it has.
        self.last: dict[Hashable, float] = {}
        #: Credit whose grant is deferred, by peer, the oldest first.
        self.deferred: dict[Hashable, int] = {}


class CreditFlow:
    """The credit of one actor with all its peers.

    pair         (I, M) for peers to which `relate` gives no other pair
    grant        called as grant(peer, amount), to send a grant
    clock        returns monotonic seconds
    hold         seconds for which `in_flow` stays True (FC-41)
    hold_from    where these begin: 'start' of the last block (channels, queues) or its 'end' (connections, FC-42)
    key          name of the setting that the pair comes from, for the error
    """

    __slots__ = (
        "_blocks",
        "_clock",
        "_credit_from",
        "_credit_to",
        "_grant",
        "_hold",
        "_hold_from_end",
        "pair",
        "_relations",
        "_shared",
        "_unblocked_at",
        "blocked_at",
        "credit_blocked",
        "trace",
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
        self.pair = check_pair(pair, key)
        self._grant = grant
        self._clock = clock
        self._hold = hold
        self._hold_from_end = hold_from == "end"
        self._shared = _NONE_SHARED
        self._relations: dict[Hashable, Relation] = {}
        self._credit_from: dict[Hashable, int] = {}
        self._credit_to: dict[Hashable, int] = {}
        #: None before the first block.
        self._blocks: _Blocks | None = None
        self.credit_blocked: dict[Hashable, None] = {}
        self.blocked_at: float | None = None
        self._unblocked_at: float | None = None
        #: Called as trace(peer, is_blocked) at each block and its end, unless it is None (FC-46).
        self.trace: Callable[[Any, bool], None] | None = None

    # -- peers -------------------------------------------------------------------------------------

    def relate(
        self, peer: Hashable, pair: Pair | None = None, kind: str = "", key: str = "credit_flow_default_credit"
    ) -> None:
        """Give `peer` a pair of its own, and a kind ('channel', 'queue', ...) under which its blocks are counted.

        Raises ValueError after the first message of the relation (FC-2).
        """
        if peer in self._credit_from or peer in self._credit_to:
            raise ValueError(f"the pair of {peer!r} is fixed while the relation lasts")
        self._relations[peer] = (self.pair if pair is None else check_pair(pair, key), kind)

    def share(self, relations: Mapping[Hashable, Relation]) -> None:
        """Have these relations, which other actors have as well, with all peers that `relate` gives none."""
        self._shared = relations

    def peer_down(self, peer: Hashable) -> None:
        """Forget `peer`, which has ended, and its deferred grants. A later peer of the same name begins anew."""
        self._credit_from.pop(peer, None)
        self._credit_to.pop(peer, None)
        if self._blocks is not None:
            self._blocks.deferred.pop(peer, None)
            if peer in self.credit_blocked:
                self._leave(peer)
            self._blocks.last.pop(peer, None)
        self._relations.pop(peer, None)

    # -- sending, taking and granting --------------------------------------------------------------

    def spend(self, peer: Hashable, n: int = 1) -> int:
        """Count `n` credited messages that are sent to `peer`, and return `credit_from`. Never refused (FC-4)."""
        credit = self._credit_from.get(peer)
        if credit is None:
            credit = self._pair_of(peer)[0]
            if not credit:
                return UNLIMITED
        self._credit_from[peer] = left = credit - n
        if left <= 0 < credit:
            self._enter(peer)
        return left

    def take(self, peer: Hashable, n: int = 1) -> None:
        """Count `n` credited messages of `peer` that left the mailbox, before they are handled (FC-5)."""
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
        if self.credit_blocked and self._blocks is not None:
            self._blocks.deferred[peer] = self._blocks.deferred.get(peer, 0) + grants * more
        else:
            self._grant(peer, grants * more)

    @seam("how much credit a grant is")
    def bump(self, peer: Hashable, n: int) -> None:
        """Add the `n` that `peer` granted. Ignored from a peer that has ended or was never sent to (FC-55)."""
        credit = self._credit_from.get(peer)
        if credit is None:
            return
        self._credit_from[peer] = credit + n
        if credit <= 0 < credit + n:
            self._leave(peer)

    def block(self, peer: Hashable) -> None:
        """Count as blocked by `peer`, with which no credit is exchanged, until `unblock`."""
        if peer not in self.credit_blocked:
            self._enter(peer)

    def unblock(self, peer: Hashable) -> None:
        if peer in self.credit_blocked:
            self._leave(peer)

    # -- state -------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether the credit with any peer is exhausted."""
        return bool(self.credit_blocked)

    def credit_from(self, peer: Hashable) -> int:
        """Messages that may still be sent to `peer`, which bounds a batch (FC-29); UNLIMITED if it is not credited."""
        credit = self._credit_from.get(peer)
        if credit is None:
            credit = self._pair_of(peer)[0] or UNLIMITED
        return credit

    def credit_to(self, peer: Hashable) -> int:
        """Messages from `peer` until the next grant."""
        credit = self._credit_to.get(peer)
        return self._pair_of(peer)[1] if credit is None else credit

    def deferred(self, peer: Hashable) -> int:
        """Credit whose grant to `peer` is deferred."""
        return 0 if self._blocks is None else self._blocks.deferred.get(peer, 0)

    def pair_with(self, peer: Hashable) -> Pair:
        """The pair (I, M) with `peer`."""
        return self._pair_of(peer)

    def peers(self) -> set[Hashable]:
        """Every peer that this actor has sent a credited message to, or taken one from."""
        return {*self._credit_from, *self._credit_to}

    def in_flow(self) -> bool:
        """Whether listings show the state `flow`: blocked now or within the hold time (FC-41, FC-42)."""
        if self.credit_blocked:
            return True
        last = self._unblocked_at if self._hold_from_end else self.blocked_at
        return last is not None and self._clock() - last < self._hold

    def blocks(self, kind: str = "") -> int:
        """How often peers of the kind blocked this actor."""
        clock = self._block_clocks().get(kind)
        return clock.blocks if clock is not None else 0

    def blocked_seconds(self, kind: str = "") -> float:
        """For how long at least one peer of the kind has blocked this actor, including the present block."""
        clock = self._block_clocks().get(kind)
        if clock is None:
            return 0.0
        return clock.seconds + (self._clock() - clock.since if clock.blocked else 0.0)

    def blocked_seconds_by_kind(self) -> dict[str, float]:
        """For how long each kind of peer has blocked this actor; kinds that never did are left out."""
        return {kind: round(self.blocked_seconds(kind), 3) for kind in self._block_clocks()}

    def flow_items(self) -> dict[str, Any]:
        """What listings show of the credit beside the state and the names of the peers that block this actor (FC-45).

        `blocked_share` is the share of the last `SHARE_SECONDS` during which any peer blocked this actor.
        """
        blocks = sum(map(self.blocks, self._block_clocks()))
        if self._blocks is None or not blocks:
            return {"blocks": 0, "blocked_seconds": 0.0, "blocked_share": 0.0}
        now, time = self._clock(), self._blocks.time
        since = self.blocked_at if self.credit_blocked else None
        return {
            "blocks": blocks,
            "blocked_seconds": round(time.total + (0.0 if since is None else now - since), 3),
            "blocked_share": round(time.share(now, since), 3),
        }

    def blockers(self) -> list[Hashable]:
        """The peers that have blocked this actor within the last `SHARE_SECONDS` (FC-68)."""
        if self._blocks is None or not self._blocks.last:
            return []
        since = self._clock() - SHARE_SECONDS
        return [peer for peer, at in self._blocks.last.items() if at >= since or peer in self.credit_blocked]

    # -- bookkeeping -------------------------------------------------------------------------------

    def _pair_of(self, peer: Hashable) -> Pair:
        relation = self._relations.get(peer) or self._shared.get(peer)
        return self.pair if relation is None else relation[0]

    def _block_clocks(self) -> Mapping[str, _BlockClock]:
        return {} if self._blocks is None else self._blocks.clocks

    def _clock_of(self, blocks: _Blocks, peer: Hashable) -> _BlockClock:
        relation = self._relations.get(peer) or self._shared.get(peer)
        kind = "" if relation is None else relation[1]
        clock = blocks.clocks.get(kind)
        if clock is None:
            clock = blocks.clocks[kind] = _BlockClock()
        return clock

    def _enter(self, peer: Hashable) -> None:
        now = self._clock()
        if not self.credit_blocked:
            # The first exhausted peer sets it; further peers do not move it and unblocking does not clear it (FC-10).
            self.blocked_at = now
        self.credit_blocked[peer] = None
        blocks = self._blocks
        if blocks is None:
            blocks = self._blocks = _Blocks()
        blocks.last[peer] = now
        self._clock_of(blocks, peer).enter(now)
        if self.trace is not None:
            self.trace(peer, True)

    def _leave(self, peer: Hashable) -> None:
        blocks, now = self._blocks, self._clock()
        assert blocks is not None, "a peer that blocks has entered"
        blocks.last[peer] = now
        del self.credit_blocked[peer]
        self._clock_of(blocks, peer).leave(now)
        if self.trace is not None:
            self.trace(peer, False)
        if self.credit_blocked:
            return
        self._unblocked_at = now
        if self.blocked_at is not None:
            blocks.time.add(self.blocked_at, now)
        deferred = blocks.deferred
        # In tests a grant may run other actors at once and block this one again; then the rest stays deferred.
        while deferred and not self.credit_blocked:
            owed = next(iter(deferred))
            self._grant(owed, deferred.pop(owed))
