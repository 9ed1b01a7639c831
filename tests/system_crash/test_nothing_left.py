"""A process that ends is freed by reference counting alone, with everything that belonged to it.

The garbage collector comes by the number of objects, not by their size, and seldom: a broker that left each queue's
parts to it grew by 30 MB with every 3,000 queues, raised the memory alarm, and blocked its publishers for ever.
`bench/churn.py` runs the same churns 20,000 times and measures the memory.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import ssl
import threading
import time
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from warren import Broker
from warren.actors.channel import Channel
from warren.actors.connection import Connection
from warren.amqp import methods
from warren.amqp.fields import table_from
from warren.amqp.frames import method_frame
from warren.bench.soak import SoakBroker, load
from warren.runtime.loop.loop_base import LoopBase
from warren.store.bodies.location_index import BodyLocation
from warren.tests.behaviour.wire import Client

from .anatomy import TIMEOUT, Anatomy
from .churns import CHURNS, Site, frames, message, open_channel, read_until, tls_connections

#: Classes of which a bounded number is kept: the longest turns of the loop, its spare lanes, the threads for blocking
#: calls, and an owner of a lane for each name of a group, from the first time on that processes of the group wait.
BOUNDED = (
    "warren.runtime.long_turn.LongTurnRecord",
    "warren.runtime.system.cell.Lane",
    "warren.runtime.loop.lanes._Group",
    "warren.runtime.loop.blocking._Worker",
)

#: Arguments of a consumer that is cancelled, not moved, when its queue is restarted.
FAILOVER = table_from({"x-cancel-on-ha-failover": True})

#: What a broker may have of its own that it had not before: the first report to the memory monitor of a queue that
#: stays, "churned", and the file at the end of the journal, which is opened with its first record.
OWN = Counter(
    {
        "warren.actors.resources.ram_durations._Report": 1,
        "warren.store.disk.real_disk.RealFile": 1,
        "warren.store.disk.system.positioned_access.PositionedAccess": 1,
    }
)

#: Entities of each kind: a burst, and a remainder.
COUNT = 23
#: The number of entities that take longer: virtual hosts, and processes that crash.
FEW = 5


@functools.cache
def caches() -> list[Any]:
    """The functions of warren that keep their latest results."""
    gc.unfreeze()  # the collector does not list frozen objects
    return [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, functools._lru_cache_wrapper) and str(thing.__module__).startswith("warren.")
    ]


def ours() -> Counter[str]:
    """How many objects of warren's classes there are, and how many coroutines of its functions.

    The caches of functions, which are bounded, are emptied before.
    """
    for cached in caches():
        cached.cache_clear()
    found: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is types.CoroutineType:
            found[f"coroutine {thing.__qualname__}"] += 1
        elif kind is BodyLocation and not thing.ref_count:
            # A body that no queue has. The message store commits that it is gone with the next body that it writes, or
            # when thousands have gathered, so their number depends on when it last wrote.
            continue
        elif kind.__module__.startswith("warren.") and not kind.__module__.startswith("warren.tests."):
            found[f"{kind.__module__}.{kind.__qualname__}"] += 1
    for name in BOUNDED:
        del found[name]
    return found


@contextmanager
def others_paused(broker: Broker) -> Iterator[None]:
    """Let the other systems of actors in this process stand still, for what they make and drop meanwhile is counted as
    well. A broker that other tests of this process share is one, and so is a node that still looks for its cluster: it
    asks and waits anew twice a second.
    """
    with ExitStack() as stack:
        for thread in threading.enumerate():
            base = getattr(getattr(thread, "_target", None), "__self__", None)
            if isinstance(base, LoopBase) and base is not broker._node._base:
                stack.callback(base.pause())
        yield


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> Any:
    """Settings for a broker with TLS, and the context of a client that trusts it."""
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(folder / "broker.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"tls_port": 0, "tls_cert_file": str(folder / "broker.pem")}, context


@pytest.fixture(scope="module", params=["disk", "memory"])
def broker(request, tmp_path_factory, tls):
    data_dir = str(tmp_path_factory.mktemp("churn") / "data") if request.param == "disk" else None
    with Broker(data_dir=data_dir, **tls[0]) as broker:
        yield broker


@pytest.fixture
def uncollected(broker):
    """A function that runs a churn a few times, and then many times with the collector off, and fails if anything of it
    is left.
    """

    def check(churn: Any, count: int = COUNT) -> None:
        with others_paused(broker):
            check_alone(churn, count)

    def check_alone(churn: Any, count: int) -> None:
        anatomy = Anatomy(broker)

        def settle() -> None:
            anatomy.eventually(lambda: not anatomy.processes(Connection) + anatomy.processes(Channel)[1:])
            broker.wait_idle(TIMEOUT)

        churn(broker, range(count))
        settle()
        gc.collect()
        gc.disable()
        try:
            descriptors = len(os.listdir("/proc/self/fd"))
            before = ours()
            churn(broker, range(1000, 1000 + count))
            settle()
            # What is left stays, as the collector is off. What the node does from time to time comes to its end.
            deadline = time.monotonic() + TIMEOUT
            while (left := ours() - before - OWN) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not left, f"left behind by {count}: {dict(left)}"
            anatomy.eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 1)
        finally:
            gc.enable()

    caches()
    # Objects that exist now need not be looked at, in this test or in a later one.
    gc.collect()
    gc.freeze()
    return check


@pytest.mark.parametrize("churn", CHURNS.values(), ids=CHURNS)
def test_nothing_of_an_entity_is_left_for_the_collector(uncollected, churn, caplog):
    uncollected(churn, FEW if churn is CHURNS["vhosts"] else COUNT)
    assert not [record for record in caplog.records if record.name == "warren.runtime"]


def test_another_broker_of_the_process_is_not_counted(uncollected):
    with Broker() as other:
        client = Client(other.url)
        channel = client.channel()

        def churn(site: Site, numbers: range) -> None:
            for number in numbers:
                client.write(method_frame(channel.number, methods.QueueDeclare(queue=f"other-{number}", nowait=True)))

        uncollected(churn)
        client.abort()


class Rounds:
    """An event whose `wait` returns at once, and that is set once it was asked `count` times."""

    def __init__(self, count: int) -> None:
        self._left = count

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, seconds: float) -> None:
        """Go on at once."""


def test_nothing_of_a_load_is_left_for_the_collector(uncollected):
    """Nothing of the load of `bench/soak.py` is left: confirmed, acknowledged, rejected, requeued and expired messages,
    of which the dead letters are read by number. Only what its queues hold grows with it, and goes with them.
    """

    def load_and_delete(site: Site, numbers: range) -> None:
        load(SoakBroker(site.port), Rounds(len(numbers)))
        for queue in ("load", "dead"):
            site.delete_queue(queue)

    uncollected(load_and_delete)


def test_nothing_of_a_tls_connection_is_left_for_the_collector(uncollected, broker, tls):
    uncollected(lambda site, numbers: tls_connections(site, numbers, broker.tls_port, tls[1]))


def test_nothing_of_a_crashed_process_is_left_for_the_collector(uncollected, broker, request):
    """Nothing of a queue, a channel or a connection that crashed is left. Nothing is logged here, because pytest would
    keep the tracebacks, which refer to the processes.
    """
    logging.disable(logging.CRITICAL)
    request.addfinalizer(lambda: logging.disable(logging.NOTSET))
    anatomy = Anatomy(broker)

    def crash(site: Site, queue: str) -> None:
        wire = open_channel(site)
        wire.send(frames(1, methods.QueueDeclare(queue=queue, durable=True), message(queue)))
        wire.send(frames(1, methods.BasicConsume(queue=queue, consumer_tag=queue, arguments=FAILOVER)))
        read_until(wire, 1, methods.BasicDeliver)
        anatomy.crash(lambda: anatomy.queue(queue))
        read_until(wire, 1, methods.BasicCancel)
        wire.call(1, methods.QueueDelete(queue=queue))
        wire.call(1, methods.BasicConsume(queue="churned", consumer_tag=queue))
        anatomy.crash(lambda: anatomy.channel_with(queue))
        wire.expect_close(541, "INTERNAL_ERROR...")
        wire = open_channel(site)
        wire.call(1, methods.BasicConsume(queue="churned", consumer_tag=queue))
        anatomy.crash(lambda: anatomy.connection_of(anatomy.channel_with(queue)))
        wire.expect_hang_up()
        wire.hang_up()

    broker.declare_queue("churned")
    uncollected(lambda site, numbers: [crash(site, f"crash {number}") for number in numbers], FEW)
