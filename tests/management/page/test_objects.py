"""What the page shows of connections, channels, exchanges and queues, and what a user does to them there."""

from urllib.parse import quote

import pika
import pytest


@pytest.fixture
def client(broker):
    """A connection with a name, a channel in confirm mode with a prefetch, and a consumer."""
    properties = {"connection_name": "a client with a name"}
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = properties
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=7)
    channel.queue_declare("consumed")
    channel.basic_consume("consumed", lambda *_: None, consumer_tag="the tag")
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def queue(broker, request):
    """A queue whose name must be escaped in HTML and in addresses."""
    name = f"<b>{request.node.name}</b>/ü?#&"
    broker.declare_queue(name, durable=True)
    yield name
    broker.delete_queue(name)


def address(name, kind="queues"):
    return f"#/{kind}/%2F/{quote(name, safe='')}"


def test_a_connection_is_shown_and_closed(screen, client):
    """A connection shows its client properties and channels, and is closed only after the user has confirmed it
    (CM-384, CM-395).
    """
    screen.go("#/connections")
    screen.until(lambda: "a client with a name" in screen.text("main .list tbody"))
    screen.click("main .list tbody a")
    screen.shows("Force close", ".heading")
    screen.until(lambda: "connection_name" in screen.text("main") and "publisher_confirms: true" in screen.text("main"))
    screen.until(lambda: "(1)" in screen.text("main .scroll tbody"))
    screen.press("Force close")
    screen.press("Cancel", "dialog")
    assert client.is_open
    screen.press("Force close")
    screen.press("Close connection", "dialog")
    screen.shows("The connection is closed.", "#messages")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="Closed via management plugin"):
        while True:
            client.process_data_events(1)


def test_a_channel_is_shown_with_its_consumers(screen, client):
    """The list of channels shows their modes, and a channel shows its consumers (CM-396)."""
    screen.go("#/channels")
    screen.until(lambda: "guest" in screen.text("main .list tbody"))
    screen.until(lambda: "C" in screen.texts("main .list tbody td"))
    screen.click("main .list tbody a")
    screen.shows("the tag", "main .scroll tbody")
    screen.shows("publisher confirms", ".pairs")


def test_a_channel_shows_what_it_waits_for(screen, driver):
    """A channel shows what blocks it and for how long. Only the text is tested, from made-up values, because a test's
    broker blocks no client for long (CM-396).
    """
    shown = driver.execute_async_script(
        "const [done] = arguments; import('./details.js').then(({blocked}) => done(["
        "  blocked({alarms: ['memory'], blocked_by: ['orders', 'bills'], blocked_seconds: 65, blocked_share: 0.5}),"
        "  blocked({blocked_by: [], blocked_seconds: 0, blocked_share: 0})]));"
    )
    assert shown == [
        [["Waits for", "the alarm of the memory, orders, bills"], ["Waited", "1 min in all, 50 % of the time now"]],
        [["Waits for", ""], ["Waited", ""]],
    ]


def test_an_exchange_is_added_bound_tried_and_deleted(screen, broker, queue):
    """A user adds an exchange, binds it, sees which queues a message would reach without publishing it, publishes,
    unbinds and deletes (CM-384, CM-400).
    """
    screen.go("#/exchanges")
    screen.until(lambda: "(AMQP default)" in screen.text("main .list tbody"))
    screen.unfold("Add an exchange")
    screen.fill("Add an exchange", name="by/topic", type="topic")
    screen.until(lambda: "by/topic" in screen.text("main .list tbody"))
    screen.go(address("by/topic", "exchanges"))
    screen.unfold("Add a binding")
    screen.fill("Add a binding", destination=queue, routing_key="a.*")
    screen.until(lambda: queue in screen.text("main .scroll tbody"))
    screen.unfold("Where would this go?")
    screen.fill("Where would this go?", routing_key="a.b")
    screen.shows("The message would reach 1 queue:", ".reached")
    assert screen.texts(".reached li") == [queue]
    screen.fill("Where would this go?", routing_key="b")
    screen.shows("The message would reach no queue", ".reached")
    assert broker.queue(queue).messages == 0
    screen.unfold("Publish a message")
    screen.fill("Publish a message", routing_key="a.c", payload="sent by hand")
    screen.shows("The message is published.", "#messages")
    assert broker.get(queue).body == b"sent by hand"
    screen.press("Unbind")
    screen.press("Unbind", "dialog")
    screen.until(lambda: screen.text("main .scroll tbody") == "")
    screen.press("Delete")
    screen.press("Delete exchange", "dialog")
    screen.until(lambda: screen.driver.current_url.endswith("#/exchanges"))
    screen.until(lambda: "by/topic" not in screen.text("main .list tbody"))


