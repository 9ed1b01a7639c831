"""A client without a socket puts the content of a message together again."""

import time

from warren.actors.channel import direct_client
from warren.amqp import methods
from warren.amqp.constants import FRAME_BODY, FRAME_HEADER


def test_a_body_in_many_frames_is_joined_in_time():
    """A body of 100 MB takes as long for each byte as one of 1 MB. While its frames were added one by one, the broker
    did nothing else for a minute.
    """
    assembly = direct_client._MessageAssembly(methods.BasicGetOk(1))
    size, frames = 4_096, 25_000
    began = time.monotonic()
    assert not assembly.add(FRAME_HEADER, bytes(4) + (size * frames).to_bytes(8, "big") + bytes(2))
    done = [assembly.add(FRAME_BODY, bytes(size)) for _ in range(frames)]
    assert done == [False] * (frames - 1) + [True] and assembly.body == bytes(size * frames)
    assert time.monotonic() - began < 30
