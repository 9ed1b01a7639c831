"""What an administrator changes in the tab Admin, and what users with fewer tags do not see there."""

import json
from contextlib import contextmanager

import pytest

from .conftest import Screen


@contextmanager
def refused(screen):
    """Drop the errors that the browser logs for refused requests: the test provokes them, and the page is
    not at fault.
    """
    yield
    screen.complaints()


def test_a_user_is_added_given_permissions_and_deleted(screen, api):
    """An administrator adds a user, sets and clears permissions, changes password and tags, and deletes the user after
    a confirmation; names become text, never markup (CM-384, CM-410).
    """
    screen.go("#/users")
    screen.until(lambda: "guest" in screen.text("main tbody"))
    screen.unfold("Add a user")
    screen.fill("Add a user", name="<u>anna</u>", password="secret", tags="monitoring")
    screen.until(lambda: "<u>anna</u>" in screen.text("main tbody"))
    screen.go("#/users/%3Cu%3Eanna%3C%2Fu%3E")
    screen.unfold("Set permissions")
    screen.fill("Set permissions", write="^orders")
    screen.until(lambda: "^orders" in screen.text("main .scroll tbody"))
    screen.unfold("Change password and tags")
    assert screen.find('[name="tags"]').get_attribute("value") == "monitoring"
    screen.fill("Change password and tags", password="other", tags="policymaker")
    screen.until(lambda: "policymaker" in screen.text(".pairs"))
    assert api.as_user("<u>anna</u>:other").get("/api/whoami")["tags"] == ["policymaker"]
    screen.press("Clear")
    screen.press("Clear", "dialog")
    screen.until(lambda: screen.text("main .scroll tbody") == "")
    screen.press("Delete")
    screen.press("Delete user", "dialog")
    screen.until(lambda: "guest" in screen.text("main tbody") and "anna" not in screen.text("main tbody"))


def test_topic_permissions_are_cleared_for_one_exchange(screen, api, user):
    """Those for other exchanges stay: without any, a user may use all routing keys."""
    user("management", name="gardener")
    for exchange in ("plants", "tools"):
        body = {"exchange": exchange, "write": "a", "read": "b"}
        assert api("PUT", "/api/topic-permissions/%2F/gardener", body)[0] in (201, 204)
    assert api("DELETE", "/api/permissions/%2F/gardener")[0] == 204
    screen.go("#/users/gardener")
    screen.until(lambda: "plants" in screen.text("main"))
    screen.press("Clear")
    screen.press("Clear", "dialog")
    screen.until(lambda: "plants" not in screen.text("main"))
    assert [row["exchange"] for row in api.get("/api/topic-permissions/%2F/gardener")] == ["tools"]


def test_a_virtual_host_is_added_traced_and_deleted(screen, broker, api):
    """An administrator adds a virtual host with a default type of queues, and traces it; the dialog before its deletion
    says what would be deleted with it (CM-410).
    """
    screen.go("#/vhosts")
    screen.unfold("Add a virtual host")
    screen.fill("Add a virtual host", name="shop/1", description="a shop", tags="a,b", type="quorum")
    screen.until(lambda: "shop/1" in screen.text("main tbody") and "a, b" in screen.text("main tbody"))
    screen.go("#/vhosts/shop%2F1")
    screen.until(lambda: "guest" in screen.text("main .scroll tbody"))
    screen.press("Start tracing")
    screen.until(lambda: api.get("/api/vhosts/shop%2F1")["tracing"])
    screen.press("Stop tracing")
    screen.until(lambda: not api.get("/api/vhosts/shop%2F1")["tracing"])
    found = api.get("/api/vhosts/shop%2F1")
    assert (found["description"], found["default_queue_type"]) == ("a shop", "quorum")
    screen.press("Delete")
    screen.shows("with all its queues, messages", "dialog")
    screen.press("Delete virtual host", "dialog")
    screen.until(lambda: "shop/1" not in screen.text("main tbody"))


