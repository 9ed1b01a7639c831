"""Mutated conversations with a live broker: each ends in a proper close or continues, and the broker lives (AB-38).

`WARREN_FUZZ` is the number of conversations. `make search` has others.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from warren.amqp.constants import FRAME_METHOD, PROTOCOL_HEADER, REPLY_NAMES
from warren.amqp.decoding import decode_method
from warren.amqp.errors import AmqpError
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    ChannelClose,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)

from ..garble import conversation, mangle
from ..wire import PLAIN, TIMEOUT, HungUp, Wire

CONVERSATIONS = int(os.environ.get("WARREN_FUZZ", "1500"))
PARTS = 3

HANDSHAKE = b"".join(
    [
        PROTOCOL_HEADER,
        method_frame(0, ConnectionStartOk(mechanism="PLAIN", response=PLAIN, locale="en_US")),
        method_frame(0, ConnectionTuneOk(2047, 4096, 0)),
        method_frame(0, ConnectionOpen("/")),
    ]
)


CLOSE = method_frame(0, ConnectionClose(200, "", 0, 0))

#: More bytes than a frame may have. They complete a frame whose length was changed at random, for which the broker
#: still waits.
REST = CLOSE * 400


def talk(wire: Wire, rng: Random, octets: bytes) -> None:
    """Send `octets` in pieces of random size."""
    cuts = sorted(rng.randrange(len(octets) + 1) for _ in range(rng.choice((0, 0, 1, 3))))
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            wire.send(octets[start:stop])
    except OSError:
        pass  # the broker may have hung up already


def listen(wire: Wire, timeout: float = TIMEOUT) -> str:
    """Read until the broker closes the connection, answers the client's close or hangs up; every frame must be well
    formed.
    """
    try:
        while True:
            found = wire.frame(timeout)
            if found.kind != FRAME_METHOD:
                continue
            try:
                method = decode_method(found.payload)
            except AmqpError as error:
                # Like RabbitMQ's, a text that quotes the client may contain its bytes, UTF-8 or not.
                assert (found.channel > 0, error.text) == (True, "Malformed UTF-8 in shortstr")
                continue
            if isinstance(method, ConnectionClose | ChannelClose):
                assert method.reply_text.startswith(REPLY_NAMES[method.reply_code]), method
            if isinstance(method, ConnectionClose | ConnectionCloseOk):
                return method.NAME
    except HungUp:
        return "nothing"


@pytest.fixture
def sound(own, witness, caplog):
    """A broker none of whose processes crashes during the test, and that serves other clients after it."""
    caplog.set_level(logging.WARNING, "warren.runtime")
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "warren.runtime"] == []
    witness.check()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(60 + CONVERSATIONS // 100)
def test_any_conversation_ends_well(sound, address, part, first_seed):
    """Half of the conversations are well-formed methods in a senseless order; in the other half bytes are changed."""
    rng = Random(first_seed + part)
    ends = Counter()
    for _ in range(CONVERSATIONS // PARTS):
        octets = b"".join(conversation(rng, rng.randint(3, 30)))
        if rng.random() < 0.5:
            octets = mangle(rng, octets)
        with Wire(address) as wire:
            talk(wire, rng, HANDSHAKE + octets + CLOSE)
            try:
                ends[listen(wire, 0.1)] += 1
            except TimeoutError:
                talk(wire, rng, REST)
                ends[listen(wire)] += 1
    assert set(ends) == {"connection.close", "connection.close-ok"}, ends


def test_any_handshake_ends_well(sound, address, first_seed):
    """Any handshake ends well. They run at the same time, because most end with three seconds of silence."""
    rng = Random(first_seed)
    wires = []
    for _ in range(300):
        wire = Wire(address)
        talk(wire, rng, mangle(rng, HANDSHAKE))
        with suppress(OSError):  # the broker may have hung up already
            wire.sock.shutdown(socket.SHUT_WR)
        wires.append(wire)
    for wire in wires:
        with wire:
            listen(wire)
