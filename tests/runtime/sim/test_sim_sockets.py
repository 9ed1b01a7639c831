"""Connections between actors and plain clients: cut, late, full, closed, reset."""

from __future__ import annotations

import errno
import socket

import pytest

from warren.runtime.process import Process
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import FIRST_NOW, Conditions, SimWorld

SEEDS = range(40)
PORT = 7


class Server(Process):
    """Listens and has a `Talker` for each client."""

    def __init__(self):
        super().__init__()
        self.talkers = []

    async def on_start(self, sender, kind, port=PORT, backlog=8):
        found = await self.run_blocking(self.sockets.resolve, "", port)
        family, address = found[0]
        self.listening = self.sockets.listen(family, address, backlog)
        self.kind = kind
        self.watch(self.listening.fileno())
        return self.listening.getsockname()

    def on_readable(self, fd):
        try:
            sock, peer = self.listening.accept()
        except BlockingIOError:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        talker = self.createActor(self.kind)
        self.talkers.append(talker)
        self.send(talker, ("start", sock.detach(), peer))

    def on_talkers(self, sender):
        return list(self.talkers)

    def on_deafen(self, sender):
        self.unwatch(self.listening.fileno())
        return True

    def on_hang_up(self, sender):
        self.unwatch(self.listening.fileno())
        self.listening.close()
        return True


class Talker(Process):
    """Keeps each piece that it reads, and the error that ended the connection."""

    def __init__(self):
        super().__init__()
        self.read = []
        self.trouble = None

    def on_start(self, sender, fd, peer):
        self.sock, self.fd, self.peer = self.sockets.adopt(fd), fd, peer
        self.watch(fd)

    def on_readable(self, fd):
        try:
            data = self.sock.recv(1000)
        except OSError as error:
            self.trouble = error
            self.unwatch(fd)
        else:
            self.read.append(data)
            if not data:
                self.unwatch(fd)

    def on_told(self, sender):
        return self.peer, self.read, self.trouble

    def on_say(self, sender, data):
        try:
            return self.sock.send(data)
        except OSError as error:
            return error

    def on_close(self, sender):
        self.unwatch(self.fd)
        self.sock.close()
        return self.sock.fileno()


class Deaf(Talker):
    """Never reads; counts how often it could write."""

    writable = 0

    def on_start(self, sender, fd, peer):
        self.sock, self.fd, self.peer = self.sockets.adopt(fd), fd, peer

    def on_flood(self, sender):
        sent = 0
        try:
            while True:
                sent += self.sock.sendmsg([b"12345", b"67"])
        except BlockingIOError:
            self.watch(self.fd, False, True)
            return sent

    def on_writable(self, fd):
        self.writable += 1
        self.watch(fd, False, False)

    def on_told(self, sender):
        return self.writable


class Client:
    def __init__(self, words=()):
        self.words = words
        self.heard = []
        self.events = []

    def on_connected(self, stream):
        self.events.append("connected")
        for word in self.words:
            stream.write(word)

    def on_data(self, stream, data):
        self.heard.append(data)

    def on_lost(self, stream, reason):
        self.events.append(reason)


class Stage:
    """A machine that listens."""

    def __init__(self, seed=1, kind=Talker, conditions=None, **start):
        self.world = SimWorld(seed, conditions=conditions)
        self.port = SimPort(self.world.machine("a").boot())
        self.server = self.port.base.newPrimaryActor(Server)
        self.address = self.port.request(self.server, ("start", kind, *start.values()))

    def connect(self, *words, **options):
        client = Client(words)
        stream = self.world.connect("a", self.address[1], client, **options)
        assert self.world.settle()
        return client, stream

    def talker(self, number=-1):
        return self.port.request(self.server, ("talkers",))[number]

    def ask(self, *message, number=-1):
        answer = self.port.request(self.talker(number), message)
        assert self.world.settle()
        return answer


def test_bytes_come_in_order_and_cut_anywhere():
    """Bytes arrive in order but are cut anywhere: reads return other pieces than were written."""
    cuts = set()
    for seed in SEEDS:
        stage = Stage(seed)
        stage.connect(b"one ", b"two")
        _, read, _ = stage.ask("told")
        assert b"".join(read) == b"one two"
        cuts.add(tuple(map(len, read)))
    assert len(cuts) > 6 and (7,) in cuts and any(1 in lengths for lengths in cuts)


