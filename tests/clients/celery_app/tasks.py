"""The Celery application of test_celery.py, loaded by its worker process and by the test.

`CELERY_TEST_BROKER` and `CELERY_TEST_BACKEND` are its URLs. Chords need a result backend that can count, which Celery's
rpc:// cannot. With the file system as backend, Celery polls the chord with a task that retries with a countdown, and
all of its messages travel through the broker.
"""

import os

from celery import Celery

app = Celery("tasks", broker=os.environ["CELERY_TEST_BROKER"], backend=os.environ["CELERY_TEST_BACKEND"])
app.conf.update(
    task_default_queue=os.environ["CELERY_TEST_QUEUE"],
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=2,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    result_chord_retry_interval=0.2,
)


# Not shared, because the test loads this module once per backend, and each app must have its own tasks.
@app.task(shared=False)
def add(x, y):
    return x + y


@app.task(shared=False)
def total(numbers):
    return sum(numbers)


@app.task(shared=False, bind=True, max_retries=5)
def fails_twice(self):
    """Raises on the first two attempts and is retried by a message with an ETA."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(shared=False)
def breaks():
    raise ValueError("on purpose")


@app.task(shared=False, acks_late=True)
def late(x):
    return x
