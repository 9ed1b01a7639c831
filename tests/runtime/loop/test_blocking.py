"""Brief blocking calls: those of thousands of processes run one after the other in one thread, and come back to the
loop many at a time.
"""

import gc
import threading
import weakref

import pytest

from warren.runtime.loop.blocking import BlockingPool

WAIT = 300


@pytest.fixture
def pool():
    pool = BlockingPool(4, "test")
    yield pool
    assert pool.close(WAIT)


class Answers:
    """What `done` was called with, by call, and the threads that called it."""

    def __init__(self, expected):
        self.by_call = {}
        self.threads = set()
        self._left = threading.Semaphore(0)
        self._expected = expected

    def of(self, call):
        def done(ok, value):
            self.by_call[call] = ok, value
            self.threads.add(threading.get_ident())
            self._left.release()

        return done

    def wait(self):
        for _ in range(self._expected):
            assert self._left.acquire(timeout=WAIT)


def test_brief_calls_that_wait_take_one_hop_and_each_gets_its_own_answer(pool):
    """Two thousand brief calls that wait are made by one thread, although four may run, and come back to the loop
    together: at a start, thousands of queues look at their files.
    """
    answers, may_go = Answers(2001), threading.Event()
    pool.submit_brief(answers.of("first"), may_go.wait, (WAIT,))
    for number in range(2000):
        pool.submit_brief(answers.of(number), divmod, (number, number % 10))
    may_go.set()
    answers.wait()
    for number in range(2000):
        ok, value = answers.by_call[number]
        if number % 10:
            assert ok and value == divmod(number, number % 10)
        else:
            assert not ok and isinstance(value, ZeroDivisionError)
    assert pool._submitted == 1 and len(answers.threads) == 1


def test_a_brief_call_after_others_have_ended_starts_again(pool):
    for number in range(3):
        answers = Answers(1)
        pool.submit_brief(answers.of(number), str, (number,))
        answers.wait()
        assert answers.by_call == {number: (True, str(number))}


def test_brief_calls_hold_up_no_others(pool):
    answers, may_go = Answers(2), threading.Event()
    pool.submit_brief(answers.of("brief"), may_go.wait, (WAIT,))
    pool.submit(answers.of("other"), may_go.set, ())
    answers.wait()
    assert answers.by_call["brief"] == (True, True)


def test_brief_calls_that_wait_are_dropped_when_the_pool_closes():
    pool, answers = BlockingPool(1, "test"), Answers(1)
    runs, may_go = threading.Event(), threading.Event()

    def block():
        runs.set()
        may_go.wait(WAIT)

    pool.submit_brief(answers.of("first"), block, ())
    assert runs.wait(WAIT)
    pool.submit_brief(answers.of("second"), str, ())
    assert pool.is_busy()
    assert not pool.close(0)
    may_go.set()
    assert pool.close(WAIT) and list(answers.by_call) == ["first"]


def test_no_error_of_a_brief_call_is_left_in_memory(pool):
    """The error of a brief call, whose traceback refers to much, is freed by reference counting; the collector is off
    here.
    """

    class Failed(Exception):
        pass

    def fail():
        raise Failed

    answers, after = Answers(1), Answers(1)
    gc.disable()
    try:
        pool.submit_brief(answers.of("it"), fail, ())
        answers.wait()
        # The thread has let go of the first call before it takes another.
        pool.submit_brief(after.of("next"), str, ())
        after.wait()
        error = weakref.ref(answers.by_call.pop("it")[1])
        assert error() is None
    finally:
        gc.enable()


def test_calls_that_follow_each_other_are_made_by_one_thread(pool):
    """A call wakes one thread, and that is the one that was busy last: its data is still in the processor's cache."""
    together, may_go = Answers(3), threading.Event()
    for number in range(3):
        pool.submit(together.of(number), may_go.wait, (WAIT,))
    may_go.set()
    together.wait()
    assert len(together.threads) == 3
    threads = set()
    for number in range(20):
        one = Answers(1)
        pool.submit(one.of(number), str, (number,))
        one.wait()
        assert one.by_call == {number: (True, str(number))}
        threads |= one.threads
    assert len(threads) == 1


def test_calls_beyond_the_limit_are_made_in_their_order():
    pool, answers, may_go, made = BlockingPool(1, "test"), Answers(6), threading.Event(), []
    pool.submit(answers.of("first"), may_go.wait, (WAIT,))
    for number in range(5):
        pool.submit(answers.of(number), made.append, (number,))
    may_go.set()
    answers.wait()
    assert made == [0, 1, 2, 3, 4] and len(answers.threads) == 1
    assert pool.close(WAIT) and not pool.is_busy()
