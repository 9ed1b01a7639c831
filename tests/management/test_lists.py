"""Lists and objects of the API: pages, columns, order, names with any characters, and what they show of a client's
work.
"""

import asyncio
import http.client
import json
import random
import re
import socket
from pathlib import Path
from urllib.parse import quote

import pika
import pytest

from warren.management.answers.listing import SLICE, LongList

from .conftest import PATIENCE, until

VIEW = Path(__file__).parents[2] / "management" / "page" / "views" / "queues.js"
NAMES = ["a/b", "sp ace", "per%cent", "plus+plus", "ünïcode", "quo\"te'", "q?x=1#f", "日本", "..", "a" * 200]


@pytest.fixture(scope="module")
def vhost(api):
    """A virtual host with 23 queues, which differ in `durable` and in their argument `x-max-length`."""
    api("PUT", "/api/vhosts/lists")
    for number in range(23):
        api(
            "PUT",
            f"/api/queues/lists/q{number:02}",
            {"durable": number % 2 == 0, "arguments": {"x-max-length": number}},
        )
    yield "lists"
    api("DELETE", "/api/vhosts/lists")


@pytest.mark.parametrize("size", [1, 2, 7, 23, 100])
@pytest.mark.parametrize("query", ["", "&sort=durable", "&sort=arguments.x-max-length&sort_reverse=true", "&sort=zzz"])
def test_pages_are_the_list(api, vhost, size, query):
    """The pages of a list together are the whole list in its order, with correct counts, and a page beyond the last one
    is 400 (CM-246, CM-247, CM-248).
    """
    whole = api.get(f"/api/queues/{vhost}?x=1{query}")
    assert len(whole) == 23
    found, count = [], 1
    while len(found) < 23:
        page = api.get(f"/api/queues/{vhost}?page={count}&page_size={size}{query}")
        assert (page["page"], page["page_size"], page["item_count"]) == (count, size, len(page["items"]))
        assert (page["total_count"], page["filtered_count"], page["page_count"]) == (23, 23, -(-23 // size))
        found += page["items"]
        count += 1
    assert [row["name"] for row in found] == [row["name"] for row in whole]
    assert api("GET", f"/api/queues/{vhost}?page={count}&page_size={size}")[0] == 400


#: The columns by which the page sorts queues, and one that only the whole objects have.
COLUMNS = [*re.findall(r'sort: "([^"]+)"', VIEW.read_text()), "effective_policy_definition.expires"]


@pytest.mark.parametrize("reverse", ["", "&sort_reverse=true"])
def test_pages_of_queues_are_sorted_as_the_list_is(api, broker, vhost, reverse):
    """A page of queues, of which only its own queues are built, has the order of the whole list by every column, equal
    ones by name (CM-246).
    """
    assert len(COLUMNS) > 15
    before = published(api, vhost)
    for number in range(23):
        for _ in range(number % 4):
            broker.publish(bytes(number), f"q{number:02}", vhost=vhost, delivery_mode=1 + number % 2)
    until(lambda: published(api, vhost), lambda found: found == [was + at % 4 for at, was in enumerate(before)])
    # The rates are those of the tick behind the publishes, then 0, and stay as they are. A rate of 0 differs from a
    # missing one.
    pass_ticks(api, 2)
    assert not any(rates(row) for row in api.get(f"/api/queues/{vhost}"))
    for column in COLUMNS:
        query = f"sort={column}{reverse}"
        whole = [row["name"] for row in api.get(f"/api/queues/{vhost}?{query}")]
        found = [row["name"] for row in api.get(f"/api/queues/{vhost}?page=1&{query}")["items"]]
        assert found == whole, column


def published(api, vhost):
    """How many messages were published to each queue."""
    return [row.get("message_stats", {}).get("publish", 0) for row in api.get(f"/api/queues/{vhost}")]


def pass_ticks(api, count):
    """Return when the statistics of `count` intervals have been taken. A stream of events has the numbers of these in
    comments.
    """
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
    connection.request("GET", "/api/events?get=whoami", headers=api.headers)
    with connection.getresponse() as lines:
        ticks = (int(line[1:]) for line in lines if line.startswith(b":"))
        end = next(ticks) + count
        assert any(tick >= end for tick in ticks), "the stream has ended"
    connection.close()


def rates(row):
    """The rates of a queue that are not 0."""
    stats = row.get("message_stats", {})
    return [
        value["rate"] for value in (*row.values(), *stats.values()) if isinstance(value, dict) and value.get("rate")
    ]


def test_pages_are_filtered_by_name(api, vhost):
    """With `page`, the parameter `name` filters by a part of the name or by a regular expression; without `page` it is
    ignored (CM-247, CM-248).
    """
    page = api.get(f"/api/queues/{vhost}?page=1&name=Q1")
    assert [row["name"] for row in page["items"]] == [f"q1{digit}" for digit in range(10)]
    assert (page["filtered_count"], page["total_count"]) == (10, 23)
    page = api.get(f"/api/queues/{vhost}?page=1&use_regex=true&name={quote('^q(01|02)$')}")
    assert [row["name"] for row in page["items"]] == ["q01", "q02"]
    assert api.get(f"/api/queues/{vhost}?page=1&name=nosuch")["items"] == []
    assert len(api.get(f"/api/queues/{vhost}?name=q01")) == 23


def test_columns_choose_and_descend(api, vhost):
    """`columns` chooses the fields of rows and of single objects, and a dot descends into a field (CM-245)."""
    rows = api.get(f"/api/queues/{vhost}?columns=name,arguments.x-max-length,nosuch")
    assert rows[3] == {"name": "q03", "arguments": {"x-max-length": 3}}
    assert api.get(f"/api/queues/{vhost}/q03?columns=name") == {"name": "q03"}


def test_the_header_x_vhost_names_one_virtual_host(api, vhost):
    """The request header `x-vhost` limits a list to one virtual host (CM-237)."""
    status, rows = api("GET", "/api/queues", headers={"x-vhost": vhost})
    assert status == 200 and {row["vhost"] for row in rows} == {vhost}


def test_names_of_every_kind_survive_the_path(api):
    """A percent-encoded path reaches a queue whose name has any characters (CM-231)."""
    for name in NAMES:
        path = f"/api/queues/%2F/{quote(name, safe='')}"
        assert api("PUT", path, {})[0] == 201, name
        assert api.get(path)["name"] == name
        assert api("DELETE", path)[0] == 204, name
        assert api("GET", path)[0] == 404, name


def test_the_properties_key_finds_its_binding_and_no_other(api):
    """The properties key of a binding, percent-encoded, finds and deletes this binding and no other, whatever its
    routing key and arguments are (CM-290, CM-294).
    """
    api("PUT", "/api/exchanges/%2F/keys", {"type": "topic"})
    api("PUT", "/api/queues/%2F/keyed", {})
    base = "/api/bindings/%2F/e/keys/q/keyed"
    random.seed(1)
    keys = [
        "",
        "a b",
        "~",
        "a~b",
        "%2F",
        "+",
        "a+b",
        "ü",
        "#.*",
        *("".join(random.choices("a~+%/ é", k=5)) for _ in range(20)),
    ]
    wanted = {(key, arguments) for key in keys for arguments in ("{}", '{"x": 1}')}
    for key, arguments in sorted(wanted):
        body = {"routing_key": key, "arguments": json.loads(arguments)}
        assert api("POST", base, body)[0] == 201
        location = api.answer_headers["location"].partition("/")[2]
        row = api.get(f"{base}/{location}")
        assert (row["routing_key"], row["arguments"]) == (key, json.loads(arguments))
        assert quote(row["properties_key"], safe="") == location
    rows = api.get(base)
    assert {(row["routing_key"], json.dumps(row["arguments"])) for row in rows} == wanted
    for row in rows:
        assert api("DELETE", f"{base}/{quote(row['properties_key'], safe='')}")[0] == 204
        left = {each["properties_key"] for each in api.get(base)}
        assert row["properties_key"] not in left
    assert api.get(base) == []
    assert api("DELETE", f"{base}/nosuch")[0] == 404


@pytest.mark.parametrize("key", ["a.#", "a b", "%"])
def test_a_binding_is_found_by_its_key_as_it_is_too(api, key):
    """A binding is found by its properties key without a second percent-encoding, too: RabbitMQ accepts `…/a.%23` and
    `…/a.%2523`, and scripts rely on the first.
    """
    api("PUT", "/api/queues/%2F/keyed", {})
    base = "/api/bindings/%2F/e/amq.topic/q/keyed"
    for body in ({"routing_key": key}, {"routing_key": key, "arguments": {"x": 1}}):
        assert api("POST", base, body)[0] == 201
    rows = api.get(base)
    for row in rows:
        assert api.get(f"{base}/{row['properties_key']}") == row
    assert api("DELETE", f"{base}/~")[0] == 404
    assert api("DELETE", f"{base}/{rows[0]['properties_key']}")[0] == 204
    assert api.get(base) == rows[1:]
    assert api("DELETE", f"{base}/{rows[1]['properties_key']}")[0] == 204
    assert api("DELETE", "/api/queues/%2F/keyed")[0] == 204


def test_messages_can_be_looked_at_put_back_and_taken(api):
    """`get` returns messages in queue order, and its ack mode decides whether they are put back, removed or
    dead-lettered (CM-263, CM-301).
    """
    api(
        "PUT",
        "/api/queues/%2F/mail",
        {"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}},
    )
    api("PUT", "/api/queues/%2F/dead", {})
    for text in ("one", "two", "three"):
        body = {
            "properties": {"headers": {"n": text}},
            "routing_key": "mail",
            "payload": text,
            "payload_encoding": "string",
        }
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", body) == (200, {"routed": True})

    def get(count, mode, **more):
        path = "/api/queues/%2F/mail/get"
        status, rows = api("POST", path, {"count": count, "ackmode": mode, "encoding": "auto", **more})
        assert status == 200
        return [(row["payload"], row["redelivered"]) for row in rows]

    assert get(5, "ack_requeue_true") == [("one", False), ("two", False), ("three", False)]
    assert get("2", "reject_requeue_true") == [("one", True), ("two", True)]
    assert get(1, "ack_requeue_false", truncate=2) == [("on", True)]
    assert get(1, "reject_requeue_false") == [("two", True)]
    assert api.get("/api/queues/%2F/mail")["messages"] == 1
    assert api.get("/api/queues/%2F/dead")["messages"] == 1
    assert api("DELETE", "/api/queues/%2F/mail/contents")[0] == 204
    assert api.get("/api/queues/%2F/mail")["messages"] == 0


def test_what_a_client_does_is_seen(api, broker):
    """The API shows a client's connection, channel, consumer and message counters, and a DELETE closes the connection
    with the reason given (CM-240, CM-271, CM-276, CM-277, CM-278, CM-279).
    """
    client = pika.BlockingConnection(pika.URLParameters(f"{broker.url}?connection_attempts=1"))
    client._impl.params.client_properties = {}
    channel = client.channel()
    channel.confirm_delivery()
    channel.queue_declare("seen")
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("seen", lambda *_: None, consumer_tag="tag")
    for _ in range(3):
        channel.basic_publish("amq.topic", "nobody", b"x")
        channel.basic_publish("", "seen", b"xy")
    until(lambda: client.process_data_events(0) or api.get("/api/queues/%2F/seen")["messages_unacknowledged"] == 3)
    queue = api.get("/api/queues/%2F/seen")
    assert (queue["messages"], queue["message_bytes"], queue["consumers"]) == (3, 6, 1)
    assert queue["message_stats"]["publish"] == queue["message_stats"]["deliver"] == 3
    (consumer,) = queue["consumer_details"]
    assert (consumer["consumer_tag"], consumer["prefetch_count"], consumer["ack_required"]) == ("tag", 7, True)
    (row,) = api.get("/api/connections")
    assert (row["user"], row["vhost"], row["channels"], row["protocol"]) == ("guest", "/", 1, "AMQP 0-9-1")
    assert row["recv_oct"] > 0 and isinstance(row["client_properties"], dict)
    path = f"/api/connections/{quote(row['name'], safe='')}"
    assert api.get(path)["name"] == row["name"]
    (found,) = api.get(f"{path}/channels")
    assert (found["number"], found["confirm"], found["consumer_count"]) == (1, True, 1)
    assert found["connection_details"]["name"] == row["name"]
    assert found["message_stats"]["publish"] == found["message_stats"]["confirm"] == 6
    assert found["message_stats"]["drop_unroutable"] == 3
    assert consumer["channel_details"]["name"] == found["name"]
    assert api.get(f"/api/channels/{quote(found['name'], safe='')}")["consumer_details"][0]["consumer_tag"] == "tag"
    assert [each["queue"]["name"] for each in api.get("/api/consumers/%2F")] == ["seen"]
    exchange = api.get("/api/exchanges/%2F/amq.topic")
    assert (exchange["message_stats"]["publish_in"], exchange["message_stats"]["publish_out"]) == (3, 0)
    overview = api.get("/api/overview")
    assert overview["object_totals"]["connections"] == 1 and overview["object_totals"]["consumers"] == 1
    assert api("DELETE", path, headers={"x-reason": "enough"})[0] == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        while True:
            client.process_data_events(1)
    until(lambda: api.get("/api/connections") == [])
    churn = api.get("/api/overview")["churn_rates"]
    assert churn["connection_created"] == churn["connection_closed"]
    assert churn["channel_created"] == churn["channel_closed"]


def test_rates_and_samples_follow_what_happens(api):
    """A queue that is published to has a rate above 0, and samples if the request asks for them (CM-249)."""
    api("PUT", "/api/queues/%2F/rated", {})
    body = {"properties": {}, "routing_key": "rated", "payload": "x", "payload_encoding": "string"}

    def rate():
        api("POST", "/api/exchanges/%2F/amq.default/publish", body)
        return api.get("/api/queues/%2F/rated").get("message_stats", {}).get("publish_details", {}).get("rate", 0)

    assert until(rate) > 0
    query = "lengths_age=60&lengths_incr=1&msg_rates_age=60&msg_rates_incr=1"
    assert until(lambda: api.get(f"/api/queues/%2F/rated?{query}")["messages_details"].get("samples"))
    assert api.get(f"/api/overview?{query}")["queue_totals"]["messages_details"]["samples"]


def test_definitions_come_back_as_they_were(api):
    """An export, imported again, gives the same objects, in the same virtual host and in another one; a document with
    an error changes nothing (CM-312, CM-313, CM-425).
    """
    api("PUT", "/api/vhosts/copy")
    api("PUT", "/api/queues/copy/q", {"durable": True, "arguments": {"x-max-length": 3}})
    api("POST", "/api/bindings/copy/e/amq.topic/q/q", {"routing_key": "a.#"})
    api("PUT", "/api/policies/copy/p", {"pattern": "^q", "definition": {"max-length": 2}, "apply-to": "queues"})
    whole, one = api.get("/api/definitions"), api.get("/api/definitions/copy")
    assert [row["name"] for row in one["queues"]] == ["q"] and "vhost" not in one["queues"][0]
    assert api.get("/api/queues/copy/q")["effective_policy_definition"] == {"max-length": 2}
    assert api("DELETE", "/api/vhosts/copy")[0] == 204
    assert api("POST", "/api/definitions", {**whole, "queues": [{"name": "x"}]})[0] == 400
    assert api("GET", "/api/vhosts/copy")[0] == 404, "a document with an error changes nothing"
    assert api("POST", "/api/definitions", whole)[0] == 204
    assert api.get("/api/definitions/copy") == one
    assert api("PUT", "/api/vhosts/copy2")[0] == 201
    assert api("POST", "/api/definitions/copy2", one)[0] == 204
    assert api.get("/api/definitions/copy2") == one
    for name in ("copy", "copy2"):
        api("DELETE", f"/api/vhosts/{name}")


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[1]",
        '"x"',
        "NaN",
        '{"arguments": ' + "[" * 5_000,
        b"\xff\xfe",
        '{"arguments": {"x": 1e999}}',
        '{"durable": 3}',
    ],
)
def test_bodies_that_are_wrong_are_400(api, body):
    """A body that is not valid JSON for the object is 400, and declares nothing (CM-233)."""
    status, value = api("PUT", "/api/queues/%2F/never", body)
    assert status == 400 and value["error"] == "bad_request", value
    assert api("GET", "/api/queues/%2F/never")[0] == 404


@pytest.mark.parametrize(
    "path", ["/api/../etc/passwd", "/api/queues/%2F/%00", "/api//", "/api/queues//x", "/API/overview"]
)
def test_odd_paths_are_404(api, path):
    assert api("GET", path)[0] == 404


def test_what_is_opened_and_closed_adds_up_however_it_ends(api, broker):
    """The numbers of opened less closed connections and channels are those that are open, whether one ends by a lost
    socket, a forced close or a clean one (CM-377, CM-428).
    """

    def open_one():
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel()
        connection.channel()
        return connection

    lost, forced, clean = open_one(), open_one(), open_one()

    def counts():
        found = api.get("/api/overview")
        churn, totals = found["churn_rates"], found["object_totals"]
        return [
            (churn[f"{kind}_created"] - churn[f"{kind}_closed"], totals[f"{kind}s"])
            for kind in ("connection", "channel")
        ]

    until(counts, lambda found: found == [(3, 3), (6, 6)])
    lost._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    names = [row["name"] for row in api.get("/api/connections")]
    port = forced._impl._transport._sock.getsockname()[1]
    (name,) = [each for each in names if f":{port} ->" in each]
    assert api("DELETE", f"/api/connections/{quote(name, safe='')}")[0] == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        forced.process_data_events(60)  # answer connection.close, for which the broker would wait 30 s
    clean.close()
    until(counts, lambda found: found == [(0, 0), (0, 0)])


def test_a_long_list_is_built_while_it_is_sent_without_what_is_gone_meanwhile():
    """A queue may be deleted between two pieces of an answer, which was a 500 for the whole list (CM-252)."""
    queues, built = {number: {"name": number} for number in range(3 * SLICE)}, []

    def build(number):
        built.append(number)
        return queues[number]

    async def read():
        found = []
        async for rows in LongList(list(queues), build, queues.__contains__).slices():
            found += [row["name"] for row in rows]
            assert built == found
            queues.pop(len(found) + 1, None)
        return found

    assert asyncio.run(read()) == [number for number in range(3 * SLICE) if number not in (SLICE + 1, 2 * SLICE)]


@pytest.mark.parametrize(("age", "step"), [("501", "1"), ("60", "0"), ("-1", "1"), ("\u0663", "1"), ("9" * 400, "1")])
def test_a_range_that_cannot_be_shown_is_refused(api, age, step):
    """Numbers of hundreds of digits as well, which were a 500 (CM-249)."""
    status, answer = api("GET", f"/api/overview?lengths_age={quote(age)}&lengths_incr={step}")
    assert (status, answer["reason"]) == (400, f"Invalid range parameters: age {age}, incr {step}")
