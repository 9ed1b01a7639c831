"""Who may do what with the API: each endpoint for each tag, permissions, logins and cookies."""

import asyncio
import base64
import contextlib
import threading
from types import SimpleNamespace
from urllib.parse import quote

import pika
import pytest

from warren.management.access import GRANTS, REFUSALS
from warren.management.endpoints import ENDPOINTS
from warren.management.handlers import logins

from .conftest import Api, ports, until

#: Values for the parameters in a path. They name nothing that exists, so that no request changes anything.
NAMES = {"vhost": "nosuch%2F", "port": "1", "unit": "days", "within": "1", "node": "nosuch"}

TAGS = ("management", "policymaker", "monitoring", "administrator")


def path_of(pattern):
    segments = [NAMES.get(part[1:], "nosuch") if part.startswith(":") else part for part in pattern.split("/")]
    return "/api/" + "/".join(segments)


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_opens_what_it_grants_and_nothing_else(api, user, tag):
    """Each endpoint refuses the users whose tag does not grant it, with RabbitMQ's reason, and no others (CM-228,
    CM-229, CM-260 to CM-267).
    """
    client = user(tag)
    for pattern, endpoint in ENDPOINTS.items():
        for method, (who, _) in endpoint.methods.items():
            if who is None or pattern in ("reset", "rebalance/queues", "cluster-name") and method != "GET":
                continue
            if method == "PUT" or pattern.startswith(("definitions", "all-configuration")) and method != "GET":
                if tag in GRANTS[who]:
                    continue  # The request is allowed, and would change something.
            status, value = client(method, path_of(pattern))
            refused = {"error": "not_authorised", "reason": REFUSALS[who]}
            if tag in GRANTS[who]:
                assert value != refused, (pattern, method, status)
            else:
                assert (status, value) == (401, refused), (pattern, method)


def test_a_user_without_a_tag_may_do_nothing(user):
    """A user without a tag may not use the API at all (CM-228)."""
    client = user("")
    assert client("GET", "/api/overview") == (401, {"error": "not_authorised", "reason": "Not management user"})


def test_nobody_is_asked_to_log_in(api):
    """A request without a login is answered with 401 and an empty body (CM-229)."""
    status, value = api.as_user(None)("GET", "/api/overview")
    assert (status, value) == (401, None)


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic Z3Vlc3Q=", "Bearer abc", "Basic " + "A" * 4000])
def test_a_login_that_is_none_is_refused(api, header):
    """A malformed login is answered as a wrong password is (CM-226, CM-229)."""
    client = api.as_user(None)
    status, value = client("GET", "/api/overview", headers={"authorization": header})
    assert (status, value) == (401, {"error": "not_authorized", "reason": "Login failed"})
    assert client.answer_headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


def test_a_user_sees_his_own_virtual_hosts_only(api, user):
    """A user with the tag `management` sees the virtual hosts that the user has permissions in, and nothing of the
    others (CM-228, CM-264).
    """
    assert api("PUT", "/api/vhosts/hidden")[0] in (201, 204)
    assert api("PUT", "/api/queues/hidden/secret", {})[0] in (201, 204)
    assert api("PUT", "/api/queues/%2F/open", {})[0] in (201, 204)
    client = user("management")
    for path in ("/api/queues", "/api/exchanges", "/api/bindings", "/api/vhosts", "/api/policies", "/api/vhost-limits"):
        assert "hidden" not in str(client.get(path)), path
    refused = {"error": "not_authorised", "reason": "User not authorised to access virtual host"}
    for path in ("queues/hidden", "queues/hidden/secret", "exchanges/hidden", "bindings/hidden", "policies/hidden"):
        assert client("GET", f"/api/{path}") == (401, refused), path
    assert "secret" in str(user("monitoring").get("/api/queues"))
    api("DELETE", "/api/vhosts/hidden")


def test_the_cookie_of_a_login_is_opaque_and_ends_with_the_password(api, user):
    """The cookie of a login contains no password, cannot be forged or used by another site, and a change of the
    password ends it (CM-226, CM-432).
    """
    user("management", name="cookie monster")
    client = api.as_user(None)
    form = "username=cookie+monster&password=pw"
    assert client("POST", "/api/login", form, headers={"content-type": "application/x-www-form-urlencoded"}) == (
        200,
        "ok",
    )
    said = client.answer_headers["set-cookie"]
    assert "HttpOnly" in said and "SameSite=Strict" in said
    cookie = said.split(";")[0]
    assert base64.b64encode(b"pw").decode().rstrip("=") not in cookie
    assert client("GET", "/api/whoami", headers={"cookie": cookie}) == (
        200,
        {"name": "cookie monster", "tags": ["management"]},
    )
    forged = cookie.replace("auth=", "auth=x")
    assert client("GET", "/api/whoami", headers={"cookie": forged})[0] == 401
    cross = {"cookie": cookie, "sec-fetch-site": "cross-site"}
    assert client("DELETE", "/api/queues/%2F/x", headers=cross)[0] == 403
    assert api("PUT", f"/api/users/{quote('cookie monster')}", {"password": "new", "tags": "management"})[0] == 204
    assert client("GET", "/api/whoami", headers={"cookie": cookie})[0] == 401


def test_the_cookie_of_rabbitmq_is_accepted_over_loopback(api):
    """A cookie of RabbitMQ's page, name and password in Base64, logs in over loopback (CM-226)."""
    cookie = "auth=" + quote(base64.b64encode(b"guest:guest").decode(), safe="")
    status, value = api.as_user(None)("GET", "/api/whoami", headers={"cookie": cookie})
    assert (status, value["name"]) == (200, "guest")


