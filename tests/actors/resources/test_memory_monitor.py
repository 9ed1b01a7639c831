"""The memory monitor on a machine that the test controls (queue-and-store sections 8.1 and 8.2)."""

from __future__ import annotations

import logging
import math
import threading

import pytest

from warren.actors.context.node_context import NodeContext
from warren.actors.context.received_bytes import ReceivedBytes
from warren.actors.resources import garbage, heap_return
from warren.actors.resources.garbage import CYCLES
from warren.actors.resources.memory_monitor import MemoryMonitor
from warren.runtime.machine.memory import SystemMemory
from warren.settings import Settings
from warren.settings.limits import LimitError

WAIT = 300.0
MIB = 1 << 20
NEVER = 3_600_000


class Machine:
    """A machine with 1000 MiB, of which `used` are in use; giving heap back reduces that to `after_trim`."""

    def __init__(self):
        self.used = 100 * MIB
        self.after_trim = None
        self.trims = 0
        self.may_trim = threading.Event()
        self.may_trim.set()
        self.after_collection = None
        self.collections = self.cycles = 0
        self.samples = 0
        self.is_closed = False

    def anonymous(self):
        self.samples += 1
        return self.used

    def close(self):
        self.is_closed = True

    def collect(self):
        self.collections += 1
        if self.after_collection is not None:
            self.used = self.after_collection

    def trim(self):
        self.trims += 1
        self.may_trim.wait(WAIT)
        if self.after_trim is not None:
            self.used = self.after_trim


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(SystemMemory, "meter", lambda self: machine)
    monkeypatch.setattr(SystemMemory, "total", lambda self: 1000 * MIB)
    monkeypatch.setattr(SystemMemory, "trimmer", lambda self: machine.trim)
    monkeypatch.setattr(SystemMemory, "collector", lambda self: machine.collect)
    monkeypatch.setattr(SystemMemory, "cycles", lambda self: machine.cycles)
    return machine


@pytest.fixture
def monitor(system):
    return system.createActor(MemoryMonitor)


@pytest.fixture
def received():
    return ReceivedBytes()


@pytest.fixture
def start(client, monitor, alarms, received):
    def start(**settings):
        given = Settings(**{"memory_monitor_interval": NEVER, **settings})
        context = NodeContext("warren@test", given, None, None, alarms, None, received_bytes=received)
        return client.ask(monitor, ("start", context), WAIT)

    return start


@pytest.fixture
def sampled(client, monitor):
    """The status after a sample with the default watermark."""
    return lambda: client.ask(monitor, ("set_watermark", 0.4), WAIT)


@pytest.fixture
def active(sampled, active_alarms):
    """The alarms that are active after a sample."""

    def active():
        sampled()
        return active_alarms()

    return active


@pytest.fixture
def status(base, monitor):
    """The status without a new sample."""
    return lambda: base.call(base.cells[monitor.actorAddressString].actor._status)


def test_its_status(machine, start):
    assert start() == {
        "total": 1000 * MIB,
        "setting": 0.4,
        "limit": 400 * MIB,
        "used": 100 * MIB,
        "alarmed": False,
    }


def test_the_alarm_is_on_above_the_limit_and_off_at_it(machine, start, active):
    """The alarm is on while more than the limit is in use, and off otherwise, without hysteresis (queue-and-store
    section 8.2).
    """
    start()
    seen = []
    for used in (400 * MIB, 400 * MIB + 1, 401 * MIB, 400 * MIB):
        machine.used = used
        seen.append(active())
    assert seen == [(), ("memory",), ("memory",), ()]


def test_a_node_that_starts_above_its_limit_is_alarmed_at_once(machine, start, active_alarms):
    assert start(vm_memory_high_watermark=0)["alarmed"] is True
    assert active_alarms() == ("memory",)


def test_it_samples_by_itself(machine, start, active_alarms, eventually):
    start(memory_monitor_interval=10)
    machine.used = 500 * MIB
    eventually(lambda: active_alarms() == ("memory",))
    machine.used = 300 * MIB
    eventually(lambda: active_alarms() == ())


def test_before_the_alarm_free_heap_is_given_back(machine, start, active):
    """Before the alarm is raised, free heap is given back and memory sampled again; it is raised only if that is above
    the limit too (QS-16, queue-and-store section 8.2).
    """
    start()
    machine.used, machine.after_trim = 500 * MIB, 300 * MIB
    assert active() == ()
    assert machine.trims == 1


def test_before_the_alarm_garbage_is_collected_if_there_are_cycles(machine, start, active):
    """If the collector has found cycles among young objects, all garbage is collected before the alarm is raised.
    Otherwise unused memory would block publishers.
    """
    start()
    machine.used, machine.after_collection = 500 * MIB, 300 * MIB
    machine.cycles += CYCLES
    assert active() == ()
    assert machine.collections == 1


def test_without_a_sign_of_cycles_the_alarm_stops_nobody_for_a_collection(machine, start, active):
    """A full collection stops the whole node, so the alarm is raised without one if there is no sign of cycles."""
    start()
    machine.used = 500 * MIB
    assert active() == ("memory",)
    assert machine.collections == 0


def test_garbage_is_not_collected_again_and_again(machine, start, sampled, monkeypatch):
    """Garbage is not collected at each sample, because a collection stops the whole node, and memory may stay near its
    limit for long.
    """
    monkeypatch.setattr(heap_return, "ALARM_PAUSE", 0.0)
    start()
    machine.used = 500 * MIB
    for _ in range(5):
        machine.cycles += CYCLES
        sampled()
    assert machine.trims > 1 and machine.collections == 1


