"""A broker with its management process, which the tests of one file share, and clients of the HTTP API."""

import base64
import http.client
import json
import re
import time
from urllib.parse import quote

import pytest

from warren import Broker
from warren.actors.contracts.node import to_node

#: Seconds that a test waits for the management process to listen, or for statistics to show what has happened.
PATIENCE = 300.0

#: A sample of Prometheus's text format, and a label of one.
LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (-?[0-9.e+-]+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def ports(broker):
    """Wait until the management process listens, and return its ports by protocol."""
    deadline = time.monotonic() + PATIENCE
    while not (found := broker._running.ask_node(to_node.status())["management"]):
        assert time.monotonic() < deadline, "the management process does not listen"
        time.sleep(0.02)
    return found


def until(look, good=bool):
    """Call `look` until its value is good, and return that value."""
    deadline = time.monotonic() + PATIENCE
    while not good(value := look()):
        assert time.monotonic() < deadline, f"still {value!r}"
        time.sleep(0.02)
    return value


class Api:
    """A client of the API: each call is a request, and returns its status and its JSON."""

    def __init__(self, port, user="guest:guest", headers=None):
        self.port = port
        self.headers = {"content-type": "application/json", **(headers or {})}
        if user is not None:
            self.headers["authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self.answer_headers = {}

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            self.answer_headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read()
        finally:
            connection.close()

    def __call__(self, method, path, body=None, headers=None):
        data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        status, text = self.raw(method, path, data, headers)
        return status, json.loads(text) if text else None

    def get(self, path):
        status, value = self("GET", path)
        assert status == 200, (path, status, value)
        return value

    def as_user(self, user):
        return Api(self.port, user)


@pytest.fixture(scope="module")
def broker():
    with Broker(management=True, management_port=0, prometheus_port=0, management_interval=100) as broker:
        ports(broker)
        yield broker


@pytest.fixture(scope="module")
def api(broker):
    return Api(ports(broker)["http"])


@pytest.fixture
def user(api):
    """`user(tags, vhost)` adds a user with these tags and all permissions in that virtual host, and returns an `Api`
    that is logged in as this user.
    """
    names = []

    def add(tags, vhost="/", name=None):
        name = name or f"user-{tags.replace(',', '-') or 'none'}-{len(names)}"
        names.append(name)
        assert api("PUT", f"/api/users/{quote(name, safe='')}", {"password": "pw", "tags": tags})[0] in (201, 204)
        if vhost is not None:
            rights = {"configure": ".*", "write": ".*", "read": ".*"}
            path = f"/api/permissions/{quote(vhost, safe='')}/{quote(name, safe='')}"
            assert api("PUT", path, rights)[0] in (201, 204)
        return api.as_user(f"{name}:pw")

    yield add
    for name in names:
        api("DELETE", f"/api/users/{quote(name, safe='')}")


def parsed(text):
    """The values by name and labels. It asserts that the text is in Prometheus's format, and that no series comes
    twice.
    """
    found, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types, f"{name} has two types"
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.match(line)
            assert match, line
            name, labels, value = match.groups()
            family = re.sub("_(bucket|sum|count)$", "", name)
            assert types.get(name, "histogram") != "histogram" or types.get(family) == "histogram", name
            key = name, tuple(LABEL.findall(labels or ""))
            assert key not in found, f"{key} comes twice"
            found[key] = float(value)
    return found


@pytest.fixture(scope="module")
def scrape(broker):
    client = Api(ports(broker)["http/prometheus"], user=None)

    def scrape(path="/metrics"):
        status, body = client.raw("GET", path)
        assert status == 200 and client.answer_headers["content-type"].startswith("text/plain; version=0.0.4")
        return parsed(body.decode())

    scrape.client = client
    return scrape
