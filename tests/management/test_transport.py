"""How clients reach the API: paths, origins, headers and bodies, and the settings that change them."""

import base64
import gzip
import http.client
import json
import os
import socket

import pytest

from warren import Broker
from warren.management import app

from .conftest import PATIENCE, Api, ports, until

ORIGIN = "https://dashboard.example"


@pytest.fixture(scope="module")
def broker():
    """A broker on all addresses, with a path prefix, a small body limit, a short idle timeout and one
    allowed origin.
    """
    settings = {
        "management_host": "0.0.0.0",
        "management_path_prefix": "/warren/",
        "management_body_limit": 1_024,
        "management_idle_timeout": 1,
        "management_cors_allow_origins": [ORIGIN],
        "management_cors_max_age": 60,
        "prometheus_per_object_metrics": True,
    }
    with Broker(management=True, management_port=0, prometheus_port=0, management_interval=100, **settings) as broker:
        ports(broker)
        yield broker


@pytest.fixture
def own(api):
    """Call the API below its path prefix."""
    return lambda method, path, *more, **others: api(method, f"/warren{path}", *more, **others)


def test_all_paths_begin_with_the_prefix(api, own):
    assert own("GET", "/api/whoami")[0] == 200
    assert api("GET", "/api/whoami")[0] == 404
    assert api.raw("GET", "/warren/")[0] == 302
    assert api.answer_headers["location"] == "/warren/page/"
    assert api.raw("GET", "/warren/page/")[0] == 200
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert own("POST", "/api/login", "username=guest&password=guest", headers=form)[0] == 200
    assert "Path=/warren" in api.answer_headers["set-cookie"]


def test_the_reference_lists_the_endpoints(api):
    """`/api/` is a page that lists all endpoints with their methods (CM-225)."""
    for path in ("/warren/api/", "/warren/api/index.html"):
        status, text = api.raw("GET", path)
        assert status == 200 and api.answer_headers["content-type"].startswith("text/html")
        assert b"/api/queues/:vhost/:queue" in text and b"DELETE" in text


def test_pages_of_the_named_origins_alone_may_use_the_api(api, own):
    asks = {"origin": ORIGIN, "access-control-request-method": "PUT", "access-control-request-headers": "authorization"}
    assert api.raw("OPTIONS", "/warren/api/queues", headers=asks)[0] == 200
    assert api.answer_headers["access-control-allow-origin"] == ORIGIN
    assert api.answer_headers["access-control-max-age"] == "60"
    assert own("GET", "/api/whoami", headers={"origin": ORIGIN})[0] == 200
    assert api.answer_headers["access-control-allow-origin"] == ORIGIN
    assert own("GET", "/api/whoami", headers={"origin": "https://evil.example"})[0] == 200
    assert "access-control-allow-origin" not in api.answer_headers
    for origin, status in ((ORIGIN, 204), ("https://evil.example", 403)):
        assert own("POST", "/api/definitions", "{}", {"origin": origin, "content-type": "text/plain"})[0] == status


def test_a_body_over_the_limit_is_refused(own):
    refused = {"error": "bad_request", "reason": "Exceeded HTTP request body size limit"}
    assert own("PUT", "/api/queues/%2F/never", {"arguments": {"x": "y" * 1_024}}) == (400, refused)
    assert own("GET", "/api/queues/%2F/never")[0] == 404


def test_a_client_that_sends_nothing_is_disconnected(api):
    with socket.create_connection(("127.0.0.1", api.port), PATIENCE) as idle:
        request = "GET /warren/api/auth HTTP/1.1\r\nhost: x\r\n\r\n"
        idle.sendall(request.encode())
        received = b""
        while piece := idle.recv(65_536):  # until the broker closes the connection
            received += piece
        assert received.startswith(b"HTTP/1.1 200")


