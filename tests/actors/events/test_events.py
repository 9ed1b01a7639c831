"""`Events`: an event is made and sent only while a consumer would get it."""

import pytest

from warren.actors.context.events import EVENT_EXCHANGE, Events
from warren.routing.changes import BindingAdded, BindingRemoved, ExchangePut
from warren.routing.rows import NO_ARGUMENTS, Binding, ExchangeRow
from warren.routing.table import RoutingTable

BINDING = Binding.of(EVENT_EXCHANGE, "queue", "audit", "user.#", NO_ARGUMENTS)


class Recorder:
    """Stands for a process: `sent` has the messages that it sent."""

    def __init__(self):
        self.sent = []

    def send(self, address, message):
        self.sent.append((address, message))


@pytest.fixture
def routing():
    table = RoutingTable()
    table.add_vhost("/")
    table.publish([ExchangePut(ExchangeRow("/", EVENT_EXCHANGE, "topic", internal=True))])
    return table


def test_nobody_watches_a_node_without_a_hub(routing):
    events, process = Events(), Recorder()
    routing.publish([BindingAdded("/", BINDING, False)])
    assert not events.are_watched()
    events.emit(process, "queue.created", {})
    events.emit_applied(process, None, [])
    assert process.sent == []


def test_a_binding_watches(routing):
    events, process = Events(), Recorder()
    events.open("hub", routing, "/")
    assert not events.are_watched()
    events.emit_applied(process, None, [])
    assert process.sent == []
    routing.publish([BindingAdded("/", BINDING, False)])
    assert events.are_watched()
    events.emit_applied(process, None, ["change"])
    assert process.sent == [("hub", ("applied", None, ["change"]))]
    routing.publish([BindingRemoved("/", BINDING, False)])
    assert not events.are_watched()


def test_a_command_watches_without_an_exchange(routing):
    events = Events()
    events.open("hub", routing, None)
    routing.publish([BindingAdded("/", BINDING, False)])
    assert not events.are_watched()
    events.subscribers = 1
    assert events.are_watched()


@pytest.mark.parametrize(
    ("pattern", "is_wanted"), [("flow.sample", True), ("flow.#", True), ("#", False), ("*.sample", False)]
)
def test_samples_are_wanted_by_those_who_name_flow(routing, pattern, is_wanted):
    """Samples of flow are made only for bindings that name `flow`. Otherwise each audit log that is bound with `#`
    would get one every second (SP-99).
    """
    events, process = Events(), Recorder()
    assert not events.are_samples_wanted()
    binding = Binding.of(EVENT_EXCHANGE, "queue", "samples", pattern, NO_ARGUMENTS)
    routing.publish([BindingAdded("/", binding, False)])
    events.emit_sample(process, b"{}")
    assert not events.are_samples_wanted() and process.sent == []
    events.open("hub", routing, "/")
    assert events.are_samples_wanted() == is_wanted
    events.emit_sample(process, b"{}")
    assert process.sent == [("hub", ("flow_sample", b"{}"))]
    routing.publish([BindingRemoved("/", binding, False)])
    assert not events.are_samples_wanted()
