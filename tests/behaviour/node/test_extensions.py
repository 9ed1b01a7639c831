"""Extension points (AB-80): interceptors of methods, decorators of exchanges and queues."""

from dataclasses import replace

import pytest

from warren import Broker
from warren.amqp import methods as m
from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.extensions import ChannelInterceptor, Content, ExtensionError, Place
from warren.routing.decorators import ExchangeDecorator, QueueDecorator

from ..wire import Refused


@pytest.fixture
def open_channel(own_broker, connect):
    """`open_channel(*extensions)` returns a channel of a broker with these extensions."""
    return lambda *extensions: connect(to=own_broker(extensions=extensions).url).channel()


class Heard(list):
    """The calls of a decorator, as `(method, ...)`."""

    def names(self):
        return [name for name, *_ in self]

    def taken(self):
        calls = list(self)
        self.clear()
        return calls


class Rewriter(ChannelInterceptor):
    """Calls `rewrite(place, method, content)` for the methods given."""

    def __init__(self, rewrite, *methods):
        self.methods = methods
        self.intercept = rewrite


# -- channel interceptors


def test_an_interceptor_rewrites_a_method_before_it_is_checked(open_channel):
    """An interceptor rewrites a method before it is checked: the reserved name would otherwise be refused. It gets no
    methods but those it asks for (AB-80).
    """
    places = []

    def rename(place, method, content):
        places.append((place, type(method), content))
        return replace(method, queue=method.queue.replace("amq.", "mine.")), None

    channel = open_channel(Rewriter(rename, m.QueueDeclare))
    assert channel.queue("amq.q") == "mine.q"
    channel.publish("body", "mine.q")
    channel.expect_ready("mine.q", 1)
    (place, kind, content) = places[0]
    assert (place.vhost, place.user, place.channel, kind, content) == ("/", "guest", 1, m.QueueDeclare, None)
    assert isinstance(place, Place) and place.connection.startswith("127.0.0.1:")
    assert {kind for _, kind, _ in places} == {m.QueueDeclare}


def test_an_interceptor_rewrites_messages(open_channel):
    """An interceptor rewrites method, properties and body of each message, in order, also when many arrive at once
    (AB-80).
    """
    numbers = iter(range(1000))

    def stamp(place, method, content):
        properties = replace(content.properties, headers=table_from({"number": next(numbers)}))
        return replace(method, routing_key="other"), Content(properties, content.body * 2)

    channel = open_channel(Rewriter(stamp, m.BasicPublish))
    channel.queue("q")
    channel.queue("other")
    channel.confirm()
    with channel.client.in_one_piece():
        for body in ("a", "b", "c" * 100_000, "c" * 100_000):
            channel.publish(body, "q", content_type="text/plain")
    assert channel.confirms(1, 4) == ([1, 2, 3, 4], [])
    taken = channel.take("other", 4)
    assert [event.body for event in taken] == [b"aa", b"bb", b"c" * 200_000, b"c" * 200_000]
    assert [event.headers.get("number")[1] for event in taken] == [0, 1, 2, 3]
    assert {event.properties.content_type for event in taken} == {"text/plain"}
    assert channel.ready("q") == 0


def test_what_an_interceptor_makes_is_checked(open_channel):
    """What an interceptor returns is checked as if the client had sent it, for instance a body that is too large now,
    or an exchange that does not exist (AB-80, AB-105).
    """

    def spoil(place, method, content):
        return (
            (method, content._replace(body=bytes(200_000_000)))
            if method.exchange == ""
            else (replace(method, exchange="nowhere"), content)
        )

    channel = open_channel(Rewriter(spoil, m.BasicPublish))
    channel.refuses(
        406, "message size 200000000 is larger than configured max size 134217728", m.BasicPublish(routing_key="q"), b""
    )
    again = channel.client.channel()
    again.refuses(404, "no exchange 'nowhere' in vhost '/'", m.BasicPublish(exchange="amq.fanout"), b"")


def test_an_interceptor_rewrites_acknowledgements(open_channel):
    """An interceptor may rewrite acknowledgements; here each acknowledges all before it (AB-80)."""
    channel = open_channel(Rewriter(lambda place, method, content: (replace(method, multiple=True), None), m.BasicAck))
    channel.queue("q")
    channel.fill("q", "a", "b", "c")
    channel.consume("q")
    channel.deliveries(3)
    channel.ack(3)
    channel.refuses(406, "unknown delivery tag 1", m.BasicReject(1, True))