def test_guest_may_log_in_from_this_machine_only(broker, api):
    """`guest` may log in over loopback only, and other users from everywhere. The test uses another address of this
    machine, and is skipped if there is none (CM-227, CM-229).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, but chooses an address of this machine
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = probe.getsockname()[0]
    broker.add_user("remote", "pw", tags=["administrator"])

    def ask(path, **headers):
        client = http.client.HTTPConnection(address, api.port, timeout=PATIENCE)
        client.request("GET", f"/warren{path}", headers=headers)
        answer = client.getresponse()
        value = json.loads(answer.read() or "null")
        client.close()
        return answer.status, value

    def basic(user):
        return "Basic " + base64.b64encode(user.encode()).decode()

    refused = {"error": "not_authorized", "reason": "User can only log in via localhost"}
    assert ask("/api/whoami", authorization=basic("guest:guest")) == (401, refused)
    until(lambda: ask("/api/whoami", authorization=basic("remote:pw"))[0] == 200)
    # The cookie of RabbitMQ's page contains a password, so it is accepted over loopback only (CM-226).
    cookie = "auth=" + base64.b64encode(b"remote:pw").decode()
    assert ask("/api/whoami", cookie=cookie)[0] == 401


def test_metrics_of_each_object_can_be_the_default(broker):
    """A setting makes `/metrics` answer with a series for each object (CM-332)."""
    broker.declare_queue("each")
    client = Api(ports(broker)["http/prometheus"], user=None)
    until(lambda: b'rabbitmq_queue_messages{vhost="/",queue="each"} 0\n' in client.raw("GET", "/metrics")[1])


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/bert, application/json;q=0.1", 200),
        ("application/bert", 406),
        ("application/json", 200),
        ("text/html, */*;q=0.1", 200),
        ("text/html", 406),
    ],
)
def test_json_is_the_one_form_of_answers(own, api, accept, status):
    """Answers are JSON; a client that accepts no JSON gets 406 (CM-234, CM-235)."""
    assert api.raw("GET", "/warren/api/whoami", headers={"accept": accept})[0] == status
    if status == 200:
        assert api.answer_headers["content-type"] == "application/json"


def test_answers_have_headers_that_limit_browsers_and_caches(api, own):
    """Answers have headers against caching and foreign scripts, and are compressed with gzip if the client accepts that
    (CM-236).
    """
    own("GET", "/api/whoami")
    headers = api.answer_headers
    assert headers["cache-control"] == "no-cache"
    assert {each.strip().lower() for each in headers["vary"].split(",")} >= {"accept", "accept-encoding", "origin"}
    assert "script-src 'self'" in headers["content-security-policy"]
    status, text = api.raw("GET", "/warren/api/overview", headers={"accept-encoding": "gzip"})
    assert status == 200 and api.answer_headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(text))["rabbitmq_version"] == "3.10.8"


def test_head_and_wrong_methods(api):
    """HEAD is answered as GET without a body, and another method with 405 and the allowed ones (CM-232)."""
    assert api.raw("HEAD", "/warren/api/overview") == (200, b"")
    assert api.raw("PATCH", "/warren/api/queues/%2F/q") == (405, b"")
    assert api.answer_headers["allow"] == "HEAD, GET, PUT, DELETE, OPTIONS"


@pytest.mark.parametrize("body", [None, "", "null", "{}", '{"unknown": [1]}'])
def test_an_empty_body_is_an_empty_object(own, body):
    """An empty body declares a transient queue, and a transient direct exchange; unknown fields are ignored (CM-238,
    CM-289).
    """
    assert own("PUT", "/api/queues/%2F/bare", body)[0] == 201
    assert own("PUT", "/api/exchanges/%2F/bare", body)[0] == 201
    queue, exchange = own("GET", "/api/queues/%2F/bare")[1], own("GET", "/api/exchanges/%2F/bare")[1]
    assert (queue["durable"], queue["auto_delete"], queue["arguments"]) == (False, False, {})
    assert (exchange["type"], exchange["durable"], exchange["internal"]) == ("direct", False, False)
    for kind in ("queues", "exchanges"):
        assert own("DELETE", f"/api/{kind}/%2F/bare")[0] == 204


def test_booleans_may_be_texts(own):
    """Booleans may be given as texts, and a queue that exists with other properties is refused with both values
    (CM-233, CM-239).
    """
    assert own("PUT", "/api/queues/%2F/texts", {"durable": "true", "auto_delete": "false"})[0] == 201
    assert own("PUT", "/api/queues/%2F/texts", {"durable": True}) == (204, None)
    reason = "inequivalent arg 'durable' for queue 'texts' in vhost '/': received 'false' but current is 'true'"
    assert own("PUT", "/api/queues/%2F/texts", {}) == (400, {"error": "bad_request", "reason": reason})
    wrong = {"error": "bad_request", "reason": ["not_boolean", "zz"]}
    assert own("PUT", "/api/queues/%2F/texts", {"durable": "zz"}) == (400, wrong)
    own("DELETE", "/api/queues/%2F/texts")


def test_a_slash_behind_a_collection_and_a_plus_in_a_name(own):
    """A slash after a collection is accepted, and `+` in a path is a plus and no blank (CM-231)."""
    assert own("PUT", "/api/queues/%2F/a+b", {})[0] == 201
    for path in ("/api/vhosts/", "/api/queues/%2F/", "/api/queues/"):
        assert own("GET", path)[0] == 200
    assert own("GET", "/api/queues/%2F/a%2Bb")[1]["name"] == "a+b"
    assert own("DELETE", "/api/queues/%2F/a+b")[0] == 204


def test_what_is_not_utf8_becomes_replacement_characters():
    """A byte that is not UTF-8, such as of a path of the node, is a replacement character in answers (CM-295)."""
    answer = app._json(200, {"path": os.fsdecode(b"\xc3\xa9\xff\xfe?")}, {})
    assert json.loads(answer.body) == {"path": "é\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}?"}
