"""The window of digests: it remembers at least as many of the last ones as it should, and at most twice as many
(SP-30).
"""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.deduplication.window import NO_KEY, SET_SIZE, Window, digester


def digest(number):
    found = digester("guest").copy()
    found.update(b"%d" % number)
    return found.digest()


@given(st.integers(1, 20), st.lists(st.integers(0, 60), max_size=120))
def test_the_last_digests_are_there(size, numbers):
    window, added = Window(size), []
    for number in numbers:
        if digest(number) not in window:
            window.add(digest(number))
            added.append(number)
    assert all(digest(number) in window for number in added[-size:])
    assert len(window) <= 2 * size
    older = [number for number in added[: -2 * size or None] if number not in added[-2 * size :]]
    assert len(added) <= 2 * size or not any(digest(number) in window for number in older)


def test_a_wide_window_has_many_sets_and_forgets_in_steps():
    size = 4 * SET_SIZE
    window = Window(size)
    for number in range(3 * size):
        window.add(digest(number))
    assert all(digest(number) in window for number in range(2 * size, 3 * size))
    assert not any(digest(number) in window for number in range(size))


def test_what_comes_again_becomes_young_again():
    window = Window(2)
    window.add_all([digest(1), NO_KEY, digest(2), digest(1), digest(1), digest(3)])
    assert NO_KEY not in window
    assert [number for number in (1, 2, 3) if digest(number) in window] == [1, 3]
    window.add_all([digest(4)])
    assert [number for number in (1, 3, 4) if digest(number) in window] == [1, 3, 4]


@given(st.integers(1, 20), st.lists(st.integers(0, 60), max_size=80))
def test_the_parts_are_the_window_the_older_ones_first(size, numbers):
    window = Window(size)
    window.add_all(map(digest, numbers))
    copy, at = Window(size), 0
    while True:
        at, persistent, transient = window.part(at)
        copy.add_all(persistent)
        copy.add_all(transient, True)
        if not at:
            break
    assert all((digest(number) in copy) is (digest(number) in window) for number in range(61))


def test_a_part_of_a_wide_window_is_bounded():
    window = Window(4 * SET_SIZE)
    window.add_all(map(digest, range(6 * SET_SIZE)))
    at, found, sizes = 0, 0, []
    while at or not sizes:
        at, digests, transient = window.part(at)
        assert not transient
        sizes.append(len(digests))
        found += len(digests)
    assert found == len(window) and max(sizes) <= 2 * SET_SIZE and len(sizes) > 4


def test_keys_of_two_users_differ():
    def of(user):
        found = digester(user).copy()
        found.update(b"1")
        return found.digest()

    assert len({of("a"), of("b"), of("a" * 65), of("b" * 65)}) == 4


def test_disposing_ends():
    window = Window(3)
    for number in range(7):
        window.add(digest(number))
    while window.dispose():
        pass
    assert not len(window)


@given(st.lists(st.one_of(st.just("message"), st.integers(1, 30)), max_size=150), st.integers(1, 30))
def test_a_window_that_is_resized_keeps_what_it_can(steps, size):
    """A window that is resized still has the last messages that it had to remember all the time. In `steps`, a number
    resizes it.
    """
    window, count, certain, since = Window(size), 0, 0, 0
    for step in steps:
        if step == "message":
            window.add(digest(count), count % 3 == 0)
            count, certain, since = count + 1, min(certain + 1, size), since + 1
        else:
            size = step
            window.resize(size)
            certain, since = min(certain, size), 0
        assert all(digest(number) in window for number in range(count - certain, count))
        assert window.size == size
        if since >= 2 * size:
            assert len(window) <= 2 * size
    while window.free():
        pass
    assert all(digest(number) in window for number in range(count - certain, count))


@pytest.mark.parametrize("count", [100, SET_SIZE + 100])
def test_a_window_that_becomes_much_wider_gets_more_sets(count):
    window = Window(2 * SET_SIZE)
    for number in range(count):
        window.add(digest(number), number % 2 == 0)
    window.resize(40 * SET_SIZE)
    for number in range(count, 3 * count):
        window.add(digest(number))
    assert all(digest(number) in window for number in range(3 * count))
    assert len(window) == 3 * count and len(window._recent.sets) == 64


def test_transient_digests_come_apart():
    window = Window(4)
    window.add(digest(1), True)
    window.add_all([digest(2), NO_KEY])
    window.add_all([digest(3), digest(2)], True)
    assert window.part(0)[1:] in (([digest(2)], [digest(1), digest(3)]), ([digest(2)], [digest(3), digest(1)]))


def add_if_new(window, numbers, is_transient, as_batch):
    """Add those numbers that the window does not have, at once or one by one."""
    new = [digest(number) for number in dict.fromkeys(numbers) if digest(number) not in window]
    if as_batch:
        window.add_new(new, is_transient)
    else:
        for each in new:
            window.add(each, is_transient)


@given(
    sets=st.sampled_from([1, 4, 512]),
    size=st.integers(1, 20),
    batches=st.lists(st.tuples(st.lists(st.integers(0, 60), max_size=15), st.booleans()), max_size=12),
)
def test_a_batch_is_as_its_digests_one_by_one(sets, size, batches):
    """Windows of all widths have the same digests, whether they come in batches or not. 512 sets are those of a window
    of two million digests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.store.deduplication.window.SET_SIZE", max(1, size // sets))
        batched, single = Window(max(size, sets)), Window(max(size, sets))
        for numbers, is_transient in batches:
            asked = [digest(number) for number in numbers]
            assert batched.has_any(asked) is any(each in single for each in asked)
            add_if_new(batched, numbers, is_transient, True)
            add_if_new(single, numbers, is_transient, False)
            assert len(batched) == len(single) and batched.generation == single.generation
            assert batched._recent.sets == single._recent.sets and batched._recent.transient == single._recent.transient
