"""`ScriptedClient`: an AMQP client for simulated connections.

Its script is a generator, which yields the class of the method that it waits for and is sent that method:

    def script(client):
        client.send(methods.QueueDeclare(queue="q"))
        yield methods.QueueDeclareOk
"""

from __future__ import annotations

from warren.amqp import methods
from warren.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.frames import build_content, method_frame

FRAME_MAX = 131_072


class ScriptedClient:
    """Opens a connection and channel 1, then follows its script.

    `deliveries` are (method, body), `heard` is every method in order, `end` is the reason for which the connection was
    lost. With `ack` each delivery is acknowledged at once. The scenario that connects the client sets `stream`.
    """

    def __init__(self, script=None, *, ack=False, heartbeat=0):
        self.script = script
        self.ack = ack
        self.heartbeat = heartbeat
        self.heard = []
        self.deliveries = []
        self.end = None
        self.is_done = False
        self.buffer = bytearray()
        self.content = None
        self.waits_for = None

    # -- what the simulation calls -----------------------------------------------------------------

    def on_connected(self, stream):
        stream.write(PROTOCOL_HEADER)

    def on_data(self, stream, data):
        buffer = self.buffer
        buffer += data
        while len(buffer) >= 7 and len(buffer) >= 8 + (size := int.from_bytes(buffer[3:7], "big")):
            kind, channel, payload = buffer[0], int.from_bytes(buffer[1:3], "big"), bytes(buffer[7 : 7 + size])
            assert buffer[7 + size] == 0xCE
            del buffer[: 8 + size]
            self.frame(kind, channel, payload)

    def on_lost(self, stream, reason):
        self.end = reason

    # -- frames ------------------------------------------------------------------------------------

    def frame(self, kind, channel, payload):
        if kind == FRAME_METHOD:
            method = decode_method(payload)
            if method.HAS_CONTENT:
                self.content = [method, 0, b""]
            else:
                self.method(channel, method, None)
        elif kind in (FRAME_HEADER, FRAME_BODY):
            if kind == FRAME_HEADER:
                self.content[1] = int.from_bytes(payload[4:12], "big")
            else:
                self.content[2] += payload
            method, size, body = self.content
            if len(body) == size:
                self.content = None
                self.method(channel, method, body)

    def send(self, method, body=None, channel=1):
        frame = method_frame(channel, method)
        if body is not None:
            frame += build_content(channel, b"\0\0", body, FRAME_MAX)
        self.stream.write(frame)

    def method(self, channel, method, body):
        self.heard.append(method)
        kind = type(method)
        if kind is methods.ConnectionStart:
            self.send(
                methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"), channel=0
            )
        elif kind is methods.ConnectionTune:
            self.send(methods.ConnectionTuneOk(method.channel_max, FRAME_MAX, self.heartbeat), channel=0)
            self.send(methods.ConnectionOpen("/"), channel=0)
        elif kind is methods.ConnectionOpenOk:
            self.send(methods.ChannelOpen())
        elif kind is methods.ChannelOpenOk:
            if self.script is not None:
                self.script = self.script(self)
                self.go_on(None)
        elif kind is methods.ConnectionClose:
            self.send(methods.ConnectionCloseOk(), channel=0)
        elif kind is methods.BasicDeliver:
            self.deliveries.append((method, body))
            if self.ack:
                self.send(methods.BasicAck(method.delivery_tag))
        if self.waits_for is not None and isinstance(method, self.waits_for):
            self.go_on(method)

    def go_on(self, method):
        try:
            self.waits_for = self.script.send(method)
        except StopIteration:
            self.waits_for = None
            self.is_done = True

    @property
    def bodies(self):
        return [body for _, body in self.deliveries]


def publisher(queue, bodies, confirm=True, window=None):
    """A script that declares `queue` and publishes `bodies`, of which at most `window` are unconfirmed at any time."""

    def script(client):
        client.send(methods.QueueDeclare(queue=queue))
        yield methods.QueueDeclareOk
        if confirm:
            client.send(methods.ConfirmSelect())
            yield methods.ConfirmSelectOk
        confirmed = 0
        for number, body in enumerate(bodies, 1):
            client.send(methods.BasicPublish(routing_key=queue), body)
            while confirm and confirmed < (
                len(bodies) if number == len(bodies) else number + 1 - (window or len(bodies))
            ):
                answer = yield methods.BasicAck
                confirmed = answer.delivery_tag if answer.multiple else confirmed + 1

    return script


def consumer(queue, no_ack=False, prefetch=0):
    """A script that declares `queue` and consumes from it."""

    def script(client):
        client.send(methods.QueueDeclare(queue=queue))
        yield methods.QueueDeclareOk
        if prefetch:
            client.send(methods.BasicQos(prefetch_count=prefetch))
            yield methods.BasicQosOk
        client.send(methods.BasicConsume(queue=queue, consumer_tag="c", no_ack=no_ack))
        yield methods.BasicConsumeOk

    return script