def test_a_queue_is_published_to_read_purged_and_deleted(screen, broker, queue, api):
    """A user publishes to a queue, gets messages with and without a requeue, purges and deletes it; the dialog before
    the purge says how many messages would be lost (CM-384, CM-406).
    """
    screen.go(address(queue))
    screen.shows(queue, "h1")
    screen.unfold("Publish a message")
    for text in ("first <i>", "second"):
        screen.fill("Publish a message", payload=text)
    screen.until(lambda: "Ready\n2" in screen.text("main"))
    screen.unfold("Get messages")
    screen.fill("Get messages", count="5")
    screen.until(lambda: screen.texts(".payload") == ["first <i>", "second"])
    screen.fill("Get messages", count="1", ackmode="ack_requeue_false")
    screen.until(lambda: screen.texts(".payload") == ["first <i>"])
    screen.until(lambda: "Ready\n1" in screen.text("main"))
    screen.press("Purge")
    screen.shows("Its 1 ready message will be lost.", "dialog")
    screen.press("Purge", "dialog")
    screen.until(lambda: "Ready\n0" in screen.text("main"))
    screen.press("Delete")
    screen.press("Delete queue", "dialog")
    screen.until(lambda: screen.driver.current_url.endswith("#/queues"))
    assert api("GET", f"/api/queues/%2F/{quote(queue, safe='')}")[0] == 404
    broker.declare_queue(queue, durable=True)


def test_messages_are_browsed_by_number_and_stay(screen, broker, queue, client):
    """A user browses the messages of a queue by number, back and forth, with their states, and none is taken or marked
    as redelivered (CM-407).
    """
    for number in range(60):
        broker.publish(f"message <{number}>", queue)
    channel = client.channel()
    assert channel.basic_get(queue)[2] == b"message <0>"
    screen.go(address(queue))
    screen.unfold("Browse messages")
    screen.fill("Browse messages", first="5")
    screen.until(lambda: screen.texts(".payload") == [f"message <{number}>" for number in range(5, 25)])
    screen.press("Earlier")
    screen.until(lambda: screen.texts(".payload")[0:1] == ["message <0>"])
    assert "unacked: a client holds it" in screen.text("article.got")
    screen.press("Later")
    screen.until(lambda: screen.texts(".payload")[0:1] == ["message <20>"])
    screen.press("Newest")
    screen.until(lambda: screen.texts(".payload") == [f"message <{number}>" for number in range(40, 60)])
    screen.shows("Messages 40 to 59 are shown. The lowest number is 0; the next message gets 60.", "main")
    assert broker.queue(queue).messages == 60
    got = broker.get(queue)
    assert (got.body, got.redelivered) == (b"message <1>", False)
    broker.publish("later", queue)

    def newest():
        screen.press("Newest")
        return screen.texts(".payload")[-1:] == ["later"]

    # The page knows the queue's next number only from statistics, so the new message may not be the last one at the
    # first press.
    screen.until(newest)


def test_a_queue_that_cannot_be_browsed_says_why(screen, broker):
    broker.declare_queue("by priority", arguments={"x-max-priority": 3})
    screen.go(address("by priority"))
    screen.unfold("Browse messages")
    screen.press("Oldest")
    screen.shows("orders its messages by priority or lane", "main details[open] .problem")
    (complaint,) = screen.complaints()
    assert "by-number/by%20priority" in complaint and "400" in complaint
    broker.delete_queue("by priority")


def test_a_queue_that_does_not_exist(screen):
    screen.go("#/queues/%2F/nosuch")
    screen.shows("It may have been deleted.", "main .problem")


def test_a_queue_without_mirrors_has_no_ring(screen, api, queue):
    path = f"/api/rings/%2F/{quote(queue, safe='')}"
    status, answer = api("GET", path)
    assert (status, answer["reason"]) == (404, f"queue '{queue}' in vhost '/' is not mirrored")
    screen.go(address(queue))
    screen.until(lambda: "running" in screen.text(".pairs"))
    assert not screen.find(".ring").is_displayed()


