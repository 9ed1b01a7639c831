"""The invariant of FC-12 in random graphs of actors with deaths and restarts; no actor stays blocked for ever."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from warren.runtime.credit import CreditFlow

PAIR = (5, 3)

# Two channels feed two queues, which feed one store. A death replaces an actor by one of a new name.
ROLES = {
    "channel0": ("queue0", "queue1"),
    "channel1": ("queue0", "queue1"),
    "queue0": ("store",),
    "queue1": ("store",),
    "store": (),
}


class Web(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.generation = dict.fromkeys(ROLES, 0)
        self.flows = {}
        self.links = {}  # (sender, receiver) -> messages, as names of actors with their generation
        for role in ROLES:
            self.start(role)

    def name(self, role):
        return f"{role}.{self.generation[role]}"

    def start(self, role):
        name = self.name(role)
        self.flows[name] = CreditFlow(PAIR, lambda peer, amount: self.post(name, peer, ("bump", amount)))

    def post(self, sender, receiver, message):
        if receiver in self.flows:
            self.links.setdefault((sender, receiver), deque()).append(message)

    def handle(self, sender, receiver):
        """The receiver takes the oldest message of the link and passes a publish on to all actors below it."""
        message = self.links[sender, receiver].popleft()
        flow = self.flows[receiver]
        if message[0] == "bump":
            flow.bump(sender, message[1])
        elif message[0] == "down":
            flow.peer_down(sender)
        else:
            flow.take(sender, message[1])
            self.pass_on(receiver, message[1])

    def pass_on(self, sender, count):
        for role in ROLES[sender.split(".")[0]]:
            receiver = self.name(role)
            if self.knows(sender, receiver):
                self.flows[sender].spend(receiver, count)
                self.post(sender, receiver, ("publish", count))

    def knows(self, sender, receiver):
        """A sender uses the new generation only after it was notified that the old one had ended."""
        return not any(("down",) in messages for (_, to), messages in self.links.items() if to == sender and messages)

    @rule(number=st.integers(0, 1), count=st.integers(1, 4))
    def publish(self, number, count):
        """Have the reader above the channels publish, as far as the channel's credit allows."""
        channel = self.name(f"channel{number}")
        if not self.flows[channel].blocked:
            self.pass_on(channel, count)

    @rule(which=st.integers(0, 1000))
    def deliver(self, which):
        busy = sorted(link for link, messages in self.links.items() if messages)
        if busy:
            self.handle(*busy[which % len(busy)])

    @rule(role=st.sampled_from(["queue0", "queue1", "store", "channel1"]))
    def die(self, role):
        dead = self.name(role)
        del self.flows[dead]
        for sender, receiver in list(self.links):
            if receiver == dead:
                del self.links[sender, receiver]
        for other in self.flows:
            self.links.setdefault((dead, other), deque()).append(("down",))
        self.generation[role] += 1
        self.start(role)

    @invariant()
    def credit_is_conserved(self):
        """I = credit_from + unread messages + (M - credit_to) + grants in flight or deferred, for every live pair."""
        initial, more = PAIR
        for role, below in ROLES.items():
            for other in below:
                up, down = self.name(role), self.name(other)
                if any(("down",) in self.links.get(link, ()) for link in ((up, down), (down, up))):
                    continue
                unread = sum(m[1] for m in self.links.get((up, down), ()) if m[0] == "publish")
                granted = sum(m[1] for m in self.links.get((down, up), ()) if m[0] == "bump")
                sender, receiver = self.flows[up], self.flows[down]
                held = more - receiver.credit_to(up) + receiver.deferred(up)
                assert sender.credit_from(down) + unread + held + granted == initial

    def teardown(self):
        """When everything is delivered no actor is blocked, because no credit was lost."""
        while any(self.links.values()):
            for link in [link for link, messages in self.links.items() if messages]:
                if self.links.get(link):
                    self.handle(*link)
        assert not any(flow.blocked for flow in self.flows.values())


Web.TestCase.settings = settings(max_examples=75, stateful_step_count=60, deadline=None)
TestWeb = Web.TestCase
