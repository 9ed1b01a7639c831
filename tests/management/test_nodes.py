"""What the API shows of a single node (CM-272, CM-273, CM-74)."""

import gc
import logging

import pytest

from warren import Broker
from warren.management.answers.nodes import partitions
from warren.runtime.machine.usage import program

from .conftest import ports, until


@pytest.fixture(scope="module")
def name(broker):
    return broker.settings.node_name


def test_a_node_counts_collections(api, name):
    before = sum(each["collections"] for each in gc.get_stats())
    gc.collect()
    found = until(lambda: api.get(f"/api/nodes/{name}"), lambda found: found["gc_num"] > before)
    assert found["gc_num"] <= sum(each["collections"] for each in gc.get_stats())
    assert found["alarms"] == [] and found["cluster_links"] == []
    assert {each["name"] for each in found["applications"]} == {"warren", "python"}


@pytest.mark.skipif(program.disk_bytes() is None, reason="the system does not count what a program reads and writes")
@pytest.mark.parametrize(("field", "counter"), [("io_read_bytes", "read"), ("io_write_bytes", "written")])
def test_a_node_has_the_bytes_that_the_kernel_counts(api, name, field, counter):
    """A node reports the bytes that the kernel counts for its process. The broker runs in the test's process, so its
    count lies between two readings of the test's own (CM-272).
    """

    def counted():
        return getattr(program.disk_bytes(), counter)

    before = counted()
    api("PUT", "/api/queues/%2F/counted", {})
    found = api.get(f"/api/nodes/{name}?node_stats_age=60&node_stats_incr=5")
    assert before <= found[field] <= counted()
    assert "rate" in found[f"{field}_details"]


def test_the_settings_of_a_node_have_origins_and_no_secrets(api, name):
    """The settings of a node have their values and whether they were set, and secrets are blanked (CM-411)."""
    rows = {row["key"]: row for row in api.get(f"/api/nodes/{name}/environment")}
    assert rows["management_interval"] == {"key": "management_interval", "value": 100, "origin": "set"}
    assert rows["heartbeat"]["origin"] == "default"
    assert rows["default_pass"]["value"] == "***"


@pytest.mark.parametrize(("tag", "status"), [("monitoring", 401), ("policymaker", 401), ("administrator", 200)])
def test_administrators_alone_see_the_settings(user, name, tag, status):
    assert user(tag)("GET", f"/api/nodes/{name}/environment")[0] == status


@pytest.mark.parametrize("part", ["", "/memory", "/memory/relative", "/environment", "/log"])
def test_a_node_that_does_not_exist_is_not_found(api, part):
    assert api("GET", f"/api/nodes/nosuch@host{part}")[0] == 404


@pytest.fixture
def lines(api, name, caplog):
    """`lines(query)` gives the texts of the node's log that match. Each test logs a text of its own, so that the lines
    of other tests do not match.
    """
    caplog.set_level(logging.INFO, "warren")

    def get(query):
        return [row["text"] for row in api.get(f"/api/nodes/{name}/log{query}")]

    return get


def test_the_log_of_a_node_is_chosen_by_level_and_text(lines):
    """The log of a node is filtered by text in any case, lowest level and number of lines (CM-411)."""
    log = logging.getLogger("warren.test")
    for number in range(5):
        log.info("choose <%s>", number)
    log.warning("choose a warning")
    assert lines("?text=CHOOSE") == [f"choose <{number}>" for number in range(5)] + ["choose a warning"]
    assert lines("?text=choose&lines=2") == ["choose <4>", "choose a warning"]
    assert lines("?text=choose&level=warning") == ["choose a warning"]
    assert lines("?text=nobody%20wrote%20this") == []


def test_changes_over_the_api_are_in_the_log(lines, api):
    """A change through the API is a line of the log with user, address, request and status (CM-296)."""
    assert api("PUT", "/api/queues/%2F/logged", {})[0] == 201
    (text,) = until(lambda: lines("?text=/api/queues/%252F/logged"))
    assert text.startswith("user 'guest' from 127.0.0.1: PUT") and text.endswith("201")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("?level=loud", "there is no level 'loud'. Try one of debug, info, warning, error"),
        ("?lines=0", "the number of lines must be from 1 to 1000, not 0"),
        ("?lines=1001", "the number of lines must be from 1 to 1000, not 1001"),
        ("?lines=many", "many"),
    ],
)
def test_a_wrong_choice_of_lines_is_refused(api, name, query, reason):
    status, value = api("GET", f"/api/nodes/{name}/log{query}")
    assert status == 400 and reason in str(value["reason"])


@pytest.mark.parametrize(("tag", "status"), [("monitoring", 401), ("administrator", 200)])
def test_administrators_alone_see_the_log(user, name, tag, status):
    assert user(tag)("GET", f"/api/nodes/{name}/log")[0] == status


def test_a_node_without_management_keeps_no_log():
    with Broker() as broker, pytest.raises(Exception, match="because it has no management process"):
        broker._node.operate("recent_log")


def test_a_stopped_broker_leaves_no_handler():
    before = list(logging.getLogger("warren").handlers)
    with Broker(management=True, management_port=0, prometheus_port=0) as broker:
        ports(broker)
        assert len(logging.getLogger("warren").handlers) == len(before) + 1
    assert logging.getLogger("warren").handlers == before


def test_a_node_names_the_running_members_that_it_cannot_reach():
    """`partitions` of a node are the members that run and to which it has no link (CM-272, CM-390)."""
    members = [{"name": name, "is_running": name != "down"} for name in ("own", "near", "far", "strange", "down")]
    links = [
        {"node": "near", "state": "up"},
        {"node": "far", "state": "connecting"},
        {"node": "down", "state": "connecting"},
    ]
    assert partitions({"name": "own", "members": members, "links": links}) == ["far", "strange"]
