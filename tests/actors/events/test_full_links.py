"""`EventHub` while the link to another node is full."""

from __future__ import annotations

from thespian.actors import ActorSystem

from warren.actors.context.events import EVENT_EXCHANGE, Events
from warren.actors.context.starting import to_new_event_hub
from warren.actors.contracts.events import to_event_hub
from warren.actors.contracts.membership import to_link_sender
from warren.actors.events.hub import EventHub
from warren.routing.changes import BindingAdded, ExchangePut
from warren.routing.rows import NO_ARGUMENTS, Binding, ExchangeRow, QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.process import Process
from warren.runtime.sim.world import SimWorld


class Queue(Process):
    """A queue that counts the events that it gets."""

    def __init__(self):
        super().__init__()
        self.taken = 0

    def on_publish_at_most_once(self, sender, entries):
        self.taken += len(entries)


class NoAlarms(Process):
    def on_register(self, sender, address, is_connection=False):
        """Ignored: no alarm is raised."""


def test_events_for_a_node_with_a_full_link_are_dropped():
    """A queue on another node misses events while too much waits to be written to that node, and queues on other nodes
    get them (CL-15). The hub crashed, and its node with it, because it did not expect what the link reports.
    """
    world = SimWorld(1)
    base = world.machine("a").boot()
    system = ActorSystem(systemBase=base, transientUnique=True)
    routing = RoutingTable()
    routing.add_vhost("/")
    routing.publish([ExchangePut(ExchangeRow("/", EVENT_EXCHANGE, "topic", internal=True))])
    queues = {}
    for node in "ab":
        address = base.newPrimaryActor(Queue)
        queues[node] = base.cells[address.addressDetails].actor
        routing.put_queue(QueueRow("/", node, address, f"{node}-id", node=node))
        routing.publish([BindingAdded("/", Binding.of(EVENT_EXCHANGE, "queue", node, "#", NO_ARGUMENTS), False)])
    hub = base.newPrimaryActor(EventHub)
    alarms = base.newPrimaryActor(NoAlarms)
    system.tell(hub, to_new_event_hub.start(routing, Events(), "a", alarms, "/", None, "info"))

    def taken_of_another():
        system.tell(hub, to_event_hub.event("user.created", {}))
        world.run_until(lambda: False, 1.0)
        return queues["a"].taken, queues["b"].taken

    assert taken_of_another() == (1, 1)
    system.tell(hub, to_link_sender.link_full("b"))
    assert taken_of_another() == (2, 1)
    system.tell(hub, to_link_sender.link_free("b"))
    assert taken_of_another() == (3, 2)
    assert not world.crashes
    system.shutdown()
