"""Mangled conversations give valid events or an AmqpError, and the same ones on both paths of the reader (AB-38).

`WARREN_FUZZ` sets the number of conversations. `make search` mangles others.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.parser.reader import FrameReader

from ..conversations import conversation, cut, normal, read_all

CONVERSATIONS = int(os.environ.get("WARREN_FUZZ", "20000"))
PARTS = 4
CREDIT = dict.fromkeys((1, 2, 3, 300, 0xCE), 1000)


def mangle(rng: Random, valid: bytes, other: bytes) -> bytes:
    """`valid` with a few bits, bytes or slices changed, inserted, repeated or removed."""
    data = bytearray(valid)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        what = rng.randrange(7)
        start = rng.randrange(len(data))
        stop = min(len(data), start + rng.choice((1, 2, 8, 40, 200)))
        if what == 0:
            data[start] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[start] = rng.choice((0, 1, 2, 3, 8, 0xCE, 0xFF))
        elif what == 2:
            del data[start:]
        elif what == 3:
            data[start:start] = rng.choice(
                (rng.randbytes(rng.choice((1, 2, 8, 30))), b"\xff\xce", b"\xff\xce" * 20, b"\xce")
            )
        elif what == 4:
            data[start:start] = data[start:stop]
        elif what == 5:
            del data[start:stop]
        else:
            data[start:stop] = other[start:stop]
    return bytes(data)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(60 + CONVERSATIONS // 500)
def test_mangled_conversations_are_events_or_an_amqp_error(part: int, first_seed: int) -> None:
    """Mangled conversations give events or an AmqpError: no other exception, no endless loop, and no more memory than
    the input takes; both paths agree (AB-38).
    """
    rng = Random(first_seed + part)
    pool = [conversation(rng, rng.randint(1, 9))[0][:1000] for _ in range(100)]
    for number in range(CONVERSATIONS // PARTS):
        data = mangle(rng, rng.choice(pool), rng.choice(pool))
        pieces = [data] if number % 4 else cut(rng, data)
        outcomes = []
        for fast in (True, False):
            reader = FrameReader(4096, fast=fast)
            reader.credit = CREDIT
            reader.max_body_size = 10_000
            events, fault = read_all(reader, pieces)
            outcomes.append((normal(events), _reply(fault)))
        assert outcomes[0] == outcomes[1], data


def _reply(fault: AmqpError | None) -> tuple[object, ...] | None:
    if fault is None:
        return None
    assert len(fault.reply_text.encode("utf-8", "surrogateescape")) <= 255
    return fault.code, fault.reply_text, fault.class_id, fault.method_id, fault.fatal
