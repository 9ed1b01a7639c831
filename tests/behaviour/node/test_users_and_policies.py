"""Users, permissions, policies and limits of a running broker, as clients meet them (AB-156 to AB-174)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pika
import pytest
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from warren import Broker, BrokerError, StartError

from ..wire import Client, Refused
from . import permission_cases

RECORDED = Path(__file__).parents[2] / "testdata" / "permissions.json"


def connect(broker, user="guest", password="guest", vhost="/"):
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, vhost, credentials))


def ready(broker, name):
    return broker.queue(name).messages_ready


def eventually(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


# -- users ---


def test_a_user_logs_in_with_his_password_and_needs_permissions(own_broker):
    broker = own_broker()
    broker.add_user("kim", "secret", tags=["monitoring"])
    assert broker.users() == {"guest": ["administrator"], "kim": ["monitoring"]}
    with pytest.raises(ProbableAuthenticationError):
        connect(broker, "kim", "wrong")
    with pytest.raises((ConnectionClosedByBroker, ProbableAccessDeniedError), match="refused for user 'kim'"):
        connect(broker, "kim", "secret")
    broker.set_permissions("kim")
    connect(broker, "kim", "secret").close()
    broker.change_password("kim", "other")
    with pytest.raises(ProbableAuthenticationError):
        connect(broker, "kim", "secret")
    connect(broker, "kim", "other").close()


def test_a_deleted_user_is_disconnected(own_broker):
    """The connections of a deleted user are closed, and those of others stay (CM-81)."""
    broker = own_broker()
    broker.add_user("kim", "secret")
    broker.set_permissions("kim")
    guest, kim = connect(broker), connect(broker, "kim", "secret")
    broker.delete_user("kim")
    with pytest.raises(ConnectionClosedByBroker, match="user 'kim' is deleted"):
        kim.process_data_events(30)
    guest.channel()
    with pytest.raises(BrokerError, match='User "kim" does not exist'):
        broker.delete_user("kim")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda broker: broker.add_user("guest", "x"), 'User "guest" already exists'),
        (lambda broker: broker.add_user("", "x"), "user cannot be an empty string"),
        (lambda broker: broker.set_permissions("kim"), 'User "kim" does not exist'),
        (lambda broker: broker.set_permissions("guest", vhost="nov"), "Virtual host nov does not exist"),
        (lambda broker: broker.set_permissions("guest", read="("), "invalid_regexp"),
        (lambda broker: broker.set_user_limits("guest", {"bogus": 1}), "Unrecognised terms"),
        (lambda broker: broker.set_vhost_limits({"max-queues": "a"}), "max-queues should be a number"),
        (lambda broker: broker.clear_policy("nope"), "Parameter does not exist"),
        (lambda broker: broker.set_policy("p", "a", {}), "no policy provided"),
    ],
)
def test_refusals_have_rabbitmqs_texts(own_broker, call, text):
    with pytest.raises(BrokerError) as refusal:
        call(own_broker())
    assert text in refusal.value.text


# -- permissions ---


def test_permissions_refuse_what_rabbitmq_refuses(own_broker):
    """warren allows and refuses about thirty actions under each of 24 sets of permissions exactly as RabbitMQ 3.10.8
    did.
    """
    broker = own_broker()
    vhost, user = permission_cases.VHOST, permission_cases.USER
    broker.create_vhost(vhost)
    broker.add_user(user, permission_cases.PASSWORD)
    for case in json.loads(RECORDED.read_text()):
        configure, write, read = case["permissions"]
        broker.set_permissions(user, configure=configure, write=write, read=read, vhost=vhost)
        broker.clear_topic_permissions(user, vhost=vhost)
        if case["topic"]:
            broker.set_topic_permissions(user, "x.topic", write=case["topic"][0], read=case["topic"][1], vhost=vhost)
        found = permission_cases.outcomes(broker.port)
        assert found == case["outcomes"], case["permissions"]


def test_permissions_change_on_open_channels(own_broker):
    """A publisher that has published before is refused from the next publish on."""
    broker = own_broker()
    broker.add_user("kim", "secret")
    broker.set_permissions("kim")
    channel = connect(broker, "kim", "secret").channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"one")
    broker.set_permissions("kim", write="^x")
    with pytest.raises(ChannelClosedByBroker) as refusal:
        channel.basic_publish("", "q", b"two")
    text = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'kim'"
    assert refusal.value.reply_text == text
    assert ready(broker, "q") == 1


def test_an_impersonator_may_publish_as_another_user(own_broker):
    broker = own_broker()
    broker.add_user("kim", "secret", tags=["impersonator"])
    broker.set_permissions("kim")
    channel = connect(broker, "kim", "secret").channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.fanout", "", b"x", pika.BasicProperties(user_id="guest"))
    channel.queue_declare("q")


# -- limits ---


def test_limits_of_connections_queues_and_channels(own_broker):
    """Limits of connections, channels and queues refuse with RabbitMQ's texts what exceeds them (CM-87, CM-111,
    CM-114).
    """
    broker = own_broker()
    broker.add_user("kim", "secret")
    broker.set_permissions("kim")
    broker.set_user_limits("kim", {"max-connections": 1, "max-channels": 1})
    first = connect(broker, "kim", "secret")
    with pytest.raises(AMQPConnectionError, match="connection refused for user 'kim': user connection limit .1. is"):
        connect(broker, "kim", "secret")
    first.channel()
    with pytest.raises(ConnectionClosedByBroker, match="number of channels opened for user 'kim' has reached the maxi"):
        first.channel()
    eventually(lambda: not broker.connections())
    connect(broker, "kim", "secret").close()

    broker.set_vhost_limits({"max-queues": 1})
    broker.declare_queue("q")
    broker.declare_queue("q")
    with pytest.raises(BrokerError, match=r"cannot declare queue 'r': queue limit in vhost '/' \(1\) is reached"):
        broker.declare_queue("r")
    broker.set_vhost_limits({"max-connections": 0})
    broker.declare_queue("r")
    with pytest.raises(AMQPConnectionError, match=r"refused for user 'guest': connection limit \(0\) is reached"):
        connect(broker)
    broker.set_vhost_limits({"max-connections": -1})
    connect(broker).close()


def test_a_channel_is_counted_until_it_or_its_connection_ends(own_broker):
    """The limit of channels counts those of all connections of a user, and a place is free again when a channel or its
    connection has ended, in order or not (AB-174).
    """
    broker = own_broker()
    broker.set_user_limits("guest", {"max-channels": 3})
    for ending in ("channel.close", "a channel error", "connection.close", "a reset"):
        clients = [Client(broker.url) for _ in range(4)]
        channels = [client.channel() for client in clients[:3]]
        with pytest.raises(Refused, match="reached the maximum allowed user limit of .3."):
            clients[3].channel()
        if ending == "channel.close":
            channels[0].close()
        elif ending == "a channel error":
            with pytest.raises(Refused, match="404 NOT_FOUND"):
                channels[0].get("none")
        elif ending == "connection.close":
            clients[0].close()
        else:
            clients[0].reset()
        eventually(lambda: len(broker.channels()) == 2)
        last = Client(broker.url)
        last.channel()
        with pytest.raises(Refused, match="reached the maximum allowed user limit of .3."):
            clients[1].channel()
        for client in [*clients, last]:
            client.abort()
        eventually(lambda: not broker.connections())


def test_each_virtual_host_counts_its_own_connections(own_broker):
    """single_node_single_vhost_limit and single_node_multiple_vhosts_limit: a place is free again when a connection has
    ended, and a limit can be raised (AB-172, AB-174).
    """
    broker = own_broker()
    broker.create_vhost("v")
    broker.set_permissions("guest", vhost="v")
    broker.set_vhost_limits({"max-connections": 1}, vhost="v")
    first = connect(broker, vhost="v")
    with pytest.raises(AMQPConnectionError, match=r"connection limit \(1\) is reached"):
        connect(broker, vhost="v")
    others = [connect(broker) for _ in range(2)]
    broker.set_vhost_limits({"max-connections": 2}, vhost="v")
    second = connect(broker, vhost="v")
    broker.set_vhost_limits({"max-connections": 1}, vhost="v")
    for connection in (first, second, *others):
        connection.close()
    eventually(lambda: not broker.connections())
    connect(broker, vhost="v").close()


def test_queues_that_end_make_room_for_others(own_broker):
    """most_basic_single_node_queue_count, single_node_single_vhost_limit_with_queue_ttl and
    single_node_multiple_vhosts_queue_count: queues of all kinds count, in their own virtual host (AB-173).
    """
    broker = own_broker()
    broker.create_vhost("v")
    broker.set_vhost_limits({"max-queues": 2})
    client = connect(broker)
    client.channel().queue_declare("", exclusive=True)
    broker.declare_queue("durable", durable=True)
    broker.declare_queue("elsewhere", vhost="v")
    with pytest.raises(BrokerError, match=r"queue limit in vhost '/' \(2\) is reached"):
        broker.declare_queue("third")
    client.close()
    broker.declare_queue("short", arguments={"x-expires": 1})
    eventually(lambda: [queue.name for queue in broker.queues()] == ["durable"])
    broker.declare_queue("third")


# -- policies ---


def test_a_policy_takes_effect_on_queues_that_exist_and_on_new_ones(own_broker):
    """A policy, or an operator policy, takes effect at once on queues that exist and on new ones, and ends when it is
    cleared (CM-128, CM-129).
    """
    broker = own_broker()
    broker.declare_queue("old")
    for number in range(5):
        broker.publish(str(number), "old")
    broker.set_policy("short", "^(old|new)$", {"max-length": 2}, priority=1)
    eventually(lambda: ready(broker, "old") == 2)
    broker.declare_queue("new")
    broker.declare_queue("other")
    for name in ("new", "other"):
        for number in range(5):
            broker.publish(str(number), name)
    assert (ready(broker, "new"), ready(broker, "other")) == (2, 5)
    broker.set_policy("cap", "", {"max-length": 1}, operator=True)
    eventually(lambda: [ready(broker, name) for name in ("old", "new", "other")] == [1, 1, 1])
    broker.clear_policy("cap", operator=True)
    broker.clear_policy("short")
    eventually(lambda: broker.publish("more", "old") and ready(broker, "old") > 2)
    assert broker.policies() == []


def test_the_smaller_number_counts_and_otherwise_the_argument(own_broker):
    """Of a queue's argument and a policy of the same meaning the smaller number counts; where they are not numbers, the
    argument counts (CM-128).
    """
    broker = own_broker()
    broker.declare_queue("q", arguments={"x-max-length": 3, "x-dead-letter-exchange": "", "x-overflow": "drop-head"})
    broker.set_policy("p", "^q$", {"max-length": 9, "overflow": "reject-publish"})
    broker.declare_queue("r", arguments={"x-max-length": 3})
    broker.set_policy("p2", "^r$", {"max-length": 2})
    eventually(lambda: broker.publish("x", "r") and ready(broker, "r") == 2)
    for _ in range(5):
        assert broker.publish("x", "q")
    assert ready(broker, "q") == 3


def test_time_to_live_by_policy(own_broker):
    """policy_ttl and operator_policy_ttl: a policy's TTL empties a queue, and the smaller TTL counts (AB-157)."""
    broker = own_broker()
    broker.declare_queue("q")
    broker.set_policy("ttl", "^q$", {"message-ttl": 100_000})
    broker.publish("x", "q")
    assert ready(broker, "q") == 1
    broker.purge("q")
    broker.set_policy("cap", "^q$", {"message-ttl": 1}, operator=True)
    eventually(lambda: broker.publish("x", "q") and ready(broker, "q") == 0)