def test_what_clients_send_brings_the_next_look_forward(machine, start, client, monitor, active_alarms, eventually):
    start()
    machine.used = 500 * MIB
    samples = machine.samples
    client.tell(monitor, ("look",))
    eventually(lambda: active_alarms() == ("memory",))
    assert machine.samples == samples + 3, "a look, a sample, and one more after heap was given back"


def test_what_clients_send_while_heap_is_given_back_raises_the_alarm(
    machine, start, client, monitor, active_alarms, eventually
):
    """If clients send much while heap is given back, which may take long, the alarm is raised at once, and ends if it
    was not needed.
    """
    start()
    machine.used, machine.after_trim = 500 * MIB, 300 * MIB
    machine.may_trim.clear()
    client.tell(monitor, ("look",))
    eventually(lambda: machine.trims)
    assert active_alarms() == ()
    client.tell(monitor, ("look",))
    eventually(lambda: active_alarms() == ("memory",))
    machine.may_trim.set()
    eventually(lambda: active_alarms() == ())


def test_a_look_is_due_when_clients_have_sent_a_share_of_the_limit(machine, start, received, client, monitor):
    """A sample is taken when clients have sent 2 % of the limit, or 4 MiB if that is more."""
    assert received.due == math.inf
    start()
    assert received.due == 8 * MIB
    client.ask(monitor, ("set_watermark", "1000MiB"), WAIT)
    assert received.due == 20 * MIB
    client.ask(monitor, ("set_watermark", "100MiB"), WAIT)
    assert received.due == 4 * MIB


def test_under_an_alarm_that_lasts_garbage_is_collected_without_a_sign(machine, start, active, monkeypatch):
    """An alarm that garbage keeps on ends, although no young object was found in a cycle."""
    monkeypatch.setattr(heap_return, "ALARM_PAUSE", 0.0)
    monkeypatch.setattr(garbage, "ALARM_SECONDS", 0.0)
    start()
    machine.used = 500 * MIB
    assert active() == ("memory",)
    machine.after_collection = 300 * MIB
    assert active() == ()
    assert machine.collections == 1


def test_no_garbage_is_collected_below_the_limit(machine, start, active):
    start()
    machine.used = 300 * MIB
    active()
    active()
    assert machine.trims and not machine.collections


def test_without_malloc_trim_the_alarm_is_set_all_the_same(machine, start, active, monkeypatch):
    monkeypatch.setattr(SystemMemory, "trimmer", lambda self: None)
    start()
    machine.used = 500 * MIB
    assert active() == ("memory",)


def test_what_a_drained_queue_leaves_is_given_back(machine, start, active, sampled):
    start()
    machine.used, machine.after_trim = 300 * MIB, 30 * MIB
    active()
    assert machine.trims == 0, "it has just grown"
    assert sampled()["used"] == 30 * MIB
    assert machine.trims == 1


def test_the_watermark_changes_at_run_time(machine, start, client, monitor, active_alarms):
    start()
    assert client.ask(monitor, ("set_watermark", "50MiB"), WAIT) == {
        "total": 1000 * MIB,
        "setting": "50MiB",
        "limit": 50 * MIB,
        "used": 100 * MIB,
        "alarmed": True,
    }
    assert active_alarms() == ("memory",)
    assert client.ask(monitor, ("set_watermark", 0.1), WAIT)["alarmed"] is False
    assert active_alarms() == ()


def test_the_memory_there_is_is_looked_up_again_with_it(machine, start, client, monitor, status, monkeypatch):
    """The size of the memory is read at the start and whenever the watermark is set (queue-and-store section 8.1)."""
    start()
    monkeypatch.setattr(SystemMemory, "total", lambda self: 2000 * MIB)
    assert status()["total"] == 1000 * MIB
    assert client.ask(monitor, ("set_watermark", 0.5), WAIT)["limit"] == 1000 * MIB


def test_a_watermark_that_cannot_be_read_changes_nothing(machine, start, client, monitor, status):
    start()
    with pytest.raises(LimitError, match="'a lot' is not a share of memory"):
        client.ask(monitor, ("set_watermark", "a lot"), WAIT)
    assert status()["limit"] == 400 * MIB


def test_the_total_may_be_given(machine, start):
    """A total that the settings give overrides what the system reports (queue-and-store section 8.1)."""
    status = start(total_memory_available_override_value="200MiB", vm_memory_high_watermark=0.25)
    assert (status["total"], status["limit"]) == (200 * MIB, 50 * MIB)


def test_where_memory_cannot_be_measured_there_is_no_alarm(
    machine, start, active, client, monitor, monkeypatch, caplog
):
    def missing(self):
        raise FileNotFoundError("no /proc here")

    monkeypatch.setattr(SystemMemory, "meter", missing)
    with caplog.at_level(logging.WARNING, "warren.memory"):
        assert start(vm_memory_high_watermark=0)["used"] is None
    assert "no memory alarm: no /proc here" in caplog.text
    assert active() == ()
    assert client.ask(monitor, ("set_watermark", 0.5), WAIT)["limit"] == 500 * MIB


def test_what_it_opened_is_closed_with_it(machine, start, base):
    start()
    base.shutdown()
    assert machine.is_closed


def test_the_log_says_what_is_in_use(machine, start, active, caplog):
    start()
    with caplog.at_level(logging.INFO, "warren.memory"):
        for used in (500 * MIB, 50 * MIB):
            machine.used = used
            active()
    assert [text for text in caplog.messages if "low on" in text] == [
        "low on memory: 500 MiB in use, the high watermark is 400 MiB; publishers are blocked until it is less",
        "no longer low on memory: 50 MiB in use, the high watermark is 400 MiB",
    ]
