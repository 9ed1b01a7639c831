"""No turn does more work because a client sends very many frames that mean nothing."""

from __future__ import annotations

from warren.amqp import methods as m
from warren.amqp.constants import FRAME_BODY, FRAME_METHOD
from warren.amqp.frames import build_content, frame, method_frame

from .metered_broker import broker, client, metered_broker, turns

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker", "turns"]

MANY = 40_000


def test_a_body_comes_in_very_many_empty_frames(client, turns):
    """A message arrives although very many empty frames stand before its body (AB-40)."""
    channel = client.channel()
    channel.queue("q")
    content = build_content(channel.number, b"\0\0", b"x", 4096)
    header, body = content[:22], content[22:]
    publish = method_frame(channel.number, m.BasicPublish(routing_key="q"))
    client.write(publish + header + frame(FRAME_BODY, channel.number, b"") * MANY + body)
    assert channel.get_all("q") == [b"x"]
    channel.delete("q")


def test_a_client_sends_very_many_faulty_frames(client, turns):
    """After a fault the broker reads what the client sends before it has seen connection.close, faults included."""
    client.write(frame(FRAME_METHOD, 0, b"\xff\xff\xff\xff") * MANY)
    client.write(method_frame(0, m.ConnectionCloseOk()))
    assert client.wait(0, m.ConnectionClose).method.reply_code == 503
