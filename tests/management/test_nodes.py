"""What the API shows of a single node (CM-272, CM-273, CM-74)."""

import gc

import pytest

from warren.actors.node.operations.observing.statistics import IO

from .conftest import until


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


@pytest.mark.skipif(not IO.exists(), reason="the system does not count what a program reads and writes")
@pytest.mark.parametrize(("field", "counter"), [("io_read_bytes", "read_bytes"), ("io_write_bytes", "write_bytes")])
def test_a_node_has_the_bytes_that_the_kernel_counts(api, name, field, counter):
    """The broker runs in this process, so its counts lie between two readings of this process's."""

    def counted():
        return int(dict(line.split(": ") for line in IO.read_text().splitlines())[counter])

    before = counted()
    api("PUT", "/api/queues/%2F/counted", {})
    found = api.get(f"/api/nodes/{name}?node_stats_age=60&node_stats_incr=5")
    assert before <= found[field] <= counted()
    assert "rate" in found[f"{field}_details"]


def test_the_settings_of_a_node_have_origins_and_no_secrets(api, name):
    rows = {row["key"]: row for row in api.get(f"/api/nodes/{name}/environment")}
    assert rows["management_interval"] == {"key": "management_interval", "value": 100, "origin": "set"}
    assert rows["heartbeat"]["origin"] == "default"
    assert rows["default_pass"]["value"] == "***"


@pytest.mark.parametrize(("tag", "status"), [("monitoring", 401), ("policymaker", 401), ("administrator", 200)])
def test_administrators_alone_see_the_settings(user, name, tag, status):
    assert user(tag)("GET", f"/api/nodes/{name}/environment")[0] == status


@pytest.mark.parametrize("part", ["", "/memory", "/memory/relative", "/environment"])
def test_a_node_that_does_not_exist_is_not_found(api, part):
    assert api("GET", f"/api/nodes/nosuch@host{part}")[0] == 404
