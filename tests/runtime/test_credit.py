"""Credit bookkeeping: the rows of the specification's test table that concern one actor or a chain of them."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.runtime.credit import DEFAULT_PAIR, SHARE_SECONDS, UNLIMITED, CreditFlow, check_pair


class Grants(list):
    """Records the grants of a flow as (peer, amount)."""

    def __call__(self, peer, amount):
        self.append((peer, amount))


class Clock:
    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now


def flow(pair=(400, 200), **options):
    grants = Grants()
    return CreditFlow(pair, grants, **options), grants


pairs = st.integers(1, 30).flatmap(lambda initial: st.tuples(st.just(initial), st.integers(1, initial)))


class TestSettings:
    """credit_flow_settings (FC-1 to FC-3)."""

    def test_the_default_pair_is_400_200(self):
        """A hop has the credit of RabbitMQ 3.10 by default: 400, and 200 more for each 200 taken."""
        assert DEFAULT_PAIR == (400, 200)
        assert CreditFlow().credit_from("p") == 400 and CreditFlow().credit_to("p") == 200

    @pytest.mark.parametrize("pair", [(600, 300), (200, 50), (1, 1), (0, 0), [4, 2]])
    def test_accepted(self, pair):
        """A pair is accepted if 0 < M <= I, or if it is (0, 0)."""
        assert check_pair(pair, "key") == tuple(pair)

    @pytest.mark.parametrize(
        "pair", [(200, 400), (1, 0), (0, 1), (-1, -1), (4, -2), (4,), (4, 2, 1), "42", None, (4.0, 2), (True, True)]
    )
    def test_refused_naming_the_key(self, pair):
        """Any other pair is refused, with the name of the setting: with M > I, for instance, the sender would wait for
        ever.
        """
        with pytest.raises(ValueError, match="msg_store_credit_disc_bound"):
            check_pair(pair, "msg_store_credit_disc_bound")

    def test_a_pair_is_fixed_while_the_relation_lasts(self):
        """While two actors know each other, their pair cannot change; after one has died it may come back with another
        pair (FC-2).
        """
        credit, _ = flow()
        credit.relate("store", (4000, 800))
        assert credit.credit_from("store") == 4000 and credit.credit_from("other") == 400
        credit.spend("store")
        with pytest.raises(ValueError, match="fixed"):
            credit.relate("store", (1, 1))
        credit.peer_down("store")
        credit.relate("store", (1, 1))
        assert credit.credit_from("store") == 1

    def test_a_hop_that_is_switched_off_never_blocks_nor_grants(self):
        """A hop whose pair is (0, 0) is switched off: it never blocks and never grants."""
        credit, grants = flow((0, 0))
        credit.spend("p", 10_000)
        credit.take("p", 10_000)
        credit.bump("p", 10)
        assert not credit.blocked and not grants and credit.credit_from("p") == UNLIMITED


class TestPairBoundaries:
    """pair_boundaries (FC-4, FC-5)."""

    @given(pairs)
    def test_blocked_exactly_by_the_initial_th_send(self, pair):
        """An actor is blocked by the I-th message that it sends, and not by the one before."""
        credit, _ = flow(pair)
        for _ in range(pair[0] - 1):
            credit.spend("p")
            assert not credit.blocked
        credit.spend("p")
        assert credit.blocked and list(credit.credit_blocked) == ["p"] and credit.credit_from("p") == 0

    @given(pairs, st.integers(1, 200))
    def test_a_grant_follows_every_more_th_taken(self, pair, taken):
        """A grant of M follows each M-th message that is taken."""
        credit, grants = flow(pair)
        for number in range(1, taken + 1):
            credit.take("p")
            assert len(grants) == number // pair[1]
        assert set(grants) <= {("p", pair[1])}

    def test_sending_goes_on_below_zero(self):
        """An actor that goes on sending goes below zero, which still counts as one block."""
        credit, _ = flow((2, 1))
        for _ in range(5):
            credit.spend("p")
        assert credit.credit_from("p") == -3 and credit.blocks() == 1


class TestBumpPartial:
    """bump_partial (FC-7, FC-9)."""

    def test_a_bump_that_leaves_nothing_does_not_unblock(self):
        """A grant unblocks an actor only if its credit rises above 0."""
        credit, _ = flow((4, 2))
        credit.spend("p", 7)
        credit.bump("p", 2)
        assert credit.blocked and credit.credit_from("p") == -1
        credit.bump("p", 1)
        assert credit.blocked and credit.credit_from("p") == 0
        credit.bump("p", 2)
        assert not credit.blocked and credit.credit_from("p") == 2

    def test_two_exhausted_peers_need_both_bumps(self):
        """An actor that two peers block goes on only when both have granted credit."""
        credit, _ = flow((4, 2))
        credit.spend("p", 4)
        credit.spend("q", 4)
        credit.spend("r", 1)
        credit.bump("p", 2)
        assert credit.blocked and list(credit.credit_blocked) == ["q"]
        credit.bump("q", 2)
        assert not credit.blocked

    def test_grants_wait_for_the_last_bump_oldest_first(self):
        """FC-6, FC-8: the grants deferred for one peer are sent as one sum."""
        credit, grants = flow((4, 2))
        credit.spend("down", 4)
        for peer, count in [("b", 2), ("a", 2), ("b", 3), ("c", 1)]:
            credit.take(peer, count)
        assert not grants and credit.deferred("b") == 4
        credit.bump("down", 2)
        assert grants == [("b", 4), ("a", 2)]
        assert credit.deferred("b") == 0


class TestBatches:
    """batch_equals_singles (FC-11)."""

    @given(pairs, st.lists(st.tuples(st.sampled_from(["spend", "take", "bump"]), st.integers(1, 90)), max_size=30))
    def test_any_split_gives_the_same_states(self, pair, steps):
        """A batch and single messages agree in credit, blocks and total grants at the end of each batch."""
        batched, batch_grants = flow(pair)
        single, single_grants = flow(pair)
        for name, count in steps:
            peer = "up" if name == "take" else "down"
            getattr(batched, name)(peer, count)
            for _ in range(count):
                getattr(single, name)(peer, 1)
            assert batched.credit_from("down") == single.credit_from("down")
            assert batched.credit_to("up") == single.credit_to("up")
            assert batched.blocked == single.blocked
            assert batched.deferred("up") == single.deferred("up")
            assert sum(amount for _, amount in batch_grants) == sum(amount for _, amount in single_grants)

    def test_a_batch_costs_its_size(self):
        """A batch of n messages costs n credits, not 1."""
        credit, grants = flow((400, 200))
        credit.spend("p", 399)
        assert credit.credit_from("p") == 1
        credit.take("p", 1000)
        assert grants == [("p", 1000)] and credit.credit_to("p") == 200


class Chain:
    """socket -> reader -> channel -> queue -> store, each a CreditFlow and a mailbox, run by hand."""

    names = ("reader", "channel", "queue", "store")

    def __init__(self, pair):
        self.flows = {}
        self.mail = {name: deque() for name in self.names}
        self.bumps = deque()
        self.stored = []
        self.produced = 0
        for name in self.names:
            self.flows[name] = CreditFlow(pair, lambda peer, amount, name=name: self.bumps.append((name, peer, amount)))

    def read(self):
        """The reader hands over one message, unless it is blocked. True if it did."""
        if self.flows["reader"].blocked:
            return False
        self.flows["reader"].spend("channel")
        self.mail["channel"].append(self.produced)
        self.produced += 1
        return True

    def work(self, name):
        """One stage takes one message and passes it on. True if there was one."""
        if not self.mail[name]:
            return False
        index = self.names.index(name)
        message = self.mail[name].popleft()
        self.flows[name].take(self.names[index - 1])
        if name == "store":
            self.stored.append(message)
        else:
            below = self.names[index + 1]
            self.flows[name].spend(below)
            self.mail[below].append(message)
        return True

    def deliver_bumps(self):
        while self.bumps:
            giver, peer, amount = self.bumps.popleft()
            self.flows[peer].bump(giver, amount)


class TestCascade:
    """cascade (FC-8, FC-14)."""

    def test_the_chain_fills_stops_and_runs_again(self):
        """When the store stops, all stages fill and the reader stops; once the store goes on, messages alone unblock
        all four stages.
        """
        chain = Chain((40, 20))
        while chain.read() or chain.work("channel") or chain.work("queue"):
            chain.deliver_bumps()
        assert all(chain.flows[name].blocked for name in ("reader", "channel", "queue"))
        stuck = chain.produced
        assert stuck <= 3 * 40 and len(chain.mail["store"]) == stuck
        while any(chain.work(name) for name in ("store", "queue", "channel")):
            chain.deliver_bumps()
        assert not any(credit.blocked for credit in chain.flows.values())
        assert chain.read()
        while any(chain.work(name) for name in chain.names[1:]):
            chain.deliver_bumps()
        assert chain.stored == list(range(stuck + 1))

    @pytest.mark.parametrize("frozen, bound", [("channel", 40), ("queue", 80), ("store", 120)])
    def test_a_frozen_stage_holds_at_most_the_credit_above_it(self, frozen, bound):
        """Behind a stage that is frozen, no more messages gather than the credits I of all hops from the socket to it
        (FC-59).
        """
        chain = Chain((40, 20))
        free = [name for name in chain.names[1:] if name != frozen]
        while chain.read() or any(chain.work(name) for name in free):
            chain.deliver_bumps()
            assert len(chain.mail[frozen]) <= bound
        assert chain.flows["reader"].credit_from("channel") == 0


class TestPeerDeath:
    """peer_death (FC-53, FC-55, FC-56)."""

    def test_the_death_of_the_exhausted_peer_unblocks_and_cascades(self):
        """The death of the peer that blocks an actor unblocks it at once, and the actor sends the grants that it had
        deferred.
        """
        credit, grants = flow((4, 2))
        credit.take("up", 1)
        credit.spend("queue", 4)
        credit.take("up", 1)
        assert credit.blocked and not grants
        credit.peer_down("queue")
        assert not credit.blocked and grants == [("up", 2)]

    def test_a_peer_of_the_same_name_starts_afresh(self):
        """A peer that comes back under the same name has full credit in both directions."""
        credit, grants = flow((4, 2))
        credit.spend("p", 3)
        credit.take("p", 1)
        credit.peer_down("p")
        assert credit.credit_from("p") == 4 and credit.credit_to("p") == 2

    def test_late_bumps_are_ignored(self):
        """A grant that comes after the death of its sender is ignored, and makes no entry."""
        credit, _ = flow((4, 2))
        credit.spend("p", 4)
        credit.peer_down("p")
        credit.bump("p", 200)
        credit.bump("never seen", 200)
        assert credit.credit_from("p") == 4 and credit.credit_from("never seen") == 4

    def test_deferred_grants_of_an_ended_peer_are_dropped(self):
        """Grants that were deferred for a peer that died are not sent to a later peer of the same name."""
        credit, grants = flow((4, 2))
        credit.spend("down", 4)
        credit.take("up", 2)
        credit.peer_down("up")
        credit.bump("down", 2)
        assert not grants

    def test_an_unknown_peer_may_die(self):
        """The death of a peer that an actor never knew does nothing."""
        credit, _ = flow()
        credit.peer_down("stranger")


class TestReportedState:
    """flow_hold (FC-10, FC-41, FC-42) and the counters of FC-45."""

    def test_flow_shows_for_the_hold_time_from_the_start_of_the_block(self):
        """Channels and queues show the state `flow` for one second from the start of a block; a further peer that
        blocks does not prolong it.
        """
        clock = Clock()
        credit, _ = flow((2, 1), clock=clock, hold=1.0)
        assert not credit.in_flow()
        credit.spend("p", 2)
        clock.now += 0.4
        credit.spend("q", 2)
        credit.bump("p", 1)
        credit.bump("q", 1)
        assert credit.in_flow() and credit.blocked_at == 100.0
        clock.now = 100.99
        assert credit.in_flow()
        clock.now = 101.0
        assert not credit.in_flow()

    def test_on_connections_from_its_end(self):
        """Connections show the state `flow` during a block and for five seconds after its end."""
        clock = Clock()
        credit, _ = flow((2, 1), clock=clock, hold=5.0, hold_from="end")
        credit.spend("p", 2)
        clock.now += 60
        assert credit.in_flow()
        credit.bump("p", 1)
        clock.now += 4.9
        assert credit.in_flow()
        clock.now += 0.2
        assert not credit.in_flow()
        with pytest.raises(ValueError, match="middle"):
            flow(hold_from="middle")

    def test_blocks_are_counted_by_class(self):
        """Blocks and blocked seconds are counted for each kind of peer; time in which several peers of a kind block
        counts once.
        """
        clock = Clock()
        credit, _ = flow((2, 1), clock=clock)
        credit.relate("q1", kind="queue")
        credit.relate("q2", kind="queue")
        credit.relate("store", kind="store")
        credit.spend("q1", 2)
        clock.now += 1
        credit.spend("q2", 2)
        credit.spend("store", 2)
        clock.now += 1
        credit.bump("q1", 1)
        clock.now += 1
        assert credit.blocked_seconds("queue") == 3 and credit.blocked_seconds("store") == 2
        credit.peer_down("q2")
        clock.now += 1
        assert credit.blocked_seconds("queue") == 3 and credit.blocked_seconds("store") == 3
        assert (credit.blocks("queue"), credit.blocks("store"), credit.blocks("mirror")) == (2, 1, 0)
        assert credit.blocked_seconds("mirror") == 0
        assert credit.blocked_seconds_by_kind() == {"queue": 3, "store": 3}
        assert credit.flow_items()["blocks"] == 3

    def test_the_share_of_the_last_seconds(self):
        """FC-45, FC-67: time in which several peers block counts once, and what is older than the window not at all."""
        clock = Clock(1000.0)
        credit, _ = flow((2, 1), clock=clock)
        assert credit.flow_items() == {"blocks": 0, "blocked_seconds": 0.0, "blocked_share": 0.0}
        assert credit.blockers() == []
        for peer in "ab":
            credit.spend(peer, 2)
        clock.now += 2.5
        share = round(2.5 / (SHARE_SECONDS + 2.5 % 1), 3)
        assert credit.flow_items() == {"blocks": 2, "blocked_seconds": 2.5, "blocked_share": share}
        credit.bump("a", 1)
        assert credit.blockers() == ["a", "b"]
        credit.bump("b", 1)
        clock.now += 2.0
        assert credit.flow_items()["blocked_seconds"] == 2.5
        clock.now += 3.0
        assert credit.flow_items()["blocked_share"] > 0 and credit.blockers() == ["a", "b"]
        clock.now += 2.0
        assert credit.blockers() == []
        assert credit.flow_items() == {"blocks": 2, "blocked_seconds": 2.5, "blocked_share": 0.0}
        credit.spend("a", 1)
        clock.now += 60.0
        assert credit.flow_items()["blocked_share"] == 1.0 and credit.blockers() == ["a"]

    @given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 4.0)), max_size=40))
    def test_the_share_is_that_of_all_blocks(self, stretches):
        """The blocked share of the last seconds is that of the blocks themselves, wherever whole seconds begin
        (compared with the intervals).
        """
        clock, blocks = Clock(500.25), []
        credit, _ = flow((1, 1), clock=clock)
        for is_blocked, seconds in stretches:
            began = clock.now
            if is_blocked:
                credit.spend("p", 1)
            clock.now += seconds
            if is_blocked:
                credit.bump("p", 1)
                blocks.append((began, clock.now))
        begin = int(clock.now) - SHARE_SECONDS
        blocked = sum(max(0.0, until - max(since, begin)) for since, until in blocks)
        assert credit.flow_items()["blocked_share"] == pytest.approx(blocked / (clock.now - begin), abs=0.001)
