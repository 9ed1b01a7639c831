"""Who has declared what the API shows (CM-296)."""

import pika

from warren import Broker
from warren.cluster.metadata.digest import _digest_of_row
from warren.store.data_dir.metadata_store import Change

from .conftest import Api, ports


def creators(api):
    rows = api.get("/api/exchanges/%2F")
    return {row["name"]: row["user_who_performed_action"] for row in rows}


def test_an_exchange_has_its_creator_also_after_a_restart(tmp_path):
    settings = {"data_dir": tmp_path / "data", "management": True, "management_port": 0, "prometheus_port": False}
    with Broker(**settings) as broker:
        api = Api(ports(broker)["http"])
        api("PUT", "/api/users/maker", {"password": "pw", "tags": "management"})
        api("PUT", "/api/permissions/%2F/maker", {"configure": ".*", "write": ".*", "read": ".*"})
        assert api.as_user("maker:pw")("PUT", "/api/exchanges/%2F/over-http", {"durable": True})[0] == 201
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as client:
            client.channel().exchange_declare("over-amqp", durable=True)
        # Another user's declaration of the same exchange changes nothing.
        assert api("PUT", "/api/exchanges/%2F/over-http", {"durable": True})[0] == 204
        before = creators(api)
        assert (before["over-http"], before["over-amqp"]) == ("maker", "guest")
        assert before[""] == before["amq.direct"] == "rmq-internal"
    with Broker(**settings) as broker:
        assert creators(Api(ports(broker)["http"])) == before


def test_nodes_of_earlier_versions_compute_the_same_digest_of_an_exchange():
    """They do not keep its creator, so a cluster in the middle of an upgrade would take its nodes for diverged."""
    fields = {"type": "topic", "auto_delete": False, "internal": False, "arguments": b""}
    with_creator = Change("exchanges", ("/", "x"), {**fields, "creator": "guest"})
    assert _digest_of_row(with_creator) == _digest_of_row(Change("exchanges", ("/", "x"), fields))
