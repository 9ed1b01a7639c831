"""How a server's garbage is collected. Each test runs a program of its own, because the collector is the program's."""

import subprocess
import sys

BEGIN = """
import gc, weakref
from warren.server import GARBAGE_BATCH, _examine_once
from warren.store.messages.untracked import untrack

class Cycle:
    def __init__(self):
        self.me = self

_examine_once()
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_cycle_that_soon_becomes_garbage_is_freed():
    run("""
gone = weakref.ref(Cycle())
kept = [[] for _ in range(2 * GARBAGE_BATCH)]
assert gone() is None
""")


def test_what_was_examined_once_is_not_examined_again_by_itself():
    """Containers that a collection has examined once are not examined again by the next collection of the young,
    however many there are.
    """
    run("""
collected = []
gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
kept = []
for _ in range(200 * GARBAGE_BATCH):
    kept.append([b"a message"] * 3)
assert len(collected) >= 200 and set(collected) == {0}, set(collected)
assert len(gc.get_objects(generation=0)) < 2 * GARBAGE_BATCH
""")


def test_a_collection_of_everything_frees_the_cycles_that_became_garbage_later():
    """A collection of everything, which the memory monitor makes before it raises an alarm, frees cycles that became
    garbage later.
    """
    run("""
cycle = Cycle()
gone = weakref.ref(cycle)
kept = [[] for _ in range(2 * GARBAGE_BATCH)]
del cycle
more = [[] for _ in range(2 * GARBAGE_BATCH)]
assert gone() is not None, "it was examined while it was in use"
gc.collect()
assert gone() is None
""")


def test_the_messages_of_a_long_run_are_never_examined():
    run("""
from warren.store.messages.message import Origin
from warren.store.queue.memory_queue import MemoryQueue

origin = Origin("", ("queue",), False)
def fill(queue, count):
    for _ in range(20):
        queue.publish(origin, [b"message"] * count, 20, None, False)
def tracked():
    return sum(len(each) for each in gc.get_objects() if type(each) is list and b"message" in each)

long, short = MemoryQueue(), MemoryQueue()
fill(long, 1000)
assert tracked() == 0
long.fetch(5500, True)
assert tracked() == 0, "those that are handed out, and the rest of a run"
fill(short, 1)
assert tracked() == 20, "a short run is not worth a call"
""")


def test_a_list_that_is_untracked_is_freed_and_works_as_any():
    run("""
class Body:
    pass

body = Body()
gone = weakref.ref(body)
contents = [body] * 1000
del body
untrack(contents)
assert not gc.is_tracked(contents)
del contents[:500]
contents += contents[:5]
contents.reverse()
copy = contents[:]
assert len(copy) == 505 and gc.is_tracked(copy)
del contents, copy
assert gone() is None
again = [[] for _ in range(1000)]
assert all(map(gc.is_tracked, again)), "a list that reuses its memory is an ordinary one"
""")


def test_a_server_has_each_container_examined_once():
    run("""
import os, signal
gc.set_threshold(700, 10, 10)
from warren.server import serve
from warren.settings import Settings

found = []
def ready(report):
    found.append(gc.get_threshold())
    os.kill(os.getpid(), signal.SIGTERM)
serve(Settings(port=0), ready)
assert found[0][0] == GARBAGE_BATCH and min(found[0][1:]) > 1_000_000, found
""")


def test_a_server_examines_the_young_soon_even_if_as_much_ends_as_begins():
    """A server examines young containers soon even if as many end as begin. The collector's own threshold, which counts
    the difference, would never be reached.
    """
    run("""
import os, signal, threading, time
from warren.server import serve
from warren.settings import Settings

old = [[] for _ in range(50_000)]
found = []
def churn():
    for at in range(len(old)):
        old[at] = [at]
    deadline = time.monotonic() + 300
    while len(gc.get_objects(generation=0)) > 5_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    found.append(len(gc.get_objects(generation=0)))
    os.kill(os.getpid(), signal.SIGTERM)
serve(Settings(port=0), lambda report: threading.Thread(target=churn).start())
assert found[0] <= 5_000, found
""")
