"""Measures what entities that come and go leave behind in memory, with the garbage collector off.

    python -m warren.bench.churn                                 20,000 of each kind: hours
    python -m warren.bench.churn --count 2000 --only vhosts readers

For each kind of entity a broker of its own, on a temporary data directory, makes and removes a tenth of them, and then
the rest. The table has its resident anonymous memory after both, when it has given its free heap back to the system, as
the memory monitor does from time to time. `tests/system_crash/churns.py` has the kinds;
`test_nothing_left.py` beside it counts the objects that a few of each leave.

Exit code 0 if no kind has grown by more than 5 MB, 1 if one has, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from .. import Broker
from ..tests.system_crash.churns import CHURNS
from .load.broker import memory

#: Bytes by which a broker may have grown after the first tenth.
GROWTH = 5_000_000
#: Seconds until the connections of refused logins and everything else has ended.
SETTLE_SECONDS = 60.0


def run_broker(pipe: Connection) -> None:
    """Run a broker, and call its methods for the other end of the pipe, until that is closed."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory, Broker(data_dir=f"{directory}/data", disk_free_limit=0) as broker:
        broker.declare_queue("warm")
        broker.delete_queue("warm")
        base = broker._node._base
        living = base.living
        trim = base.memory.trimmer()
        gc.collect()
        gc.disable()
        pipe.send((broker.host, broker.port))
        while True:
            try:
                name, args, keywords = pipe.recv()
            except EOFError:
                return
            try:
                if name == "settle":
                    deadline = time.monotonic() + SETTLE_SECONDS
                    while base.living > living and time.monotonic() < deadline:
                        time.sleep(0.05)
                    broker.wait_idle(SETTLE_SECONDS)
                    if trim is not None:
                        trim()
                    pipe.send(base.living - living)
                else:
                    getattr(broker, name)(*args, **keywords)
                    pipe.send(None)
            except Exception as error:
                pipe.send(RuntimeError(str(error)))


class RemoteBroker:
    """A broker in a process of its own, with the methods of `Broker` that churns use."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=run_broker, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self.host, self.port = self._pipe.recv()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            self._pipe.send((name, args, keywords))
            answer = self._pipe.recv()
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def resident(self) -> int:
        """Bytes of anonymous memory when everything of the churn has ended."""
        left = self.settle()
        if left:
            raise TimeoutError(f"{left} processes have not ended after {SETTLE_SECONDS:.0f} s")
        assert self._process.pid is not None
        return memory(self._process.pid)["RssAnon"]

    def close(self) -> None:
        self._pipe.close()
        self._process.join(30)


def grown(kind: str, count: int) -> int:
    """Print the row of one kind, and return by how many bytes the broker has grown after the first tenth."""
    broker = RemoteBroker()
    try:
        began = time.monotonic()
        CHURNS[kind](broker, range(count // 10))
        first = broker.resident()
        CHURNS[kind](broker, range(count // 10, count))
        last = broker.resident()
        seconds = time.monotonic() - began
    finally:
        broker.close()
    growth = last - first
    print(f"{kind:38} {first / 1e6:9.1f} {last / 1e6:9.1f} {growth / 1e6:+8.1f} {seconds:8.0f}", flush=True)
    return growth


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=CHURNS, default=list(CHURNS))
    options = parser.parse_args()
    print(f"{options.count:,} of each kind {'MB after':>23} {'MB after':>9}", flush=True)
    print(f"{'kind':38} {'a tenth':>9} {'all':>9} {'growth':>8} {'seconds':>8}", flush=True)
    try:
        growths = [grown(kind, options.count) for kind in options.only]
    except (AssertionError, OSError, RuntimeError) as error:
        print(f"nothing was measured: {error!r}", file=sys.stderr)
        return 2
    return int(max(growths) > GROWTH)


if __name__ == "__main__":
    sys.exit(main())
