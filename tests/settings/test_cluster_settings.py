"""The settings of a cluster: what is accepted, and errors that name the way out."""

import pytest

from warren import Settings
from warren.settings import SettingsError


def test_a_node_founds_a_cluster_of_its_own_by_default():
    formation = Settings().cluster_formation
    assert formation == {"nodes": (), "dns": "", "file": "", "timeout": 300_000, "replace_lost": False}


def test_a_file_has_dotted_keys(tmp_path):
    """The settings of a cluster can be given in a file with dotted keys (CL-39)."""
    file = tmp_path / "warren.toml"
    file.write_text('cluster_formation.nodes = ["warren@a", "warren@b"]\ncluster_formation.timeout = 5000\n')
    formation = Settings.from_toml(file).cluster_formation
    assert (formation["nodes"], formation["timeout"], formation["replace_lost"]) == (
        ("warren@a", "warren@b"),
        5000,
        False,
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "a table, such as"),
        ({"node": ["warren@a"]}, "'node' is none of them"),
        ({"nodes": "warren@a"}, "whose nodes are a list"),
        ({"nodes": ["a"]}, "'a' is no such name"),
        ({"nodes": ["warren@a", "warren@a"]}, "'warren@a' is there twice"),
        ({"nodes": ["warren@a"], "dns": "warren.local"}, "only one of nodes, dns and file"),
        ({"dns": 1}, "whose dns is a text"),
        ({"timeout": 999}, "from 1000 to 86400000"),
        ({"timeout": True}, "from 1000 to 86400000"),
        ({"replace_lost": "yes"}, "true or false"),
    ],
)
def test_a_formation_that_cannot_be_used(value, reason):
    with pytest.raises(SettingsError, match="setting 'cluster_formation'") as caught:
        Settings(cluster_formation=value)
    assert reason in str(caught.value)


def test_a_node_with_a_list_has_a_cluster_port_and_others_have_none():
    assert Settings().cluster_port is None
    assert Settings(cluster_formation={"nodes": ["warren@a"]}).cluster_port == 25_672
    assert Settings(cluster_formation={"nodes": ["warren@a"]}, cluster_port=0).cluster_port == 0


def test_a_node_listens_on_the_port_of_its_own_address_unless_it_has_a_cluster_port():
    """A node without `cluster_port` listens on the port of its own address in the list, so that all nodes can have the
    same file, even on one machine.
    """
    shared = {
        "cluster_formation": {"nodes": ["warren@a", "warren@b"]},
        "cluster_peer_addresses": {"warren@a": "127.0.0.1:1001", "warren@b": "[::1]:1002"},
    }
    assert Settings(node_name="warren@a", **shared).cluster_port == 1001
    assert Settings(node_name="warren@b", **shared).cluster_port == 1002
    assert Settings(node_name="warren@c", **shared).cluster_port == 25_672
    assert Settings(node_name="warren@a", cluster_port=7, **shared).cluster_port == 7


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("10.0.0.2:25672", "a table of names and addresses"),
        ({"b": "10.0.0.2:25672"}, "'b' is no name of a node"),
        ({"warren@b": "10.0.0.2"}, "'10.0.0.2' is no host with a port"),
        ({"warren@b": ":25672"}, "':25672' is no host with a port"),
        ({"warren@b": "b:0"}, "'b:0' is no host with a port"),
        ({"warren@b": 25672}, "25672 is no host with a port"),
    ],
)
def test_addresses_that_cannot_be_used(value, reason):
    """An address that cannot be used is refused with the reason (CL-124)."""
    with pytest.raises(SettingsError, match="setting 'cluster_peer_addresses'") as caught:
        Settings(cluster_peer_addresses=value)
    assert reason in str(caught.value)


def test_addresses_of_others():
    addresses = {"warren@b": "10.0.0.2:25672", "warren@c": "[::1]:25672"}
    assert Settings(cluster_peer_addresses=addresses).cluster_peer_addresses == addresses


@pytest.mark.parametrize("mode", ["ignore", "autoheal", "pause_if_all_down"])
def test_modes_that_lose_messages_are_refused(mode):
    """Partition handlings of RabbitMQ that may lose messages are refused (CL-54)."""
    with pytest.raises(SettingsError) as caught:
        Settings(cluster_partition_handling=mode)
    assert (
        f"{mode} lets both sides of a partition change the same queues, which loses confirmed messages;"
        " warren decides by majority" in str(caught.value)
    )


def test_an_unknown_mode_names_the_only_one():
    with pytest.raises(SettingsError, match="must be 'pause_minority'"):
        Settings(cluster_partition_handling="pause_majority")


@pytest.mark.parametrize("seconds", [0.4, 601, "2", True])
def test_a_tick_time_out_of_range(seconds):
    with pytest.raises(SettingsError, match="net_ticktime"):
        Settings(net_ticktime=seconds)
