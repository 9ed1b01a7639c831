"""Mutated conversations with a live broker: each ends in a proper close or goes on as a normal one, and the broker lives (AB-38).

`WARREN_FUZZ` is the number of conversations; `WARREN_FUZZ_SEED` starts elsewhere.
"""

from __future__ import annotations

import logging
import os
import socket
from random import Random

import pytest

from warren.amqp.constants import FRAME_METHOD, PROTOCOL_HEADER, REPLY_NAMES
from warren.amqp.decoding import decode_method
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    ChannelClose,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)

from .garble import conversation, mangle
from .wire import PLAIN, HungUp, Wire

CONVERSATIONS = int(os.environ.get("WARREN_FUZZ", "3000"))
SEED = int(os.environ.get("WARREN_FUZZ_SEED", "0"))
PARTS = 6           # test cases, so that they can run side by side

HANDSHAKE = b"".join(
    [
        PROTOCOL_HEADER,
        method_frame(0, ConnectionStartOk(mechanism="PLAIN", response=PLAIN, locale="en_US")),
        method_frame(0, ConnectionTuneOk(2047, 4096, 0)),
        method_frame(0, ConnectionOpen("/")),
    ]
)


def talk(wire: Wire, rng: Random, octets: bytes) -> None:
    """Sends `octets` in pieces, then ends the client's half of the TCP connection."""
    cuts = sorted(rng.randrange(len(octets) + 1) for _ in range(rng.choice((0, 0, 1, 3))))
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            wire.send(octets[start:stop])
        wire.sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass                            # it has hung up already, which is its right


def listen(wire: Wire) -> str:
    """Reads to the end: `closed` by connection.close, or `hung up`. Everything on the way is well formed."""
    try:
        while True:
            found = wire.frame()
            if found.kind != FRAME_METHOD:
                continue
            method = decode_method(found.payload)
            if isinstance(method, ConnectionClose | ChannelClose):
                assert method.reply_text.startswith(REPLY_NAMES[method.reply_code]), method
                assert method.reply_code < 506 or method.reply_code in (530, 540) or method.reply_text.startswith("INTERNAL_ERROR"), method
            if isinstance(method, ConnectionClose):
                return "closed"
    except HungUp:
        return "hung up"


@pytest.fixture
def sound(own, witness, caplog):
    """Afterwards no process has crashed, and others are still served."""
    caplog.set_level(logging.WARNING, "warren.runtime")
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "warren.runtime"] == []
    witness.check()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(60 + CONVERSATIONS // 100)
def test_any_conversation_ends_well(sound, address, part):
    """Half of them are well formed and merely absurd, half have octets changed."""
    rng = Random(f"{SEED} {part}")
    ends = {"closed": 0, "hung up": 0}
    for _ in range(CONVERSATIONS // PARTS):
        octets = b"".join(conversation(rng, rng.randint(3, 30)))
        if rng.random() < 0.5:
            octets = mangle(rng, octets)
        with Wire(address) as wire:
            talk(wire, rng, HANDSHAKE + octets)
            ends[listen(wire)] += 1
    assert min(ends.values()) > 0, ends


def test_any_handshake_ends_well(sound, address):
    """All at once, for most end in three seconds of silence."""
    rng = Random(f"{SEED} handshakes")
    wires = []
    for _ in range(300):
        wire = Wire(address)
        talk(wire, rng, mangle(rng, HANDSHAKE))
        wires.append(wire)
    for wire in wires:
        with wire:
            listen(wire)
