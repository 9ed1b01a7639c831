"""How a server's garbage is collected. Each test runs a program of its own, because the collector is the program's."""

import subprocess
import sys

BEGIN = """
import gc, weakref
from warren.runtime.machine.garbage import BATCH, collect_all, examine_once

class Cycle:
    def __init__(self):
        self.me = self

examine_once()
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_cycle_that_soon_becomes_garbage_is_freed():
    run("""
gone = weakref.ref(Cycle())
kept = [[] for _ in range(2 * BATCH)]
assert gone() is None
""")


def test_what_was_examined_once_is_not_examined_again():
    """The collector's own list of what it will examine stays short, however much there is."""
    run("""
kept = []
for _ in range(50 * BATCH):
    kept.append([b"a message"] * 10)
    if len(kept) % 500 == 0:
        assert len(gc.get_objects()) < 2 * BATCH
""")


def test_collecting_everything_frees_the_cycles_that_became_garbage_later():
    run("""
cycle = Cycle()
gone = weakref.ref(cycle)
kept = [[] for _ in range(2 * BATCH)]
del cycle
gc.collect()
assert gone() is not None, "it was examined while it was in use"
collect_all()
assert gone() is None
assert len(gc.get_objects()) < BATCH, "what is in use is not examined again"
""")


def test_a_program_around_an_embedded_broker_keeps_what_it_has_frozen():
    run("""
gc.callbacks.clear()
kept = [[] for _ in range(100)]
gc.freeze()
frozen = gc.get_freeze_count()
more = [[] for _ in range(100)]
collect_all()
assert gc.get_freeze_count() == frozen and len(gc.get_objects()) > 100
""")


def test_a_server_has_each_container_examined_once():
    run("""
import os, signal
gc.callbacks.clear()
gc.set_threshold(700, 10, 10)
from warren.server import serve
from warren.settings import Settings

found = []
def ready(report):
    found.append((gc.get_threshold()[0], len(gc.callbacks)))
    os.kill(os.getpid(), signal.SIGTERM)
serve(Settings(port=0), ready)
assert found == [(BATCH, 1)], found
""")
