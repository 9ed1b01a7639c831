"""The messages that cross between nodes (CL-12). `registry` explains the entries and the ranges of numbers."""

from __future__ import annotations

from ....actors.contracts.channel import to_channel
from ....actors.contracts.connection import to_connection, to_session_tracking
from ....actors.contracts.control import to_remote_session
from ....actors.contracts.group import to_group
from ....actors.contracts.metadata import to_metadata
from ....actors.contracts.node import ClientAddress, to_node
from ....actors.contracts.pace import to_pacer
from ....actors.contracts.queue import to_queue
from ....actors.contracts.resources import to_alarm_listener, to_alarms
from ....routing.arguments.queue_settings import QUEUE_MODES
from ...membership.contract import to_members
from ...metadata.contract import to_cluster_metadata
from .codecs import ADDRESS, BOOLEAN, BYTES, FLOAT, INTEGER, PLAIN, RAW_LIST, TEXT, Each, Optional, Parts, RecordCodec
from .content_codecs import (
    AT_MOST_ONCE_ENTRY,
    CONTENTS,
    DELIVERY,
    DELIVERY_RUN,
    INFO,
    NUMBERS,
    PUBLISH_ENTRY,
    TABLE,
    OneOf,
)
from .registry import ERRORS, Crossing, Registry

#: Closed ranges of publish numbers.
_RANGES = Each(Parts(INTEGER, INTEGER))

_CONSUMER = (TEXT, ADDRESS, TEXT, BOOLEAN, BOOLEAN, INTEGER, BOOLEAN, INTEGER, TABLE, TEXT)

#: A piece of an answer: whether it is the last one, and a packed message of the control protocol.
_PIECE = Parts(BOOLEAN, BYTES)

_REPORT = Parts(TEXT, TEXT, TEXT, TEXT, TEXT)

TO_MEMBERS = (
    Crossing(100, to_members.question, _REPORT, answer=_REPORT),
    Crossing(101, to_members.admit, TEXT, TEXT, TEXT, TEXT, TEXT, answer=BOOLEAN),
    Crossing(102, to_members.heartbeat, TEXT, TEXT, BOOLEAN, FLOAT, INTEGER),
    Crossing(103, to_members.grant, FLOAT, FLOAT),
    Crossing(104, to_members.status),
    Crossing(105, to_members.ended, TEXT, TEXT, answer=BOOLEAN),
    Crossing(106, to_members.remove, TEXT, TEXT, answer=BOOLEAN),
)

#: Messages of the consensus, which have an encoding of their own (`cluster/metadata/wire`).
TO_CONSENSUS = (Crossing(150, to_cluster_metadata.consensus, TEXT, BYTES),)

#: What the replicas of a mirrored queue send each other. `gm_ring/wire` has the forms of a frame.
TO_REPLICAS = (
    Crossing(200, to_queue.ring, INTEGER, Each(INTEGER), BYTES, RAW_LIST, is_credited=True),
    Crossing(201, to_queue.follows, INTEGER),
    Crossing(202, to_queue.sync_chunk, INTEGER, answer=Parts(INTEGER, INTEGER, RAW_LIST)),
    Crossing(203, to_queue.standing, answer=Parts(INTEGER, INTEGER, INTEGER)),
    Crossing(210, to_queue.replica_status, answer=INFO),
    Crossing(211, to_queue.sync_numbers, answer=Each(Parts(INTEGER, INTEGER, INTEGER))),
    Crossing(212, to_queue.synchronise, BOOLEAN, answer=BOOLEAN),
    Crossing(213, to_queue.quiesce, answer=INTEGER),
    Crossing(214, to_queue.go_on),
    Crossing(216, to_queue.handover, INTEGER, BYTES),
    Crossing(217, to_queue.sync_floors, answer=Parts(INTEGER, Each(INTEGER))),
    Crossing(218, to_queue.sync_window, INTEGER, answer=Parts(INTEGER, INTEGER, INTEGER, INTEGER, BYTES, BYTES)),
    Crossing(219, to_queue.copy_lags, INTEGER, answer=BOOLEAN),
    Crossing(220, to_queue.copy_progress, INTEGER, INFO, answer=INTEGER),
    Crossing(215, to_queue.sync_held, INTEGER, INTEGER, answer=Parts(INTEGER, INTEGER, INTEGER, _RANGES, BYTES)),
)