def test_no_cuts_if_the_conditions_say_so():
    """If the conditions forbid cuts, a read returns one or several whole writes."""
    for seed in SEEDS:
        stage = Stage(seed, conditions=Conditions(cut_one_in=0))
        stage.connect(b"one ", b"two")
        assert stage.ask("told")[1] in ([b"one ", b"two"], [b"one two"])


def test_bytes_are_late():
    """Bytes arrive late, by the longest delay of the link at most."""
    stage = Stage()
    stage.world.link("slow", "a").max_delay = 20.0
    before = stage.world.time
    arrived = []
    for _ in range(20):
        stage.connect(b"hello", host="slow")
        arrived.append(stage.world.time - before)
        before = stage.world.time
    assert 1 < len({round(delay / 5) for delay in arrived}) and max(arrived) <= 40.1


def test_both_sides_know_one_another():
    stage = Stage()
    _, stream = stage.connect()
    assert stage.address == ("0.0.0.0", PORT)
    assert stage.ask("told")[0] == ("127.0.0.1", 40_001)
    assert stream.name == "client-1"


def test_an_answer_is_heard():
    stage = Stage()
    client, _ = stage.connect(b"hello")
    assert stage.ask("say", b"good day") == 8
    assert client.events == ["connected"] and b"".join(client.heard) == b"good day"


def test_nobody_listens():
    stage = Stage()
    refused = Client()
    stage.world.connect("a", 99, refused)
    stage.world.connect("nowhere", PORT, refused)
    stage.world.settle()
    assert refused.events == ["refused", "refused"]


def test_the_backlog_is_bounded():
    stage = Stage(kind=Talker, port=PORT, backlog=2)
    stage.port.request(stage.server, ("deafen",))
    events = [stage.connect()[0].events for _ in range(4)]
    assert events == [["connected"], ["connected"], ["refused"], ["refused"]]


def test_closing_a_listening_socket_resets_who_waits_and_frees_the_port():
    stage = Stage()
    stage.port.request(stage.server, ("deafen",))
    waiting, _ = stage.connect()
    stage.port.request(stage.server, ("hang_up",))
    stage.world.settle()
    assert waiting.events == ["connected", "reset"]
    assert stage.connect()[0].events == ["refused"]
    again = stage.port.base.newPrimaryActor(Server)
    assert stage.port.request(again, ("start", Talker)) == ("0.0.0.0", PORT)


def test_a_port_is_taken_once():
    stage = Stage()
    other = stage.port.base.newPrimaryActor(Server)
    stage.port.tell(other, ("start", Talker))
    stage.world.settle()
    [(_, error)] = stage.world.crashes
    assert isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def test_port_zero_is_any_free_one():
    stage = Stage(kind=Talker, port=0)
    assert stage.address[1] > 1024
    assert stage.connect()[0].events == ["connected"]


# -- ends ------------------------------------------------------------------------------------------------


def test_the_client_closes():
    """The end of the stream arrives after all data."""
    for seed in SEEDS:
        stage = Stage(seed)
        _, stream = stage.connect(b"goodbye")
        stream.close()
        stage.world.settle()
        _, read, trouble = stage.ask("told")
        assert b"".join(read) == b"goodbye" and read[-1] == b"" and trouble is None
        assert not stream.is_open


def test_the_client_resets():
    stage = Stage()
    client, stream = stage.connect(b"goodbye")
    stream.reset()
    stage.world.settle()
    _, read, trouble = stage.ask("told")
    assert b"".join(read) == b"goodbye" and isinstance(trouble, ConnectionResetError)
    assert isinstance(stage.ask("say", b"?"), BrokenPipeError)
    stream.write(b"too late")
    assert client.events == ["connected"], "the client that resets gets no notice"


def test_the_actor_closes():
    stage = Stage()
    client, stream = stage.connect(b"hello")
    stage.ask("say", b"goodbye")
    assert stage.ask("close") == -1
    assert b"".join(client.heard) == b"goodbye" and client.events == ["connected", "closed"]
    assert not stream.is_open