def test_permissions_of_amqp_hold(api, user):
    """What a user does through the API needs the same permissions as over AMQP (CM-229, CM-262, CM-263)."""
    client = user("management", name="limited")
    api("PUT", "/api/permissions/%2F/limited", {"configure": "^mine", "write": "^mine", "read": "^mine"})
    refused = (401, {"error": "not_authorised", "reason": "Access refused."})
    assert client("PUT", "/api/queues/%2F/mine", {})[0] == 201
    assert client("PUT", "/api/queues/%2F/other", {}) == refused
    api("PUT", "/api/queues/%2F/other", {})
    get = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert client("POST", "/api/queues/%2F/other/get", get) == refused
    assert client("DELETE", "/api/queues/%2F/other/contents") == refused
    assert client("DELETE", "/api/queues/%2F/other") == refused
    body = {"properties": {}, "routing_key": "mine", "payload": "x", "payload_encoding": "string"}
    assert client("POST", "/api/exchanges/%2F/amq.direct/publish", body) == refused
    assert client("DELETE", "/api/queues/%2F/mine")[0] == 204


def test_topic_permissions_are_cleared_for_one_exchange_or_for_all(api, user):
    """A DELETE without an exchange clears all topic permissions of the user, and one with an exchange only those for
    it. The client library rabbit-hole uses both, and takes a 404 as the sign that none is left (CM-264, CM-283).
    """
    user("management", name="gardener")
    path = "/api/topic-permissions/%2F/gardener"
    none = (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert api("GET", path) == none
    assert api("DELETE", f"{path}/amq.topic") == none
    # Only the user's first one in a virtual host counts as created.
    for exchange, status in (("amq.topic", 201), ("plants", 204), ("tools", 204)):
        assert api("PUT", path, {"exchange": exchange, "write": "a", "read": "b"})[0] == status
    assert api("DELETE", f"{path}/plants")[0] == 204
    assert api("DELETE", f"{path}/plants")[0] == 204  # not a 404, as in RabbitMQ, because the user has others
    assert [row["exchange"] for row in api.get(path)] == ["amq.topic", "tools"]
    assert api("DELETE", path)[0] == 204
    assert api("GET", path) == none
    assert api.get("/api/users/gardener/topic-permissions") == []


def test_a_closed_connection_is_not_listed_any_more(api, broker):
    """When the DELETE of a connection is answered, the lists no longer contain the connection, even if its client has
    not closed the socket yet. The tests of the client library bunny rely on that: they close all connections and take
    the next one that is listed for their reconnected client (CM-261).
    """
    client = pika.BlockingConnection(pika.URLParameters(broker.url))
    (row,) = until(lambda: api.get("/api/connections"))

    def answer():
        with contextlib.suppress(pika.exceptions.AMQPError):
            client.process_data_events(None)

    slow = threading.Timer(0.2, answer)
    slow.start()
    assert api("DELETE", f"/api/connections/{quote(row['name'], safe='')}")[0] == 204
    assert api.get("/api/connections") == []
    slow.join()


def test_counts_of_logins_begin_again(api, broker, user):
    """A DELETE resets the counts of login attempts, in all or by source, while the metrics go on counting (CM-230,
    CM-267).
    """
    node = api.get("/api/overview")["node"]
    path = f"/api/auth/attempts/{node}"

    def attempts():
        return {row["protocol"]: row for row in api.get(path)}

    api("DELETE", path)
    assert api.as_user("guest:wrong")("GET", "/api/whoami")[0] == 401
    assert attempts()["http"]["auth_attempts_failed"] == 1
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(pika.URLParameters(broker.url.replace("guest:guest", "nobody:wrong")))
    found = until(attempts, lambda found: "amqp091" in found)
    assert (found["amqp091"]["auth_attempts"], found["amqp091"]["auth_attempts_failed"]) == (1, 1)
    (source,) = [row for row in api.get(f"{path}/source") if row["username"] == "nobody"]
    assert (source["remote_address"], source["auth_attempts_failed"]) == ("127.0.0.1", 1)
    assert user("monitoring")("DELETE", f"{path}/source")[0] == 204
    assert api.get(f"{path}/source") == []
    assert api("DELETE", path)[0] == 204
    assert attempts().keys() == {"http"}
    metrics = Api(ports(broker)["http/prometheus"], user=None).raw("GET", "/metrics")[1].decode()
    assert 'rabbitmq_auth_attempts_failed_total{protocol="amqp091"} 1\n' in metrics
    for method in ("GET", "DELETE"):
        for place in ("", "/source"):
            assert api(method, f"/api/auth/attempts/nosuch@host{place}")[0] == 404


@pytest.fixture
def other(monkeypatch):
    """A node of the cluster; `other.node` has what it has counted."""
    found = SimpleNamespace(node_name="warren2@localhost", node={"logins": (0, 0)})
    monkeypatch.setattr(logins, "answering_node", lambda call: found)
    return found


def test_counts_of_logins_begin_again_after_a_restart_of_another_node(other):
    """A DELETE has an effect also after another node, whose counters begin at 0 then, has started again (CM-230)."""
    call = SimpleNamespace(state=SimpleNamespace(own=None), logins=SimpleNamespace(forgotten={}))

    def attempts():
        return [row["auth_attempts"] for row in asyncio.run(logins.attempts(call))]

    other.node["logins"] = 10, 5
    assert attempts() == [15]
    asyncio.run(logins.forget_attempts(call))
    assert attempts() == []
    other.node["logins"] = 3, 1
    assert attempts() == [4]
    asyncio.run(logins.forget_attempts(call))
    assert attempts() == []
    other.node["logins"] = 5, 1
    asyncio.run(logins.forget_attempts(call))
    other.node["logins"] = 5, 2
    assert attempts() == [1]
