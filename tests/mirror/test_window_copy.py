"""A learner of a queue that deduplicates remembers the same messages as the other replicas (SP-31)."""

from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.actors.queue.master.deduplication import Deduplication
from warren.mirror import instructions
from warren.mirror.accepted import tell_accepted
from warren.mirror.sync.window_copy import WindowCopy
from warren.store.deduplication.window import DIGEST_SIZE, Window
from warren.store.messages.message import Origin

DIGESTS = st.lists(st.binary(min_size=DIGEST_SIZE, max_size=DIGEST_SIZE), max_size=5)


def digest(number):
    return number.to_bytes(2, "big") + bytes(DIGEST_SIZE - 3) + b"\1"


class Log:
    """Records what the disk would have."""

    def __init__(self):
        self.has = []

    def record(self, first, digests):
        self.has += digests

    def copied(self, digests):
        self.has = self.has + digests if digests else []


def deduplication_of(size):
    log = Log()
    return Deduplication(Window(size), log), log


@given(st.data())
def test_a_learner_remembers_the_last_messages(data):
    """After the copy the learner remembers the last messages, whatever the master accepted meanwhile and whatever the
    learner remembered from an earlier life.
    """
    size = data.draw(st.integers(1, 12))
    source = Window(size)
    learner, log = deduplication_of(size)
    learner.window.add_all(map(digest, data.draw(st.lists(st.integers(500, 540), max_size=30))))
    accepted = []

    def accept():
        for _ in range(data.draw(st.integers(0, 2 * size))):
            number = len(accepted) + 1
            accepted.append(number)
            source.add(digest(number), number % 3 == 0)
            learner.follow(number, [digest(number)], number % 3 != 0)

    accept()
    copy = WindowCopy(learner)
    copy.begin(7)
    assert copy.is_too_early(6) and not copy.is_too_early(7)
    for _ in range(200):
        if copy.is_done:
            break
        # One part for each set, so that there are several.
        sets = [
            part
            for each in (*source._older, source._recent)
            for part in ((each.sets[0], []), ([], (each.transient or [()])[0]))
        ]
        following, part = (copy.at + 1) % len(sets), list(map(list, sets[copy.at]))
        generation = source.generation
        if data.draw(st.integers(0, 3)) == 0:
            accept()
        copy.take(generation, following, *part)
    assert copy.is_done and learner.came_meanwhile is None
    remembered = Window(size)
    remembered.add_all(log.has)
    for number in accepted[-size:]:
        assert digest(number) in learner.window
        # A transient message is lost when all nodes stop, so its digest must not be remembered afterwards.
        assert (digest(number) in remembered) is (number % 3 != 0)


def test_a_source_that_has_moved_on_is_asked_from_the_beginning():
    learner, _ = deduplication_of(4)
    copy = WindowCopy(learner)
    copy.begin(0)
    copy.take(1, 1, [digest(1)], [])
    assert copy.at == 1
    assert copy.take(2, 0, [digest(2)], []) is None
    assert copy.at == 0 and not copy.is_done
    old = learner.window
    assert copy.take(2, 0, [digest(3)], []) is old
    assert digest(3) in learner.window and digest(1) not in learner.window


@given(DIGESTS, st.binary(max_size=30))
def test_digests_travel_with_their_messages(digests, content):
    kind, encoded = instructions.publish_once(content, digests)
    assert instructions.published_once(encoded) == (digests, content)
    assert instructions.run_in((kind, encoded)) == content


@given(st.integers(0, 1 << 60), DIGESTS, st.booleans())
def test_digests_travel_alone(first, digests, is_persistent):
    kind, encoded = instructions.accepted(first, digests, is_persistent)
    assert instructions.accepted_in(encoded) == (first, digests, is_persistent)
    assert instructions.run_in((kind, encoded)) is None


@pytest.mark.parametrize("is_followed", [True, False])
def test_the_master_tells_its_mirrors(is_followed):
    """An instruction for a publish carries the digests; if the messages have already left, the digests have an
    instruction of their own.
    """
    mirrored = SimpleNamespace(is_followed=is_followed, out=[])
    tell_accepted(mirrored, 3, [digest(1)], True)
    if not is_followed:
        assert mirrored.out == []
        return
    publish = instructions.publish(4, Origin("", ("q",), True), [bytes(20)], 4, None, ())
    mirrored.out.append(publish)
    tell_accepted(mirrored, 4, [digest(2)], True)
    assert mirrored.out == [
        instructions.accepted(3, [digest(1)], True),
        instructions.publish_once(publish[1], [digest(2)]),
    ]


def test_a_new_master_confirms_no_duplicate_before_the_first_message_is_safe_on_all_members():
    deduplication, _ = deduplication_of(10)
    deduplication.follow(1, [digest(1)], True)
    deduplication.begin()
    part = ("channel", 1, 1, True)
    assert deduplication.dropped_duplicates([digest(1)], [part]) == []
    assert deduplication.settled() == [part]
    assert deduplication.dropped_duplicates([digest(1)], [part]) == [part]
    assert deduplication.settled() == []


def test_a_queue_that_is_mirrored_no_more_tells_nobody_and_lets_no_duplicate_wait():
    deduplication, _ = deduplication_of(10)
    told = []
    deduplication.tell_mirrors = lambda *accepted: told.append(accepted)
    deduplication.follow(1, [digest(1)], True)
    deduplication.begin()
    part = ("channel", 1, 1, True)
    deduplication.dropped_duplicates([digest(1)], [part])
    assert deduplication.end_mirroring() == [part]
    deduplication.accepted(2, [digest(2)], True)
    assert told == []
    assert deduplication.dropped_duplicates([digest(1)], [part]) == [part]


def test_a_learner_remembers_nothing_of_an_earlier_life():
    """A learner forgets what it remembered in an earlier life: as a master it may have accepted messages that no other
    replica has, and their publisher publishes them again.
    """
    deduplication, log = deduplication_of(10)
    deduplication.follow(1, [digest(1)], True)
    old = deduplication.forget()
    assert digest(1) in old and not deduplication.is_known(digest(1)) and log.has == []
