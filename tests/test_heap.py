"""The heap of a server keeps memory that was freed at its top for the next message, until the trimmer gives it back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from warren.portable import IS_PORTABLE
from warren.runtime.machine.linux_memory import heap_trimmer

pytestmark = pytest.mark.skipif(
    IS_PORTABLE or sys.platform != "linux" or heap_trimmer() is None, reason="about glibc's heap on Linux"
)

#: Frees 24 blocks of 1 MB, again and again, and prints the page faults of the last ten rounds.
CHURN = """
import resource, sys
from warren.heap import keep_freed_heap
if sys.argv[1] == "kept":
    assert keep_freed_heap()
def churn():
    blocks = [bytes([1]) * 1_000_000 for _ in range(24)]
    del blocks
for _ in range(3):
    churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    churn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(kept: str) -> int:
    done = subprocess.run([sys.executable, "-c", CHURN, kept], cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_bodies_that_come_and_go_take_no_new_pages():
    pages = 10 * 24 * 1_000_000 // 4096

    assert page_faults("as it is") > pages // 4
    assert page_faults("kept") < pages // 100


#: Allocates and frees memory in four threads at the same time, and prints how many heaps there are.
THREADS = """
import ctypes, sys, threading
from warren.heap import keep_freed_heap
if sys.argv[1] == "kept":
    assert keep_freed_heap()
together = threading.Barrier(4)
def work():
    together.wait()
    blocks = [bytes(2000) for _ in range(1000)]
    together.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
output = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, output)
libc.fflush(output)
"""


def heaps(kept: str) -> int:
    done = subprocess.run([sys.executable, "-c", THREADS, kept], cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.count("<heap nr=")


def test_all_threads_share_one_heap():
    assert heaps("as it is") > 1
    assert heaps("kept") == 1


#: Frees 100 MB. It prints how many MB of anonymous memory there are before, afterwards, and after the heap was given
#: back.
FREED = """
from warren.heap import keep_freed_heap
from warren.runtime.machine.linux_memory import ProcessMemory, heap_trimmer
assert keep_freed_heap()
meter, trim = ProcessMemory(), heap_trimmer()
blocks = [bytes(1000) for _ in range(100_000)]
full = meter.anonymous()
while blocks:
    blocks.pop()
freed = meter.anonymous()
trim()
print(full // 1_000_000, freed // 1_000_000, meter.anonymous() // 1_000_000)
"""


def test_freed_memory_is_given_back_by_the_trimmer_alone():
    """Only the trimmer gives freed memory back. Otherwise the turn that frees the last block would, which takes 0.5 ms
    for each MB.
    """
    done = subprocess.run([sys.executable, "-c", FREED], cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    full, freed, trimmed = map(int, done.stdout.split())
    assert freed > full - 10
    assert trimmed < full - 90


#: Makes and opens four metadata stores, and prints how many KB they take.
STORES = """
import sys
from warren.heap import keep_freed_heap
from warren.runtime.machine.linux_memory import ProcessMemory
from warren.store.data_dir.metadata_store import MetadataStore
assert keep_freed_heap()
meter = ProcessMemory()
before, stores = meter.anonymous(), []
for number in range(4):
    path = f"{sys.argv[1]}/{number}"
    MetadataStore(path).close()
    stores.append(MetadataStore(path))
print((meter.anonymous() - before) // 1000)
"""


def test_what_a_store_of_rows_allocates_and_does_not_use_takes_no_memory(tmp_path):
    """LMDB allocates 3 MB for each environment, and uses only as much of it as a transaction changes pages. The rest
    takes no memory.
    """
    done = subprocess.run(
        [sys.executable, "-c", STORES, str(tmp_path)], cwd="/", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 * 500