def test_the_trend_of_a_backlog(screen, driver):
    """A queue's trend says how fast its backlog grows or when it will be empty or full, reckoned with the smaller of
    both limits (CM-407).
    """
    limits = "arguments: {'x-max-length': 5000}, effective_policy_definition: {'max-length': 1000}"
    shown = driver.execute_async_script(
        "const [done] = arguments; import('./format.js').then(({trend}) => done(["
        "  [100, 2], [100, -10], [100, 0.01], [0, 0], [1000, 5]].map("
        "    ([messages, rate]) => trend({messages, messages_ready: messages, messages_details: {rate}, "
        f"    {limits}}}))"
        "  .concat(trend({messages: 4, messages_details: {rate: 0.5}}))));"
    )
    assert shown == ["growing 2/s, full in 7 min", "empty in 10 s", "steady", "", "growing 5/s", "growing 0.5/s"]


def test_features_are_badges_with_explanations(screen, driver, broker):
    """Each feature is a badge with an explanation; an argument and a policy that set the same feature share a badge
    (CM-385).
    """
    arguments = {"x-message-ttl": 5, "x-max-length": 9, "x-dead-letter-exchange": "d", "x-single-active-consumer": True}
    broker.declare_queue("badged", durable=True, auto_delete=True, arguments=arguments)
    broker.set_policy("short", "^badged$", {"max-length": 3}, apply_to="queues")
    screen.go(address("badged"))
    # The page may show the queue before the policy, and replaces the badges then. So one script reads the texts and the
    # explanations, until those of the policy are there.
    shown = "return [...document.querySelectorAll('.pairs .badge')].map((each) => [each.innerText, each.title]);"
    badges = {
        "D": "durable: true",
        "AD": "auto-delete: true",
        "TTL": "x-message-ttl: 5",
        "Lim": "x-max-length: 9\nmax-length: 3",
        "DLX": 'x-dead-letter-exchange: "d"',
        "SAC": "x-single-active-consumer: true",
    }
    screen.until(lambda: driver.execute_script(shown) == [*map(list, badges.items())])
    broker.clear_policy("short")
    broker.delete_queue("badged")


def test_the_ring_of_a_mirrored_queue_is_drawn(screen, driver):
    """The ring of a mirrored queue is drawn with the master and what each member lacks, and no name leaves the drawing.
    It is drawn from made-up members, because a broker without a cluster has no mirrors (CM-407).
    """
    members = [
        {"node": "a@h", "role": "master", "lag": 0, "unstored": 0, "messages": 5, "received": 9},
        {"node": "b@h", "role": "mirror", "lag": 2, "unstored": 1, "messages": 5, "received": 7},
        {"node": "<c>@h", "role": "learner", "lag": None, "unstored": None, "messages": None, "received": None},
    ]
    shown = {"epoch": 3, "reign": 1, "members": members, "missing": ["d@h"], "evicted": []}
    draw_ring(driver, shown)
    assert screen.texts(".ring svg text") == ["a@h", "master", "b@h", "2 behind", "<c>@h", "learner"]
    assert [each.get_attribute("class") for each in screen.all(".ring .member")] == [
        *("member master", "member behind", "member silent")
    ]
    screen.shows("View 3, reign 1. Missing: d@h.", "main")
    for count in (2, 3, 4, 5):
        named = [{**members[1], "node": f"warren-{number}@machine-{number}"} for number in range(count)]
        draw_ring(driver, {**shown, "members": named})
        edges = driver.execute_script(
            "const box = (each) => { const {left, right, top, bottom} = each.getBoundingClientRect();"
            "  return [left, -right, top, -bottom]; };"
            "const frame = box(document.querySelector('.ring svg'));"
            "const texts = [...document.querySelectorAll('.ring svg text')];"
            "return texts.map((each) => box(each).map((at, side) => at - frame[side]));"
        )
        assert min(min(each) for each in edges) >= 0, "a text is outside of the drawing"


def draw_ring(driver, shown):
    driver.execute_async_script(
        "const [shown, done] = arguments;"
        "import('./ring.js').then(({ring}) => {"
        "  const drawn = ring('/', 'q', () => {}); drawn.sources[0].take(shown);"
        "  document.querySelector('main').replaceChildren(drawn.element); done();"
        "});",
        shown,
    )