def test_an_interceptor_refuses(open_channel):
    """An interceptor refuses a method by an AmqpError; messages that were published before stay (AB-80)."""

    def censor(place, method, content):
        if content is None or content.body == b"bad":
            raise AmqpError(403, "not here")
        return method, content

    channel = open_channel(Rewriter(censor, m.BasicPublish, m.QueuePurge))
    channel.queue("q")
    with channel.client.in_one_piece():
        for body in ("good", "bad", "late"):
            channel.publish(body, "q")
    with pytest.raises(Refused) as refused:
        channel.wait(m.ChannelCloseOk)
    close = refused.value.close
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (
        403,
        "ACCESS_REFUSED - not here",
        60,
        40,
    )
    again = channel.client.channel()
    again.expect_ready("q", 1)
    again.refuses(403, "not here", m.QueuePurge(queue="q"))


@pytest.mark.parametrize(
    "intercept",
    [
        lambda place, method, content: 1 / 0,
        lambda place, method, content: (m.QueueDelete(queue="q"), None),
        lambda place, method, content: (method, Content(None, b"")),
    ],
)
def test_a_faulty_interceptor_ends_the_channel(open_channel, connect, intercept):
    """An exception in an interceptor ends the channel as a crash does, and the connection with it; others go on
    (AB-80).
    """
    channel = open_channel(Rewriter(intercept, m.QueuePurge))
    channel.queue("q")
    with pytest.raises(Refused) as refused:
        channel.purge("q")
    assert refused.value.close.reply_code == 541


def test_one_interceptor_for_a_method():
    """A second interceptor for a method, a method that no client sends, and an object that is no extension are errors
    at the start (AB-80).
    """
    first, second = (Rewriter(None, m.BasicGet, m.BasicAck), Rewriter(None, m.BasicAck))
    for extensions, text in (
        ([first, second], "basic.ack has two interceptors"),
        ([Rewriter(None, m.ChannelOpen)], "cannot intercept"),
        ([Rewriter(None, m.BasicDeliver)], "cannot intercept"),
        (["hello"], "'hello' is not an extension"),
    ):
        with pytest.raises(ExtensionError, match=text):
            Broker(extensions=extensions)


# -- exchange decorators


class Tee(ExchangeDecorator):
    """Adds the queue `tee` and the exchange `more` to every route."""

    def __init__(self):
        self.heard = Heard()

    def route(self, exchange, routing_keys, headers):
        if routing_keys == ("refused",):
            raise AmqpError(403, "not that way")
        if exchange.name == "from":
            return [("queue", "tee"), ("exchange", "more"), ("queue", "not there")]
        return ()

    def created(self, exchange):
        self.heard.append(("created", exchange.name))

    def deleted(self, exchange):
        self.heard.append(("deleted", exchange.name))

    def bound(self, vhost, binding):
        self.heard.append(("bound", vhost, binding.source, binding.destination))

    def unbound(self, vhost, binding):
        self.heard.append(("unbound", vhost, binding.source, binding.destination))


def test_a_decorator_adds_destinations(open_channel):
    """A decorator may add queues and exchanges to the destinations of a message (AB-80).

    The alternate exchange still gets messages that have no destination of their own (AB-76).
    """
    channel = open_channel(Tee())
    for queue in ("tee", "own", "spare", "further"):
        channel.queue(queue)
    channel.exchange("spares", "fanout")
    channel.exchange("more", "fanout")
    channel.exchange("from", "direct", {"alternate-exchange": "spares"})
    channel.bind("spare", "spares")
    channel.bind("further", "more")
    channel.bind("own", "from", "key")
    channel.confirm()
    channel.publish("one", "key", "from")
    channel.publish("two", "other", "from")
    assert channel.confirms(1, 2) == ([1, 2], [])
    found = {queue: channel.get_all(queue) for queue in ("own", "tee", "further", "spare")}
    assert found == {"own": [b"one"], "tee": [b"one", b"two"], "further": [b"one", b"two"], "spare": [b"two"]}


def test_a_decorator_refuses(open_channel):
    """A decorator refuses a publish by an AmqpError (AB-80)."""
    channel = open_channel(Tee())
    channel.publish("fine", "refused")  # The default exchange is not decorated.
    channel.refuses(403, "not that way", m.BasicPublish(exchange="amq.topic", routing_key="refused"), b"")


