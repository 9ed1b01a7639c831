"""`Elsewhere`: the names of this node's queues for other nodes, and from when they are known (CL-10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.context.peers import Peers
from warren.actors.context.sessions import Sessions
from warren.actors.metadata.elsewhere import Elsewhere
from warren.actors.metadata.state.state import State
from warren.routing.changes import QueuePut, QueueRemoved
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable

ROW = QueueRow("/", "q", None, "1", node="warren@a")


class Busy:
    """Stands for Metadata. `next_turn` returns at once, and the clock stands still."""

    def __init__(self):
        self.timers = []
        self.releases = 0

    async def next_turn(self):
        pass

    def now(self):
        return 0.0

    def start_timer(self, seconds, payload):
        self.timers.append(payload)
        return len(self.timers) - 1

    def cancel_timer(self, number):
        self.timers[number] = None

    def release_held(self):
        self.releases += 1

    def send(self, address, message):
        assert message[:2] == ("node_met", "warren@b")


@pytest.fixture
def routing():
    routing = RoutingTable()
    routing.add_vhost("/")
    return routing


@pytest.fixture
def elsewhere(routing):
    return Elsewhere(Busy(), "warren@a", routing, State(), Peers(), None, Sessions(), None, 1.0)


def meet(elsewhere, system="warren@b-1"):
    with pytest.raises(StopIteration):
        elsewhere.node_met("warren@b", system).send(None)


def test_a_node_that_met_nobody_keeps_no_names(elsewhere, routing):
    routing.put_queue(ROW.at("process 1"))
    elsewhere.own_started(ROW.at("process 1"))
    assert elsewhere.find("1/0") is None
    meet(elsewhere)
    assert elsewhere.find("1/0") == "process 1"
    assert elsewhere.find("1/1") is elsewhere.find("2/0") is None


def test_a_recovery_has_one_limit_which_ends_with_it(elsewhere):
    """During a recovery, messages of other nodes are held for one time limit, and no timer is left after it."""
    busy = elsewhere._process
    elsewhere.recovers()
    elsewhere.recovers()
    assert [timer is None for timer in busy.timers] == [True, False]
    assert elsewhere.is_expected("any name") and not busy.releases
    elsewhere.recovered()
    assert busy.timers == [None, None]
    assert not elsewhere.is_expected("any name") and busy.releases == 1


def test_the_next_process_is_found_before_it_is_shown(elsewhere, routing):
    """A queue's next process is found before the routing table shows it, because another node may send to it as soon as
    it has applied the command.
    """
    routing.put_queue(ROW.at("process 1"))
    meet(elsewhere)
    elsewhere.own_starts(ROW, 1, "process 2")
    again = replace(ROW, generation=1)
    routing.publish([QueuePut(again)])
    elsewhere.show([QueuePut(again)])
    assert elsewhere.find("1/1") == "process 2"
    assert elsewhere.find("1/0") is None, "what is sent to an earlier process reaches nobody"
    routing.put_queue(again.at("process 2"))
    elsewhere.own_started(again.at("process 2"))
    assert elsewhere.find("1/1") == "process 2"
    elsewhere.show([QueueRemoved(again)])
    assert elsewhere.find("1/1") is None


def test_queues_of_others_have_addresses_in_their_present_run(elsewhere, routing):
    theirs = replace(ROW, name="r", queue_id="2", node="warren@b")
    elsewhere.show([QueuePut(theirs)])
    before = routing.queue("/", "r").address
    meet(elsewhere)
    first = routing.queue("/", "r").address
    assert first.addressDetails == "warren@b-1/q/2/0" and before != first
    meet(elsewhere, "warren@b-2")
    assert routing.queue("/", "r").address.addressDetails == "warren@b-2/q/2/0"