def test_an_alternate_exchange_by_policy(own_broker):
    """A policy sets the alternate exchange of exchanges that exist and of new ones (CM-129)."""
    broker = own_broker()
    broker.declare_queue("lost")
    broker.declare_exchange("early")
    broker.bind("lost", "amq.fanout")
    assert not broker.publish("x", "nowhere", "early")
    broker.set_policy("alternate", "^(early|late)$", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges")
    eventually(lambda: broker.publish("x", "nowhere", "early"))
    broker.declare_exchange("late")
    assert broker.publish("x", "nowhere", "late")
    broker.clear_policy("alternate")
    eventually(lambda: not broker.publish("x", "nowhere", "early"))


def test_definitions_survive_a_restart(tmp_path):
    data_dir = tmp_path / "data"
    with Broker(data_dir=data_dir) as broker:
        broker.add_user("kim", "secret", tags=["a", "b"])
        broker.set_permissions("kim", write="^q")
        broker.set_topic_permissions("kim", "amq.topic", write="^{username}$")
        broker.set_policy("short", "^q", {"max-length": 1}, priority=3, apply_to="queues")
        broker.set_vhost_limits({"max-queues": 1})
        broker.declare_queue("q", durable=True)
        broker.change_password("guest", "changed")
        users, policies = broker.users(), broker.policies()
    # `default_pass` counts for a new node only.
    with Broker(data_dir=data_dir, default_pass="again") as broker:
        assert (broker.users(), broker.policies()) == (users, policies)
        channel = connect(broker, "kim", "secret").channel()
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker, match="amq.default"):
            channel.basic_publish("", "q", b"x")
        connect(broker, "guest", "changed").close()
        for password in ("again", "guest"):
            with pytest.raises(ProbableAuthenticationError):
                connect(broker, "guest", password)
        with pytest.raises(BrokerError, match="queue limit"):
            broker.declare_queue("r")
        for _ in range(3):
            broker.publish("x", "q")
        assert ready(broker, "q") == 1


