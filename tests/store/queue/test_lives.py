"""The lives of a queue, from one start to the next, and the gaps that kills leave between their numbers (SP-25), over
kills and clean stops.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from warren.store.journal.log_writer import LogWriter
from warren.store.journal.number_reserve import AHEAD
from warren.store.messages.lives import FIRST_LIFE, GAPS_KEPT, Gap, Lives, decode_lives, encode_lives, lives_of

from ..one_queue import Node

NUMBERS = st.integers(0, (1 << 64) - 1)
GAPS = st.lists(st.builds(Gap, NUMBERS, NUMBERS, st.integers(0, (1 << 32) - 1)), max_size=5).map(tuple)


@given(st.builds(Lives, st.integers(0, (1 << 32) - 1), GAPS))
def test_lives_are_read_as_they_were_written(lives):
    assert decode_lives(encode_lives(lives)) == lives
    assert lives_of({"lives": [lives.life, [list(gap) for gap in lives.gaps]]}) == lives, "as msgpack has them"


def test_the_last_gaps_are_kept():
    lives = FIRST_LIFE
    for number in range(GAPS_KEPT + 6):
        lives = lives.after(range(10 * number, 10 * number + 5))
    assert lives.life == GAPS_KEPT + 6
    assert lives.gaps == tuple(Gap(10 * n, 10 * n + 5, n + 1) for n in range(6, GAPS_KEPT + 6))


def test_an_unclean_end_begins_a_life_and_a_clean_one_does_not(tmp_path):
    node = Node(tmp_path)
    node.publish(10)
    node.sync()
    assert node.queue.lives == FIRST_LIFE
    node.kill()
    first = Gap(10, node.queue.numbers().stop, 1)
    assert node.queue.lives == Lives(1, (first,)) and first.next == 10 + AHEAD
    node.publish(5)
    node.queue = node.opened(node.stop())
    assert node.queue.lives == Lives(1, (first,))
    node.sync()
    node.kill()
    second = Gap(first.next + 5, node.queue.numbers().stop, 2)
    assert node.queue.lives == Lives(2, (first, second))


def test_the_journal_repeats_lives_when_it_gives_up_files(tmp_path):
    node = Node(tmp_path)
    node.publish(10)
    node.sync()
    node.kill()
    lives = node.queue.lives
    for _ in range(2):
        node.queue.segment_writer.flush(True)
        node.sync()
        node.journal.retire(node.journal.rotate())
        batch = node.journal.take_batch()
        node.journal.commit(batch)
        node.queue.durable(node.journal.committed(batch), node.persistent.durable)
        node.journal.unlink_retired(batch)
    node.publish(1)
    node.sync()
    node.kill()
    assert node.queue.lives.gaps[:1] == lives.gaps and node.queue.lives.life == 2


def test_a_writer_never_takes_a_reservation_back():
    writer = LogWriter()
    writer.reserve(1, 16_389)
    writer.skip_to(1, 5)
    assert [part.next_number for part in writer.take()] == [16_389]
