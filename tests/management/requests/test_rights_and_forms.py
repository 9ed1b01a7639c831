"""Requests by which a user could get more rights than the user's tags grant, and logins and requests of odd forms."""

import http.client
import json
from urllib.parse import quote

import pytest

from ..conftest import Api, ports

POLICY = {"pattern": "^nothing$", "definition": {"max-length": 1}}


def test_the_name_of_a_policy_makes_it_no_operator_policy(api, user):
    """Only administrators set operator policies (CM-265), so a policymaker's policy stays an ordinary one whatever its
    name is.
    """
    path = f"/api/policies/%2F/{quote('mine/operator-policies', safe='')}"
    policymaker = user("policymaker")
    assert policymaker("PUT", path, POLICY) == (201, None)
    assert api.get("/api/operator-policies") == []
    assert [row["name"] for row in api.get("/api/policies")] == ["mine/operator-policies"]
    assert policymaker.get(path)["name"] == "mine/operator-policies"
    assert policymaker("DELETE", path) == (204, None)


@pytest.mark.parametrize("path", ["/api/policies/%2F/theirs", "/api/parameters/vhost-limits/%2F/limits"])
def test_monitoring_lets_a_policymaker_change_no_other_virtual_host(api, user, path):
    """A policymaker needs permissions in the virtual host. The tag monitoring grants no change (CM-228)."""
    both = user("policymaker,monitoring", vhost=None)
    refused = (401, {"error": "not_authorised", "reason": "User not authorised to access virtual host"})
    body = {**POLICY, "value": {"max-queues": 100}}
    assert both("PUT", path, body) == refused
    assert api("PUT", path, body) == (201, None)
    assert both("DELETE", path) == refused
    assert both("GET", path)[0] == 200
    assert api("DELETE", path) == (204, None)


def test_users_without_permissions_are_the_same_behind_a_slash(api, user):
    """A slash behind a collection is accepted, and changes nothing (CM-231)."""
    user("", vhost=None, name="nowhere")
    assert [row["name"] for row in api.get("/api/users/without-permissions/")] == ["nowhere"]
    assert [row["name"] for row in api.get("/api/users/without-permissions")] == ["nowhere"]


@pytest.mark.parametrize("cookie", ["a.1.%C3%A9", "%C3%A9.1.0", "a.%C2%B2.0", "..", "%FF", "a.1.%00"])
def test_a_cookie_of_odd_characters_logs_nobody_in(api, cookie):
    status, value = api.as_user(None)("GET", "/api/overview", headers={"cookie": f"auth={cookie}"})
    assert (status, value["reason"]) == (401, "Login failed")


@pytest.mark.parametrize(
    "form",
    [b"username=guest&password=guest" + b"&a=" * 200, b"username=guest&password=guest&a=" + bytes(70_000)],
    ids=["many fields", "long"],
)
def test_a_form_that_is_no_login_is_refused(api, form):
    """Anybody may send the form of a login, and while the process reads a long one it answers nobody."""
    assert api.as_user(None)("POST", "/api/login", form)[0] in (400, 401)


def test_the_event_source_of_browsers_gets_a_stream(broker, api):
    """`EventSource` accepts `text/event-stream` and nothing else."""
    connection = http.client.HTTPConnection("127.0.0.1", ports(broker)["http"], timeout=60)
    try:
        headers = {**api.headers, "accept": "text/event-stream"}
        connection.request("GET", "/api/events?get=whoami", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.readline()) == (200, b"event: 0\n")
        assert json.loads(answer.readline().removeprefix(b"data: "))["name"] == "guest"
    finally:
        connection.close()
    assert api("GET", "/api/whoami", headers={"accept": "text/event-stream"})[0] == 406


def test_the_head_of_a_stream_is_an_answer_that_ends(broker, api):
    """HEAD has no body to wait for, so the connection serves the next request (CM-232)."""
    connection = http.client.HTTPConnection("127.0.0.1", ports(broker)["http"], timeout=60)
    try:
        connection.request("HEAD", "/api/events?get=whoami", headers=api.headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert answer.getheader("content-type").startswith("text/event-stream")
        connection.request("GET", "/api/whoami", headers=api.headers)
        assert connection.getresponse().status == 200
    finally:
        connection.close()


#: The types of content that a form can have; None: some browsers send none with an empty body.
FORM_TYPES = ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", None)


@pytest.mark.parametrize("kind", FORM_TYPES)
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1.evil.example", "null"])
def test_a_form_of_another_site_changes_nothing(api, origin, kind):
    """A browser that knows the password sends it with the forms of all pages (CM-226)."""
    client = Api(api.port)
    del client.headers["content-type"]
    headers = {"origin": origin, **({} if kind is None else {"content-type": kind})}
    body = json.dumps({"users": [{"name": "intruder", "password": "pw", "tags": "administrator"}]})
    status, value = client("POST", "/api/definitions", body, headers)
    assert (status, value["error"]) == (403, "forbidden")
    assert "intruder" not in [row["name"] for row in api.get("/api/users")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:{port}"},
        {"origin": "https://proxy.example", "x-requested-with": "warren"},
        {"origin": "https://proxy.example", "content-type": "application/json"},
    ],
    ids=["a tool", "a form of this site", "the page behind a proxy", "a page that the browser has asked about"],
)
def test_who_is_no_form_of_another_site_may_post(api, headers):
    headers = {"content-type": "text/plain"} | {name: text.format(port=api.port) for name, text in headers.items()}
    assert api("POST", "/api/definitions", "{}", headers)[0] == 204