def test_closing_with_octets_unread_is_a_reset():
    stage = Stage(kind=Deaf)
    client, _ = stage.connect(b"hello")
    stage.ask("close")
    assert client.events == ["connected", "reset"]


def test_writing_to_a_closed_socket_is_answered_with_a_reset():
    """The first write succeeds, because the close has not arrived yet."""
    stage = Stage()
    _, stream = stage.connect()
    stream.close()
    stage.world.settle()
    assert stage.ask("say", b"are you there?") == 14
    assert isinstance(stage.ask("say", b"no?"), BrokenPipeError)


def test_a_client_that_left_before_it_was_accepted():
    stage = Stage()
    stage.port.request(stage.server, ("deafen",))
    _, stream = stage.connect(b"hello")
    stream.reset()
    stage.world.settle()
    assert stage.world.crashes == []


# -- full buffers ----------------------------------------------------------------------------------------


def test_a_receiver_that_does_not_read_stops_the_writer():
    """A write takes what fits, then nothing; there is room again after the other end has read."""
    stage = Stage(kind=Deaf)
    client, stream = stage.connect(buffer=50)
    stream.stall()
    assert stage.ask("flood") == 50
    assert stage.ask("told") == 0 and client.heard == []
    stream.stall(False)
    stage.world.settle()
    assert b"".join(client.heard) == (b"1234567" * 8)[:50]
    assert stage.ask("told") == 1


def test_a_client_waits_as_well():
    stage = Stage(kind=Deaf, conditions=Conditions(socket_buffer=10))
    _, stream = stage.connect(b"x" * 64)
    assert stream.unsent == 54


def test_a_slow_reader_gets_all_in_the_end():
    for seed in SEEDS:
        stage = Stage(seed, conditions=Conditions(socket_buffer=10))
        words = bytes(range(200))
        _, stream = stage.connect(words)
        assert b"".join(stage.ask("told")[1]) == words and stream.unsent == 0


# -- descriptors -----------------------------------------------------------------------------------------


def test_descriptors_are_used_again():
    """A new descriptor gets the lowest free number, as from a kernel."""
    stage = Stage()
    for number in range(3):
        stage.connect(b"%d" % number)
    fds = lambda: sorted(stage.port.base.sockets.open)  # noqa: E731
    assert fds() == [3, 4, 5, 6]
    stage.ask("close", number=1)
    assert fds() == [3, 4, 6]
    stage.connect(b"new")
    assert fds() == [3, 4, 5, 6]
    assert b"".join(stage.ask("told")[1]) == b"new"


def test_what_is_not_open_cannot_be_used():
    stage = Stage()
    stage.connect()
    stage.ask("close")
    sockets = stage.port.base.sockets
    for use in (lambda: sockets.adopt(4), lambda: sockets.watch(None, 4, 1), lambda: sockets.adopt(3)):
        with pytest.raises(OSError) as raised:
            use()
        assert raised.value.errno == errno.EBADF
    assert stage.ask("say", b"?").errno == errno.EBADF


def test_an_actor_that_crashes_with_its_socket_leaves_no_watch():
    """As in an operating system the descriptor stays open, but no actor is called for it."""
    stage = Stage()
    _, stream = stage.connect()
    stage.port.tell(stage.talker(), ("nonsense",))
    stage.world.settle()
    stream.write(b"anybody?")
    assert stage.world.settle()
    assert stage.port.base.sockets.owners.keys() == {3}


# -- links -----------------------------------------------------------------------------------------------


def test_a_cut_link_holds_bytes_back():
    """A cut link, in either direction, holds data back, loses none, and keeps its order."""
    stage = Stage()
    client, stream = stage.connect(b"1")
    stage.world.link("clients", "a").cut()
    stream.write(b"2")
    stream.write(b"3")
    stream.close()
    stage.world.run(seconds=60.0)
    assert b"".join(stage.ask("told")[1]) == b"1"
    assert stage.world.time > FIRST_NOW + 60.0
    stage.world.mend()
    stage.world.settle()
    read = stage.ask("told")[1]
    assert b"".join(read) == b"123" and read[-1] == b""
    assert client.events == ["connected"]