TO_QUEUES = (
    Crossing(300, to_queue.publish, TEXT, Each(PUBLISH_ENTRY), TEXT, INTEGER, INTEGER, is_credited=True),
    Crossing(301, to_queue.publish_at_most_once, Each(AT_MOST_ONCE_ENTRY), is_credited=True),
    Crossing(319, to_queue.take_dead_letters, Each(AT_MOST_ONCE_ENTRY), BOOLEAN, answer=BOOLEAN),
    Crossing(302, to_queue.consume, *_CONSUMER, answer=BOOLEAN),
    Crossing(303, to_queue.cancel, TEXT, TEXT, answer=BOOLEAN),
    Crossing(304, to_queue.get, TEXT, ADDRESS, BOOLEAN, answer=Parts(Optional(DELIVERY), INTEGER)),
    Crossing(305, to_queue.settle, TEXT, OneOf("ack", "requeue", "reject"), Each(NUMBERS)),
    Crossing(306, to_queue.limiter_changed, TEXT, BOOLEAN),
    Crossing(307, to_queue.limiter_grant, TEXT, INTEGER),
    Crossing(308, to_queue.sent, TEXT, INTEGER),
    Crossing(309, to_queue.channel_closing, TEXT, answer=BOOLEAN),
    Crossing(310, to_queue.counts, answer=Parts(INTEGER, INTEGER)),
    Crossing(311, to_queue.purge, answer=INTEGER),
    Crossing(312, to_queue.delete, BOOLEAN, BOOLEAN, answer=INTEGER),
    Crossing(313, to_queue.info, answer=INFO),
    Crossing(315, to_queue.consumers_info, answer=Each(INFO)),
    Crossing(316, to_queue.set_queue_mode, OneOf(*QUEUE_MODES)),
    Crossing(318, to_queue.reclaim, TEXT, _RANGES, answer=_RANGES),
    Crossing(317, to_group.check_reader, TEXT, answer=BOOLEAN),
    Crossing(330, to_queue.reading_info, answer=INFO),
    Crossing(331, to_queue.peek, INTEGER, answer=Optional(Parts(TEXT, Each(TEXT), BYTES, BYTES, INTEGER))),
    Crossing(332, to_queue.page_out),
    Crossing(333, to_queue.leased, TEXT, TEXT, INTEGER, INTEGER, INTEGER, INTEGER),
    Crossing(334, to_queue.pacer_moved, TEXT, TEXT),
)

TO_CHANNELS = (
    Crossing(400, to_channel.confirm, TEXT, _RANGES),
    Crossing(401, to_channel.refuse, TEXT, _RANGES, BOOLEAN),
    Crossing(402, to_channel.deliver, TEXT, TEXT, Each(DELIVERY_RUN), is_credited=True),
    Crossing(403, to_channel.reading_ended, TEXT, TEXT, Optional(ERRORS)),
    Crossing(404, to_channel.reply_to, TEXT, TEXT, TEXT, CONTENTS, is_credited=True),
    Crossing(405, to_channel.has_reply_key, TEXT, answer=BOOLEAN),
    Crossing(406, to_channel.limiter_request, TEXT, INTEGER),
    Crossing(407, to_channel.limiter_request_now, TEXT, INTEGER),
    Crossing(408, to_channel.limiter_return, TEXT, INTEGER),
    Crossing(409, to_channel.bump, TEXT, INTEGER),
)

TO_NODES = (
    Crossing(500, to_metadata.await_queue, TEXT, TEXT, TEXT, answer=BOOLEAN),
    Crossing(501, to_node.connections, answer=Each(ADDRESS)),
    Crossing(502, to_connection.channels_info, answer=Each(INFO)),
    Crossing(503, to_connection.force_close, INTEGER, TEXT),
    Crossing(504, to_alarms.register, ADDRESS, BOOLEAN),
    Crossing(506, to_metadata.await_vhost, TEXT, answer=BOOLEAN),
    Crossing(507, to_metadata.await_replica, TEXT, answer=BOOLEAN),
    Crossing(508, to_node.open_session, ADDRESS, answer=ADDRESS),
    Crossing(509, to_remote_session.begin_operation, TEXT, PLAIN, answer=_PIECE),
    Crossing(510, to_remote_session.more_of_operation, answer=_PIECE),
    Crossing(511, to_remote_session.end_session),
    Crossing(512, to_pacer.lease, TEXT, TEXT, Parts(INTEGER, INTEGER, INTEGER), INTEGER, INTEGER),
    Crossing(513, to_pacer.give_back, TEXT, TEXT, INTEGER, INTEGER, INTEGER, INTEGER),
    Crossing(516, to_node.client_addresses, answer=Each(RecordCodec(ClientAddress, TEXT, INTEGER, BOOLEAN))),
    Crossing(505, to_alarm_listener.alarms, Each(TEXT, tuple)),
    Crossing(514, to_session_tracking.track_sessions, ADDRESS),
    Crossing(515, to_session_tracking.session_counts, Each(Parts(TEXT, TEXT, INTEGER), tuple)),
)

#: All messages that cross between nodes.
MESSAGES = Registry([*TO_MEMBERS, *TO_CONSENSUS, *TO_REPLICAS, *TO_QUEUES, *TO_CHANNELS, *TO_NODES])
