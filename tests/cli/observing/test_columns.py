"""The columns of listings are RabbitMQ's: those that `rabbitmqctl help COMMAND` of RabbitMQ 3.10 shows."""

import pytest

from warren.actors.node.operations import columns

QUEUES = (
    "arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes durable exclusive "
    "exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp leader members memory message_bytes "
    "message_bytes_persistent message_bytes_ram message_bytes_ready message_bytes_unacknowledged messages "
    "messages_persistent messages_ram messages_ready messages_ready_ram messages_unacknowledged "
    "messages_unacknowledged_ram name online owner_pid pid policy slave_pids state synchronised_slave_pids type"
)
CONNECTIONS = (
    "auth_mechanism channel_max channels client_properties connected_at frame_max host name peer_cert_issuer "
    "peer_cert_subject peer_cert_validity peer_host peer_port pid port protocol recv_cnt recv_oct send_cnt send_oct "
    "send_pend ssl ssl_cipher ssl_hash ssl_key_exchange ssl_protocol state timeout user vhost"
)
CHANNELS = (
    "acks_uncommitted confirm connection consumer_count global_prefetch_count messages_unacknowledged "
    "messages_uncommitted messages_unconfirmed name number pid prefetch_count transactional user vhost"
)
BINDINGS = "source_name source_kind destination_name destination_kind routing_key arguments"
CONSUMERS = "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments"


@pytest.mark.parametrize(
    ("listing", "names"),
    [
        (columns.QUEUES, QUEUES),
        (columns.CONNECTIONS, CONNECTIONS),
        (columns.CHANNELS, CHANNELS),
        (columns.EXCHANGES, "arguments auto_delete durable internal name policy type"),
        (columns.BINDINGS, BINDINGS),
        (columns.CONSUMERS, f"{CONSUMERS} activity_status"),
        (columns.UNRESPONSIVE_QUEUES, "arguments auto_delete durable name pid recoverable_slaves"),
        (columns.FEATURE_FLAGS, "desc doc_url name provided_by stability state"),
    ],
)
def test_the_columns_of_rabbitmq_are_known(listing, names):
    """The listings have all columns that rabbitmqctl's listings have (CM-147, CM-148, CM-152, CM-155 to CM-159)."""
    assert set(names.split()) <= set(listing.known)


FLOW = "blocks blocked_seconds blocked_share blocked_by"
OWN = (
    "vhost operator_policy effective_policy_definition queue_mode single_active_consumer_tag shards shard_of queue_id "
    "first_number next_number life gaps readers unsent blocked_seconds_by pace lanes group_members deduplicated"
)


@pytest.mark.parametrize(
    ("listing", "names"),
    [
        (columns.QUEUES, f"{OWN} {FLOW}"),
        (columns.CONNECTIONS, f"bottleneck pauses alarms user_provided_name {FLOW}"),
        (columns.CHANNELS, f"state {FLOW}"),
        (columns.CONSUMERS, "exclusive priority user vhost blocked_by"),
    ],
)
def test_the_columns_of_warren_are_known(listing, names):
    """The listings have the columns that only warren has (CM-153, FC-45, QP-71, QP-108, QP-116)."""
    assert set(names.split()) <= set(listing.known)


@pytest.mark.parametrize(
    ("listing", "names"),
    [
        (columns.QUEUES, "name messages"),
        (columns.EXCHANGES, "name type"),
        (columns.BINDINGS, BINDINGS),
        (columns.CONNECTIONS, "user peer_host peer_port state"),
        (columns.CHANNELS, "pid user consumer_count messages_unacknowledged"),
        (columns.CONSUMERS, CONSUMERS),
        (columns.UNRESPONSIVE_QUEUES, "name"),
    ],
)
def test_without_columns_a_listing_has_those_of_rabbitmq(listing, names):
    """A listing for which no columns are given has rabbitmqctl's default columns, in the order in which scripts read
    them (CM-141 to CM-147).
    """
    assert listing.chosen(()) == tuple(names.split())
