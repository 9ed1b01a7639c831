"""`InTransit` counts the bytes that were handed to each target and that it has not taken yet, in whatever portions it
takes them, and has the dead letters that were sent to none of their targets yet, or to some.
"""

from random import Random

from warren.amqp.frames import build_content
from warren.store.journal.in_transit import HandedOver, InTransit, Taken
from warren.store.messages.message import Origin


def bytes_by_items(found: InTransit, target: int) -> int:
    return sum(item.body_bytes for item in found.of(target))


def test_the_bytes_of_a_target_are_those_of_what_it_has_not_taken():
    random, found, numbers = Random(4), InTransit(), []
    for step in range(300):
        if random.random() < 0.5:
            sizes = [random.randrange(30) for _ in range(random.randrange(1, 6))]
            contents = [build_content(1, b"\0\0", bytes(size), 131072) for size in sizes]
            targets = tuple(random.sample([1, 2, 3], random.randrange(1, 4)))
            handed = HandedOver(targets, step * 100, Origin("", ("k",), True), contents, sum(sizes), True)
            found.add(handed, step)
            found.add(handed, step)  # a record that was repeated
            numbers += range(step * 100, step * 100 + len(contents))
        elif numbers:
            found.take(Taken(random.choice([1, 2, 3]), random.choice(numbers), random.randrange(1, 4)))
        elif step % 50 == 0:
            found.forget(2)
        assert [found.bytes_of(target) for target in (1, 2, 3)] == [bytes_by_items(found, t) for t in (1, 2, 3)]
    found.forget(1)
    assert found.bytes_of(1) == 0


def test_dead_letters_are_sent_to_some_targets_at_a_time():
    """Dead letters are sent in the order in which they were handed over, to at most as many targets as asked for. Until
    they are sent to a target, the record of the journal that has them for it must be repeated as well.
    """
    contents = [build_content(1, b"\0\0", b"body", 131072)]
    found = InTransit()
    first = HandedOver((1, 2, 3, 4, 5), 100, Origin("", ("k",), True), contents, 4, True)
    transient = HandedOver((1, 2), 200, Origin("", ("k",), False), contents, 4, False)
    found.hand_over(first, 1)
    found.hand_over(transient, 1)
    assert found.send(0, 2) is None and not found.has_unsent(0) and len(found) == 5
    assert found.send(1, 2) == (first, (1, 2))
    found.take(Taken(1, 100, 1))
    assert len(found) == 4 and set(found.targets) == {2}
    repeated = [handed.targets for _, handed in found.placed_before(1)]
    assert repeated == [(2,), (3, 4, 5)] and not found.placed_before(0)
    for item, _ in found.placed_before(1):
        item.place = 7
    assert found.send(1, 9) == (first, (3, 4, 5)) and not found.placed_before(6)
    assert [handed.targets for _, handed in found.placed_before(7)] == [(2,), (3,), (4,), (5,)]
    assert found.send(1, 9) == (transient, (1, 2)) and not found.has_unsent(1) and len(found) == 4
