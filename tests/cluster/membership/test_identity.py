"""What a node stores about itself, and where it finds the names of other nodes."""

import pytest

from warren.cluster.membership import discovery
from warren.cluster.membership.discovery import DiscoveryError, listed_nodes
from warren.cluster.membership.identity import FILE, Identity, IdentityError, read_identity, write_identity
from warren.settings.cluster_settings import read_formation
from warren.store.disk.real_disk import RealDisk


def test_an_identity_is_drawn_once(tmp_path):
    disk = RealDisk(str(tmp_path))
    first = read_identity(disk, b"\x01" * 16)
    assert first == Identity("01" * 16)
    assert read_identity(disk, b"\x02" * 16) == first


def test_what_is_written_is_read_again(tmp_path):
    disk = RealDisk(str(tmp_path))
    identity = Identity("id", "cluster", True, "promised")
    write_identity(disk, identity)
    write_identity(disk, identity.changed(promised="another"))
    assert read_identity(disk, b"") == Identity("id", "cluster", True, "another")
    assert sorted(disk.list("")) == [FILE]


@pytest.mark.parametrize("data", ["", "{", "[]", "{}", '{"node_id": 7}', '{"node_id": ""}'])
def test_a_damaged_file_is_refused_with_the_way_out(tmp_path, data):
    (tmp_path / FILE).write_text(data)
    with pytest.raises(IdentityError, match=r"cluster\.json' is damaged .*forget_cluster_node"):
        read_identity(RealDisk(str(tmp_path)), b"")


def test_names_from_a_list():
    assert listed_nodes(read_formation({"nodes": ["warren@b", "warren@a"]}), "warren@a") == ("warren@a", "warren@b")


def test_names_from_a_file_that_is_read_again(tmp_path):
    path = tmp_path / "nodes"
    formation = read_formation({"file": str(path)})
    with pytest.raises(DiscoveryError, match="cannot be read"):
        listed_nodes(formation, "warren@a")
    path.write_text("warren@b\n\n# mine\nwarren@a  # this one\n")
    assert listed_nodes(formation, "warren@a") == ("warren@a", "warren@b")
    path.write_text("not a name\n")
    with pytest.raises(DiscoveryError, match="has the line 'not a name'"):
        listed_nodes(formation, "warren@a")


def test_names_from_a_name_server(monkeypatch):
    hosts = {"10.0.0.1": "a.local", "10.0.0.2": "b.local"}
    monkeypatch.setattr(
        discovery.socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (address, 0)) for address in hosts]
    )
    monkeypatch.setattr(discovery.socket, "getnameinfo", lambda address, flags: (hosts[address[0]], "0"))
    formation = read_formation({"dns": "warren.local"})
    assert listed_nodes(formation, "rabbit@a.local") == ("rabbit@a.local", "rabbit@b.local")


def test_a_name_server_that_does_not_answer(monkeypatch):
    def fails(*_, **__):
        raise OSError("no route")

    monkeypatch.setattr(discovery.socket, "getaddrinfo", fails)
    with pytest.raises(DiscoveryError, match=r"dns 'warren\.local' cannot be looked up: no route"):
        listed_nodes(read_formation({"dns": "warren.local"}), "warren@a")