def test_a_policy_shows_what_it_matches_before_it_is_set(screen, broker, api):
    """While one types a policy, the form lists the queues that its pattern matches, and whether the new policy or an
    existing one would be in effect for each (CM-410, CM-411).
    """
    for name in ("policy.a", "policy.b", "other"):
        broker.declare_queue(name)
    screen.go("#/policies")
    screen.unfold("Add or change a policy")
    pattern = screen.find('form[aria-label="Add or change a policy"] [name="pattern"]')
    pattern.send_keys("^Policy[.]")
    screen.shows("The pattern matches none of the queues.", ".matches")
    pattern.clear()
    pattern.send_keys("^policy[.]")
    screen.shows("The pattern matches 2 of", ".matches")
    assert screen.texts(".matches li") == ["policy.a", "policy.b"]
    broker.set_policy("older", "a$", {"max-length": 9}, apply_to="queues", priority=1)
    name, priority = (
        screen.find(f'form[aria-label="Add or change a policy"] [name="{each}"]') for each in ("name", "priority")
    )
    name.send_keys("short")
    screen.until(lambda: screen.texts(".matches li") == ["policy.a stays under 'older'", "policy.b"])
    priority.clear()
    priority.send_keys("2")
    screen.until(lambda: screen.texts(".matches li") == ["policy.a instead of 'older'", "policy.b"])
    with refused(screen):
        pattern.send_keys("(")
        screen.shows("This is no regular expression.", ".matches")
    pattern.clear()
    pattern.send_keys("^policy[.]")
    next(each for each in screen.all(".shortcut") if each.text == "max-length").click()
    screen.driver.switch_to.active_element.send_keys("5")
    screen.fill("Add or change a policy", name="short")
    screen.until(lambda: "max-length: 5" in screen.text("main tbody"))
    screen.until(lambda: api.get("/api/queues/%2F/policy.a")["policy"] == "short")
    broker.clear_policy("older")
    screen.until(lambda: "older" not in screen.text("main tbody"))
    screen.press("Delete")
    screen.press("Delete policy", "dialog")
    screen.until(lambda: screen.text("main tbody") == "")


def test_limits_are_set_and_cleared(screen, api):
    """An administrator sets a limit of a virtual host, and clears it (CM-410)."""
    screen.go("#/limits")
    screen.unfold("Set a limit of a virtual host")
    screen.fill("Set a limit of a virtual host", limit="max-queues", value="500")
    screen.until(lambda: "500" in screen.text("main tbody"))
    assert api.get("/api/vhost-limits/%2F") == [{"vhost": "/", "value": {"max-queues": 500}}]
    screen.press("Clear")
    screen.until(lambda: screen.text("main tbody") == "")


def test_definitions_are_imported(screen, broker, tmp_path):
    """An administrator imports a file of definitions, and its queue exists (CM-410)."""
    document = {"queues": [{"name": "imported", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}]}
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(document))
    screen.go("#/definitions")
    screen.find("input[type=file]").send_keys(str(file))
    screen.fill("Import definitions")
    screen.shows("The definitions are imported.", "#messages")
    assert broker.queue("imported").durable


def test_feature_flags_are_listed(screen):
    """An administrator sees the feature flags with their states (CM-410)."""
    screen.go("#/feature-flags")
    screen.until(lambda: "enabled" in screen.text("main tbody"))


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        ("management", ["Policies"]),
        ("policymaker", ["Policies"]),
        ("administrator", ["Users", "Virtual hosts", "Policies", "Limits", "Feature flags", "Definitions"]),
    ],
)
def test_a_user_sees_what_the_tags_allow(driver, api, broker, tag, parts):
    """Parts of Admin and forms that the tags of the user do not allow are absent (CM-380, CM-410)."""
    broker.add_user(tag, "secret", tags=[tag])
    driver.delete_all_cookies()
    screen = Screen(driver, api.port)
    screen.open(tag, "secret")
    screen.until(lambda: screen.texts(".tile .figure"))
    assert ("Nodes" in screen.texts("h2")) == (tag == "administrator")
    screen.click("nav a:last-child")
    screen.until(lambda: screen.texts("nav.sub a") == parts)
    screen.go("#/policies")
    screen.until(lambda: "Operator policies" in screen.texts("h2"))
    shown = screen.texts("details.section summary")
    assert ("Add or change a policy" in shown) == (tag != "management")
    assert ("Add or change an operator policy" in shown) == (tag == "administrator")
    screen.go("#/users")
    screen.until(lambda: screen.text("nav a[aria-current]") == ("Admin" if tag == "administrator" else "Overview"))
    assert screen.complaints() == []
    broker.delete_user(tag)