def test_a_decorator_is_notified_of_exchanges_and_bindings(open_channel):
    """A decorator is called for the predefined exchanges first, and then for all exchanges and bindings, including
    bindings that go with an exchange or queue and auto-deleted exchanges (AB-80).
    """
    tee = Tee()
    channel = open_channel(tee)
    heard = tee.heard
    assert set(heard.names()) == {"created"} and ("created", "amq.topic") in heard.taken()
    channel.exchange("x", "fanout")
    channel.exchange("x", "fanout")
    channel.exchange("going", "fanout", auto_delete=True)
    channel.queue("q")
    for exchange in ("x", "x", "going"):
        channel.bind("q", exchange)
    channel.bind_exchange("x", "amq.fanout")
    assert heard.taken() == [
        ("created", "x"),
        ("created", "going"),
        ("bound", "/", "x", "q"),
        ("bound", "/", "going", "q"),
        ("bound", "/", "amq.fanout", "x"),
    ]
    channel.delete("q")
    assert heard.taken() == [("unbound", "/", "x", "q"), ("unbound", "/", "going", "q"), ("deleted", "going")]
    channel.call(m.ExchangeDelete(exchange="x"))
    assert heard.taken() == [("unbound", "/", "amq.fanout", "x"), ("deleted", "x")]
    assert channel.client.channel().queue("q") == "q"


# -- queue decorators


class Watcher(QueueDecorator):
    def __init__(self):
        self.heard = Heard()

    def started(self, queue):
        self.heard.append(("started", queue.name))

    def stopped(self, queue):
        self.heard.append(("stopped", queue.name))

    def consumers_changed(self, queue, consumers):
        self.heard.append(("consumers", queue.name, *[consumer["consumer_tag"] for consumer in consumers]))


def test_a_decorator_is_notified_of_a_queue(open_channel):
    """A decorator is called at the start of a queue, at every change of its consumers, and at its end (AB-80)."""
    watcher = Watcher()
    channel = open_channel(watcher)
    channel.queue("q", auto_delete=True)
    channel.queue("q", auto_delete=True)
    other = channel.client.channel()
    for consuming, tag in ((channel, "a"), (channel, "b"), (other, "c")):
        consuming.consume("q", tag)
    channel.cancel("a")
    channel.get("q")
    channel.close()
    other.cancel("c")
    assert channel.client.channel().queue("next") == "next"
    assert watcher.heard == [
        ("started", "q"),
        ("consumers", "q", "a"),
        ("consumers", "q", "a", "b"),
        ("consumers", "q", "a", "b", "c"),
        ("consumers", "q", "b", "c"),
        ("consumers", "q", "c"),
        ("consumers", "q"),
        ("stopped", "q"),
        ("started", "next"),
    ]


def test_a_decorator_is_notified_of_a_stop_of_the_broker():
    """A decorator is called when the broker stops: a queue has stopped when `stop` returns, and starts anew with the
    next broker (AB-80).
    """
    watcher = Watcher()
    broker = Broker(extensions=[watcher])
    for _ in range(2):
        with broker:
            broker.declare_queue("q")
    assert watcher.heard == [("started", "q"), ("stopped", "q")] * 2


def test_every_decorator_is_notified_of_the_end_of_a_queue(open_channel):
    """Every decorator is called at the end of a queue, even if another one has failed, whose exception is only logged
    (AB-80).
    """

    class Failing(QueueDecorator):
        def stopped(self, queue):
            raise ValueError(queue.name)

    watcher = Watcher()
    channel = open_channel(Failing(), watcher, Failing())
    channel.queue("q")
    assert channel.call(m.QueueDelete(queue="q")).message_count == 0
    assert watcher.heard.names() == ["started", "stopped"]


def test_a_decorator_is_notified_of_a_restart(own_broker, connect):
    """A decorator cannot refuse anything: if it fails, the queue crashes and its supervisor restarts it (AB-80)."""

    class Failing(Watcher):
        def consumers_changed(self, queue, consumers):
            super().consumers_changed(queue, consumers)
            if self.heard.names().count("consumers") == 1:
                raise AmqpError(403, "refused")

    watcher = Failing()
    broker = own_broker(extensions=[watcher])
    channel = connect(to=broker.url).channel()
    channel.queue("q")
    channel.send(m.BasicConsume(queue="q"))
    broker.wait_idle()
    # basic.consume is answered after the restart.
    assert watcher.heard.names() == [
        "started",
        "consumers",
        "stopped",
        "started",
        "consumers",
    ]