def test_new_passwords_pass_the_validators(own_broker):
    """Validators check each new password: that of a new user, of an existing one, and of the first user of a new node
    (AB-167).
    """
    broker = own_broker(credential_validator_min_length=5, credential_validator_regexp="^[a-z]+$")
    with pytest.raises(BrokerError, match="minimum required password length is 5"):
        broker.add_user("kim", "abcd")
    assert "kim" not in broker.users()
    broker.add_user("kim", "abcde")
    with pytest.raises(BrokerError, match="provided password does not match the validator regular expression"):
        broker.change_password("kim", "ABCDE")
    broker.set_permissions("kim")
    connect(broker, "kim", "abcde").close()
    with pytest.raises(StartError, match="'default_pass' is not a password that this node accepts: minimum") as refusal:
        Broker(credential_validator_min_length=9, default_pass="s3cret").start()
    assert "s3cret" not in str(refusal.value)


def test_the_first_users_password_may_be_in_a_file(tmp_path):
    file = tmp_path / "password"
    file.write_text("from a file\n")
    with Broker(default_user="root", default_pass_file=file) as broker:
        assert "root:from%20a%20file@" in broker.url
        connect(broker, "root", "from a file").close()
    file.write_text("")
    with pytest.raises(Exception, match="'.*password' is empty; nobody could log in"):
        Broker(default_pass_file=file).start()
