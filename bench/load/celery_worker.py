"""The Celery application of bench/clients.py, and its worker: one process that runs tasks one at a time.

    python -m warren.bench.load.celery_worker HOST:PORT TASKS SECONDS RESULT

The worker executes TASKS waiting tasks, or as many as it can in SECONDS, and then writes one JSON object to the file
RESULT: the figures since the first task, so that Celery's start is not measured. It then continues with the remaining
tasks until its parent ends it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from celery import Celery
from celery.app.task import Task

from .stopwatch import Stopwatch

QUEUE = "bench.clients.celery"


def application(address: str, execute: Callable[[], None]) -> tuple[Celery, Task]:
    """The application, connected to the broker at `address`, and its only task, which a worker runs as `execute`."""
    app = Celery("bench_clients", broker=f"amqp://guest:guest@{address}//", set_as_current=False)
    # Without remote control and events a worker declares nothing but the queue of its tasks.
    app.conf.update(task_default_queue=QUEUE, task_ignore_result=True, worker_enable_remote_control=False)

    @app.task(name="bench_clients.nothing", ignore_result=True)
    def nothing() -> None:
        execute()

    return app, nothing


class Counter:
    """Counts the tasks of a worker and writes its figures once."""

    def __init__(self, tasks: int, seconds: float, result: Path) -> None:
        self._tasks = tasks
        self._seconds = seconds
        self._result = result
        self._executed = 0
        self._is_written = False
        self._watch: Stopwatch | None = None

    def task(self) -> None:
        self._executed += 1
        if self._watch is None:
            self._watch = Stopwatch()
        elif not self._is_written and (self._executed == self._tasks or self._watch.passed(self._seconds)):
            self._is_written = True
            # The parent reads the file as soon as it exists, so it must appear complete.
            written = self._result.with_suffix(".part")
            written.write_text(json.dumps(self._watch.figures(self._executed - 1)))
            written.rename(self._result)


def main() -> None:
    address, tasks, seconds, result = sys.argv[1:]
    app, _ = application(address, Counter(int(tasks), float(seconds), Path(result)).task)
    app.worker_main(
        ["worker", "--pool=solo", "--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    )


if __name__ == "__main__":
    main()
