"""Both paths of the reader return the expected events of a conversation, however the input is cut (AB-41 to AB-45)."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.amqp.parser.header_patterns import HeaderPattern
from warren.amqp.parser.reader import JOINED_WHOLE, FrameReader

from ..conversations import conversation, cut, kept, normal, publish, read_all, with_ids
from ..strategies import steady


def _reader(rng: Random, fast: bool) -> FrameReader:
    reader = FrameReader(rng.choice((4096, 131072, 0)), fast=fast)
    if rng.random() < 0.9:
        reader.credit = {channel: rng.choice((0, 1, 2, 5, 33, 1 << 40)) for channel in (1, 2, 3, 300, 0xCE)}
    return reader


@given(st.integers(0, 1 << 32), st.integers(1, 120), st.sampled_from((0, 100, JOINED_WHOLE)))
@settings(steady, max_examples=300)
def test_fast_and_slow_return_the_events_of_the_conversation(seed: int, length: int, joined_whole: int) -> None:
    """AB-45: any publishes, acks and methods, on interleaved channels, cut at random, with any credit, whether pieces
    of input are joined as a whole or only as far as a frame needs them.
    """
    rng = Random(seed)
    data, expected = conversation(rng, length)
    pieces = cut(rng, data)
    for fast in (True, False):
        with patch("warren.amqp.parser.reader.JOINED_WHOLE", joined_whole):
            reader = _reader(rng, fast)
            events, fault = read_all(reader, pieces)
        assert fault is None
        assert normal(events) == normal(expected)
        assert kept(reader) == 0


@given(st.integers(0, 1 << 32))
@settings(steady, max_examples=30)
def test_fast_and_slow_agree_while_limits_change(seed: int) -> None:
    """`max_body_size` and `frame_max` may be set at any time and hold from then on."""
    data, _ = conversation(Random(seed), 60)
    outcomes = []
    for fast in (True, False):
        rng = Random(seed)
        reader = FrameReader(131072, fast=fast)
        reader.credit = dict.fromkeys((1, 2, 3, 300, 0xCE), 1 << 20)
        events = []
        for piece in cut(rng, data):
            found, fault = read_all(reader, [piece])
            assert fault is None
            events += found
            reader.max_body_size = rng.choice((1, 100, 250, 1000))
            reader.frame_max = rng.choice((4096, 131072, 0))
        outcomes.append(normal(events))
    assert outcomes[0] == outcomes[1]


@given(st.integers(0, 1 << 32))
@settings(steady, max_examples=75)
def test_a_byte_that_differs_among_messages_that_are_alike(seed: int) -> None:
    """If any byte of one message differs from messages that are otherwise alike, both paths return the same events and
    find the same fault. Messages of one size whose ids differ are compared many at a time.
    """
    rng = Random(seed)
    messages = []
    size = rng.choice((1, 20, 100))
    for _ in range(120):
        frames, _ = publish(rng, 1, ("x", "key"), with_ids(rng), 0)
        body = rng.randbytes(size)
        header = frames[1][:11] + size.to_bytes(8, "big") + frames[1][19:]
        messages.append(frames[0] + header + b"\x03\x00\x01" + size.to_bytes(4, "big") + body + b"\xce")
    # Some of the first 40 teach the reader what the headers are like.
    for _ in range(rng.randint(1, 2)):
        changed = rng.randrange(40, len(messages))
        at = rng.randrange(len(messages[changed]))
        messages[changed] = b"%b%c%b" % (messages[changed][:at], rng.randrange(256), messages[changed][at + 1 :])
    data = b"".join(messages)
    outcomes = []
    for fast in (True, False):
        reader = FrameReader(131072, fast=fast)
        reader.credit = {1: 1 << 20}
        events, fault = read_all(reader, cut(Random(seed), data))
        outcomes.append((normal(events), str(fault)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(("keys", "is_compared"), [(1, True), (2, False), (20, False)])
def test_messages_are_compared_many_at_a_time_only_with_their_like(monkeypatch, keys: int, is_compared: bool) -> None:
    """Messages are compared many at a time only with their like. Where routing keys alternate and have different sizes,
    the message behind one is never like it, so nothing is compared: that would cost more than it saves.
    """
    rng = Random(1)
    compared = []
    count_alike = HeaderPattern.count_alike

    def counted(self, buffer, position, method_size, body_size, most):
        compared.append(most)
        return count_alike(self, buffer, position, method_size, body_size, most)

    monkeypatch.setattr(HeaderPattern, "count_alike", counted)
    data = b""
    for number in range(400):
        size = 50 + number % keys
        frames, _ = publish(rng, 1, ("x", f"key {number % keys:2}"), with_ids(rng), 0)
        header = frames[1][:11] + size.to_bytes(8, "big") + frames[1][19:]
        data += frames[0] + header + b"\x03\x00\x01" + size.to_bytes(4, "big") + rng.randbytes(size) + b"\xce"
    reader = FrameReader(131072)
    reader.credit = {1: 1 << 20}
    _, fault = read_all(reader, [data])
    assert fault is None
    assert bool(compared) == is_compared
