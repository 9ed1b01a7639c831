"""The message store against a dict, on a disk that loses, tears and reorders unsynced writes, stopped at any
operation.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from warren.store.bodies.store_engine import StoreEngine
from warren.store.disk.faulty_disk import Crash, FaultyDisk

CLIENTS = ("q1", "q2")
LIMIT = 200
client_names = st.sampled_from(CLIENTS)


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def body(number: int) -> bytes:
    return number.to_bytes(2, "big") * (number * 7 % 30)


def number_of(message_id: bytes) -> int:
    return int.from_bytes(message_id, "big")


class StoreMachine(RuleBasedStateMachine):
    """The model: two queues and a store. Of each client, `held` are its references, `told` the writes that were
    reported to it, and `owed` those whose report is still due.
    """

    @initialize(is_durable=st.sampled_from([True, True, True, False]))
    def begin(self, is_durable):
        self.is_durable = is_durable
        self.disk = FaultyDisk()
        self.root = tempfile.mkdtemp()
        self.boot = 0
        self.next = 0
        self.held = {client: {} for client in CLIENTS}
        self.told = {client: set() for client in CLIENTS}
        self.owed = {client: set() for client in CLIENTS}
        self.past = set()
        self.open()
        assert not self.store.recover(None, lambda: ())
        self.started()

    def open(self):
        self.store = StoreEngine(self.disk, "s", self.root, self.is_durable, file_limit=LIMIT, boot_id=str(self.boot))

    def started(self):
        self.sync = self.gc = self.reading = None
        self.has_run = {"sync": False, "gc": False}
        for client in CLIENTS:
            self.store.register(client)

    def teardown(self):
        if hasattr(self, "root"):
            self.store.abandon()
            shutil.rmtree(self.root, ignore_errors=True)

    # -- what clients do

    @rule(client=client_names, count=st.integers(1, 16))
    def write(self, client, count):
        numbers = range(self.next, self.next + count)
        self.next += count
        self.write_ids(client, [name(number) for number in numbers])

    @rule(client=client_names, data=st.data())
    def write_what_was_there(self, client, data):
        """Write messages that the other queue has, or that have no reference any more."""
        known = sorted((set(self.held[CLIENTS[0]]) | set(self.held[CLIENTS[1]]) | self.past) - set(self.held[client]))
        if known:
            self.write_ids(client, data.draw(st.lists(st.sampled_from(known), max_size=6, unique=True)))

    def write_ids(self, client, ids):
        self.store.write(client, [(message_id, body(number_of(message_id))) for message_id in ids])
        self.held[client].update(dict.fromkeys(ids))
        self.owed[client].update(ids)
        self.hear()

    @rule(client=client_names, data=st.data())
    def remove(self, client, data):
        held = list(self.held[client])
        if held:
            # Removing all but every second or third message leaves files that are worth combining.
            start, step = data.draw(st.integers(0, min(2, len(held) - 1))), data.draw(st.integers(2, 4))
            ids = (
                held[start::step]
                if data.draw(st.booleans())
                else [message_id for message_id in held if message_id not in held[start::step]]
            )
            self.remove_ids(client, ids)

    def remove_ids(self, client, ids):
        owed = self.owed[client] & set(ids)
        self.store.remove(client, [*ids, name(1 << 40)])
        for message_id in ids:
            del self.held[client][message_id]
        self.told[client] -= set(ids)
        self.past.update(ids)
        assert self.hear() == {(client, "ignored", message_id) for message_id in owed}

    def hear(self):
        """Take the reports; each write is reported once (QS-30)."""
        heard = set()
        for report in self.store.take_reports():
            assert set(report.ids) <= self.owed[report.client] and len(set(report.ids)) == len(report.ids)
            self.owed[report.client] -= set(report.ids)
            if report.kind == "written":
                assert set(report.ids) <= set(self.held[report.client])
                self.told[report.client].update(report.ids)
            heard.update((report.client, report.kind, message_id) for message_id in report.ids)
        return heard

    @rule(data=st.data())
    def start_reading(self, data):
        held = sorted({message_id for client in CLIENTS for message_id in self.held[client]})
        if held and self.reading is None:
            ids = data.draw(st.lists(st.sampled_from(held), max_size=6))
            self.reading = self.store.read(ids)

    @precondition(lambda self: self.reading)
    @rule()
    def finish_reading(self):
        """Finish a read: it finds its messages whatever happened to the files since it began."""
        self.reading.run()
        assert self.reading.messages == [body(number_of(message_id)) for message_id in self.reading.ids]
        self.store.finish_read(self.reading)
        self.reading = None

    # -- what its owner does, a step at a time

    @rule()
    def mark(self):
        self.store.waiting.mark()

    @rule(
        everything=st.sampled_from([True, False, None]),
        error=st.sampled_from([None, None, None, errno.ENOSPC]),
        fails_at=st.integers(1, 4),
        steps=st.integers(1, 3),
    )
    def sync_steps(self, everything, error, fails_at, steps):
        for _ in range(steps):
            self.sync_step(everything, error, fails_at)

    def sync_step(self, everything=False, error=None, fails_at=1):
        """With None for `everything` the sync is only for what came before the last mark."""
        if self.sync is None:
            self.sync = self.store.take_marked() if everything is None else self.store.take_sync(everything)
        elif not self.has_run["sync"]:
            if error is not None and self.sync.parts:
                self.disk.fail_after(1, OSError(error, "injected"))
                with pytest.raises(OSError):
                    self.sync.run()
                self.disk.heal()
            self.sync.run()
            self.has_run["sync"] = True
        else:
            self.store.finish_sync(self.sync)
            self.sync, self.has_run["sync"] = None, False
            self.hear()

    @rule(fails=st.booleans(), steps=st.integers(1, 3))
    def gc_steps(self, fails, steps):
        for _ in range(steps):
            self.gc_step(fails)

    def gc_step(self, fails=False):
        if self.gc is None:
            self.gc = self.store.take_gc()
        elif not self.has_run["gc"]:
            if fails:
                self.disk.fail_after(1, OSError(errno.ENOSPC, "injected"))
                try:
                    self.gc.run()
                except OSError:
                    self.disk.heal()
                    self.store.fail_gc(self.gc)
                    self.gc = None
                    return
                self.disk.heal()
            else:
                self.gc.run()
            self.has_run["gc"] = True
        else:
            self.store.finish_gc(self.gc)
            self.gc, self.has_run["gc"] = None, False

    @rule(client=client_names, steps=st.integers(0, 14), keep=st.integers(2, 4))
    def combine(self, client, steps, keep):
        """Write several files with few wanted messages, and begin to combine them."""
        self.write_ids(client, [name(number) for number in range(self.next, self.next + 24)])
        self.next += 24
        for _ in range(6):
            self.sync_step()
        self.remove_ids(client, [message_id for at, message_id in enumerate(self.held[client]) if at % keep])
        self.work(steps)

    @rule(steps=st.integers(2, 12))
    def work(self, steps):
        """Do some steps of a combination, and stop anywhere in it."""
        for _ in range(steps):
            self.sync_step()
            self.gc_step()

    @rule()
    def settle(self):
        """When nothing is left to do, every write is answered and garbage is within the bounds of queue-and-store
        section 6.7.
        """
        for _ in range(1000):
            self.sync_step(everything=True)
            was_idle = self.gc is None
            self.gc_step()
            if self.sync is None and self.gc is None and was_idle and not self.store.is_urgent:
                break
        assert self.sync is None and self.gc is None
        assert not any(self.owed.values())
        file_bytes, wanted_bytes = self.store.file_sizes
        # Neighbours that do not fit into one file have more wanted bytes than the limit together, and a file exceeds
        # the limit by at most one record.
        assert file_bytes <= 3 * wanted_bytes + 4 * LIMIT

    # -- ends and starts

    @precondition(lambda self: self.is_durable)
    @rule(
        seed=st.integers(0, 1 << 16),
        at=st.one_of(st.none(), st.integers(1, 8)),
        kill=st.booleans(),
        again=st.one_of(st.none(), st.integers(1, 12)),
    )
    def crash(self, seed, at, kill, again):
        """A kill or a power cut, perhaps in the middle of a job, and perhaps another one during the next start."""
        random = Random(seed)
        if at is not None:
            self.disk.fail_after(at, Crash())
            try:
                for _ in range(12):
                    self.gc_step()
                    self.sync_step()
            except Crash:
                pass
            self.disk.heal()
        # The queue indexes may name any message that was not confirmed, and name all that were.
        named = {
            client: [
                message_id
                for message_id in self.held[client]
                if message_id in self.told[client] or random.random() < 0.5
            ]
            for client in CLIENTS
        }
        resurrected = [message_id for message_id in sorted(self.past) if random.random() < 0.1]
        self.cut(random, kill)
        if again is not None:
            self.open()
            self.disk.fail_after(again, Crash())
            try:
                self.store.recover(None, lambda: [*named.values(), resurrected])
            except Crash:
                pass
            self.cut(random, random.random() < 0.5)
        self.open()
        assert not self.store.recover(CLIENTS, lambda: [*named.values(), resurrected])
        for client in CLIENTS:
            assert all(self.store.contains(message_id) for message_id in self.told[client])
        present = {message_id for client in CLIENTS for message_id in named[client] if self.store.contains(message_id)}
        for number in range(self.next):
            if name(number) not in {*named[CLIENTS[0]], *named[CLIENTS[1]], *resurrected}:
                assert not self.store.contains(name(number))
        self.started()
        self.held = {
            client: {message_id: None for message_id in named[client] if message_id in present} for client in CLIENTS
        }
        self.told = {client: set(self.held[client]) for client in CLIENTS}
        self.owed = {client: set() for client in CLIENTS}
        # Like a queue with entries whose ack was lost, the client registers them, and acknowledges them at once.
        self.store.remove(CLIENTS[0], resurrected)

    def cut(self, random, kill):
        self.store.abandon()
        if kill:
            self.disk.kill()
        else:
            self.boot += 1
            self.disk.crash(random)
            if random.random() < 0.5 and os.path.exists(f"{self.root}/data.mdb"):
                with open(f"{self.root}/data.mdb", "r+b") as file:
                    file.write(random.randbytes(20_000))
        if random.random() < 0.2:
            shutil.rmtree(self.root, ignore_errors=True)  # QS-42

    @precondition(lambda self: self.is_durable)
    @rule(seed=st.integers(0, 1 << 16), is_wiped=st.sampled_from([False, False, True]))
    def stop_and_start(self, seed, is_wiped):
        """After a clean stop no reference is counted again, whatever becomes of unsynced writes; without the index
        all are (QS-42).
        """
        if self.reading is not None:
            self.finish_reading()
        while self.sync or self.has_run["gc"] or self.gc:
            self.sync_step()
            if self.gc:
                self.gc_step()
        for client in CLIENTS:
            self.store.detach(client)
        self.store.close()
        self.hear()
        self.disk.crash(Random(seed))
        self.boot += 1
        if is_wiped:
            shutil.rmtree(self.root, ignore_errors=True)
        self.open()
        assert self.store.recover(CLIENTS, lambda: list(self.held.values())) is not is_wiped
        self.started()

    # -- what holds at every moment

    @invariant()
    def sums_and_places_agree(self):
        if hasattr(self, "store"):
            self.store.check()

    @invariant()
    def what_is_referred_to_is_there(self):
        if not hasattr(self, "store"):
            return
        held = sorted({message_id for client in CLIENTS for message_id in self.held[client]})
        assert all(self.store.contains(message_id) for message_id in held)
        job = self.store.read(held)
        job.run()
        self.store.finish_read(job)
        assert job.messages == [body(number_of(message_id)) for message_id in held]
        assert not self.store.damaged
        for message_id in self.past - set(held):
            assert not self.store.contains(message_id)


TestMessageStore = StoreMachine.TestCase
TestMessageStore.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
