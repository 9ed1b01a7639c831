"""Values in paths, queries and bodies that are not what they should be. They must not make a request fail with 500."""

from types import SimpleNamespace

import pytest

from warren.management.answers import listing
from warren.management.errors import HttpError


@pytest.mark.parametrize(
    "path",
    [
        f"/api/health/checks/certificate-expiration/{'9' * 400}/days",
        f"/api/health/checks/certificate-expiration/{'9' * 5_000}/years",
        f"/api/health/checks/port-listener/{'9' * 5_000}",
    ],
    ids=["seconds beyond floats", "more digits than Python reads", "a port of many digits"],
)
def test_a_number_of_many_digits_is_refused(api, path):
    assert api("GET", path)[0] == 400


@pytest.mark.parametrize(
    ("value", "status"),
    [("5", 200), (5, 200), ("--5", 400), ("²", 400), ("9" * 5_000, 400), (True, 400), (5.5, 400), (None, 400)],
)
def test_a_number_among_the_properties_of_a_message(api, value, status):
    """Whole numbers may be texts (CM-239), and anything else is an error of the request (CM-233)."""
    message = {
        "routing_key": "nowhere",
        "payload": "x",
        "payload_encoding": "string",
        "properties": {"priority": value},
    }
    found, answer = api("POST", "/api/exchanges/%2F/amq.default/publish", message)
    assert (found, answer) == (
        (200, {"routed": False})
        if status == 200
        else (400, {"error": "bad_request", "reason": ["not_int", "priority"]})
    )


def test_the_name_of_a_download_may_have_letters_that_no_header_has(api):
    assert api("GET", "/api/definitions?download=%E6%97%A5%E6%9C%AC.json")[0] == 200
    assert api.answer_headers["content-disposition"] == 'attachment; filename=".json"'


@pytest.mark.parametrize("names", [[{}], [["a"]], [None], [1]])
def test_users_to_delete_are_named_by_texts(api, names):
    assert api("POST", "/api/users/bulk-delete", {"users": names})[0] == 400


def test_a_user_to_delete_may_be_named_twice(api, user):
    user("", vhost=None, name="twice")
    assert api("POST", "/api/users/bulk-delete", {"users": ["twice", "twice"]}) == (204, None)


@pytest.mark.parametrize("tags", [None, 5, {"a": 1}, [None], [["administrator"]]])
def test_tags_are_texts(api, tags):
    """`null` would otherwise become a tag of this name."""
    assert api("PUT", "/api/users/tagged", {"password": "x", "tags": tags})[0] == 400
    assert api("GET", "/api/users/tagged")[0] == 404


def test_an_expression_has_one_time_limit_for_all_names(monkeypatch):
    """The process answers nobody else meanwhile, so thousands of names must not each have a limit of their own."""
    monkeypatch.setattr(listing, "PATTERN_SECONDS", 0.05)
    call = SimpleNamespace(query={"name": r"^((a|aa)+)+$"}.get, flag=lambda name: True)
    names = [f"{'a' * 10}-{number}" for number in range(1_000)]
    with pytest.raises(HttpError):
        listing._named(call, names, str)
