"""The laws of Raft hold whatever Hypothesis has the network and the disks do; it shrinks a failure to few steps."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from .world import ProposalRefused, RaftMembers, World

NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)


class Machine(RuleBasedStateMachine):
    """Four nodes, of which three are voters at first."""

    @initialize(patience=st.permutations(range(4)), is_led=st.booleans())
    def begin(self, patience, is_led):
        self.world = World(
            RaftMembers(NAMES[:3]),
            lambda name, low, high: min(low + patience[NAMES.index(name)], high),
            strangers=("d",),
        )
        self.count = 0
        if is_led:
            self.world.heal(30)

    def runs(self, name) -> bool:
        return self.world.nodes[name].raft is not None

    @rule(ticks=st.integers(1, 45))
    def time_passes(self, ticks):
        for _ in range(ticks):
            self.world.tick_all()

    @rule(name=names, ticks=st.integers(1, 45))
    def time_passes_for_one(self, name, ticks):
        for _ in range(ticks if self.runs(name) else 0):
            self.world.tick(name)

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "arrives", "lost", "twice"]))
    def a_message(self, data, fate):
        at = data.draw(st.integers(0, len(self.world.in_flight) - 1))
        message = self.world.in_flight.pop(at)
        if fate == "lost":
            self.world.lose(message)
            return
        if fate == "twice":
            self.world.in_flight.append(message)
        self.world.deliver(message)

    @precondition(lambda self: self.world.in_flight)
    @rule(count=st.integers(1, 12))
    def messages_arrive_in_order(self, count):
        for _ in range(min(count, len(self.world.in_flight))):
            self.world.deliver(self.world.in_flight.pop(0))

    @rule(name=names)
    def a_write_ends(self, name):
        self.world.finish_write(name)

    @rule()
    def everything_arrives(self):
        self.world.run()

    @rule(name=names, is_written=st.booleans())
    def a_node_crashes(self, name, is_written):
        if self.runs(name):
            self.world.crash(name, is_written)

    @rule(name=names)
    def a_node_starts(self, name):
        if not self.runs(name):
            self.world.start(name)

    @rule(one=names, other=names)
    def a_direction_is_cut(self, one, other):
        self.world.cut.add((one, other))

    @rule()
    def all_connections_are_there(self):
        self.world.cut.clear()

    @rule(name=names)
    def a_client_proposes(self, name):
        self.count += 1
        self.asked(name, lambda: self.world.propose(name, b"c%d" % self.count))

    @rule(
        name=names,
        other=names,
        change=st.sampled_from([RaftMembers.with_learner, RaftMembers.with_voter, RaftMembers.without]),
    )
    def members_change(self, name, other, change):
        self.asked(name, lambda: self.world.change(name, lambda members: change(members, other)))

    @rule(name=names)
    def a_leader_hands_over(self, name):
        self.asked(name, lambda: self.world.transfer(name))

    @rule(name=names)
    def a_barrier_is_asked(self, name):
        if self.runs(name):
            self.count += 1
            self.world.barrier(name, self.count)

    @rule(name=names)
    def a_log_is_compacted(self, name):
        if self.runs(name):
            self.world.compact(name)

    def asked(self, name, act):
        if self.runs(name):
            try:
                act()
            except ProposalRefused:
                pass

    def teardown(self):
        """After the steps everything is repaired. The laws hold meanwhile, and at the end the nodes agree."""
        if hasattr(self, "world"):
            self.world.heal(60)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
