"""`InTransit` counts the bytes that were handed to each target and that it has not taken yet, in whatever portions it
takes them.
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
