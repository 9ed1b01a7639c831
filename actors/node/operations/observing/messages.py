"""Operations that find messages in the message index (QP-50, QP-51)."""

from __future__ import annotations

import base64

from .....amqp.fields import table_to_dict
from .....amqp.frames import content_body, content_properties, content_size
from .....amqp.properties import Properties, decode_properties
from .....runtime.errors import ProcessDown
from .....store.message_index.message_index import Hit
from ....contracts.message_index import FoundMessages, to_indexer
from ....contracts.queue import LookedUp, to_queue
from ....message_index.errors import IndexBusy
from ....message_index.keys import WarrenId, keys_of, local_id
from ....message_index.search_limits import DEFAULT_MESSAGES, DEFAULT_RANGE, MOST_MESSAGES
from ..registry import OperationError, Operator, check_vhost, operation

#: Seconds that a queue or the index may take to answer.
ANSWER_SECONDS = 8.0


@operation()
async def query_message(
    operator: Operator,
    *,
    vhost: str,
    id: str | None = None,
    queues: list[str] | None = None,
    key: str | None = None,
    begin: int | None = None,
    end: int | None = None,
    max_num: int = DEFAULT_MESSAGES,
    with_body: bool = True,
) -> dict[str, object]:
    """The messages with an id, or those of queues with a key that were stored in a time range, the newest first.

    Times are in ms since the epoch. A message that has left its queue is returned without content, with the reason.
    """
    check_vhost(operator, vhost)
    if not 1 <= max_num <= MOST_MESSAGES:
        raise OperationError("data", f"--max-num must be from 1 to {MOST_MESSAGES}")
    now = int(operator.process.wall_clock() * 1000)
    begin, end = now - DEFAULT_RANGE if begin is None else begin, now if end is None else end
    if begin > end:
        raise OperationError("data", "the begin of the time range is later than its end")
    operator.context.counts.index_queries += 1
    try:
        if id is not None:
            found, wanted = await _by_id(operator, vhost, id, max_num)
        elif key is not None and queues:
            wanted = key.encode("utf-8", "surrogateescape")
            found = await _find(operator, vhost, queues, wanted, max(0, begin), max(0, end), max_num)
        else:
            raise OperationError("usage", "give either an id, or a queue and a key")
    except IndexBusy as error:
        raise OperationError("unavailable", str(error)) from None
    except ProcessDown:
        raise OperationError(
            "unavailable", f"the message index of vhost '{vhost}' does not run; the broker's log has the reason"
        ) from None
    return {
        "messages": await _shown(operator, vhost, found, wanted, with_body),
        "index_last_update_timestamp": found.last_update_timestamp,
        "index_last_update_position": found.last_update_position,
        "truncated": found.is_truncated,
        "hidden": 0,
        "nodes_failed": [],
    }


async def _find(
    operator: Operator, vhost: str, queues: list[str] | None, key: bytes, begin: int, end: int, most: int
) -> FoundMessages:
    index = operator.context.index_places.of(vhost)
    if index is None:
        raise OperationError("unavailable", "this node keeps everything in memory, so it has no message index")
    return await operator.process.ask(index, to_indexer.find(queues, key, begin, end, most), ANSWER_SECONDS)


async def _by_id(operator: Operator, vhost: str, text: str, most: int) -> tuple[FoundMessages, bytes | None]:
    """The message with this warren id, else those with this message-id in all indexed queues."""
    index = operator.context.index_places.of(vhost)
    decoded = WarrenId.decoded(text)
    if decoded is not None and index is not None:
        found = await operator.process.ask(index, to_indexer.find_position(decoded.position), ANSWER_SECONDS)
        if found.hits:
            return found, None
    wanted = text.encode("utf-8", "surrogateescape")
    return await _find(operator, vhost, None, wanted, 0, (1 << 63) - 1, most), wanted


async def _shown(
    operator: Operator, vhost: str, found: FoundMessages, wanted: bytes | None, with_body: bool
) -> list[dict[str, object]]:
    in_queues = await _look_up(operator, vhost, found)
    shown = []
    for hit in found.hits:
        name, sources = found.queues[hit.queue]
        row = {
            "queue": name,
            "seq": hit.number,
            "id": local_id(hit.position),
            "stored_at": hit.stored_at,
            "state": hit.reason or "lost",
            "gone_at": hit.gone_at or None,
            "detail": hit.detail,
            "node": operator.context.node_name,
        }
        looked_up = in_queues.get((hit.queue, hit.number))
        if looked_up is not None:
            row["state"] = "ready" if looked_up.channel_id is None else "unacked"
            row["channel"] = looked_up.channel_id or ""
            if looked_up.message is not None:
                keys = keys_of(content_properties(looked_up.message.content), sources)
                if wanted is not None and sources and wanted not in keys:
                    continue  # another key with the same hash
                row |= _content(looked_up, keys, with_body)
        shown.append(row)
    return shown


async def _look_up(operator: Operator, vhost: str, found: FoundMessages) -> dict[tuple[int, int], LookedUp]:
    """The messages among the hits that are in their queues, by queue and number."""
    by_queue: dict[int, list[Hit]] = {}
    for hit in found.hits:
        if not hit.reason:
            by_queue.setdefault(hit.queue, []).append(hit)
    answers = {}
    for queue, hits in by_queue.items():
        row = operator.context.routing.queue(vhost, found.queues[queue][0])
        if row is None or row.state != "running" or row.node != operator.context.node_name:
            continue  # a queue of this name may have been declared on another node meanwhile
        try:
            looked_up = await operator.process.ask(
                row.address, to_queue.look_up([hit.number for hit in hits]), ANSWER_SECONDS
            )
        except ProcessDown:
            continue  # the queue was deleted meanwhile
        answers.update({(queue, each.number): each for each in looked_up})
    return answers


def _content(looked_up: LookedUp, keys: list[bytes], with_body: bool) -> dict[str, object]:
    message = looked_up.message
    assert message is not None
    content = message.content
    row: dict[str, object] = {
        "exchange": message.origin.exchange,
        "routing_key": message.origin.routing_keys[0] if message.origin.routing_keys else "",
        "redelivered": message.redelivered,
        "size": content_size(content),
        "keys": [key.decode("utf-8", "replace") for key in keys],
        "properties": _properties(decode_properties(content_properties(content))),
    }
    if with_body:
        row |= _payload(content_body(content))
    return row


def _payload(body: bytes) -> dict[str, str]:
    try:
        return {"payload": body.decode("utf-8"), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode("ascii"), "payload_encoding": "base64"}


def _properties(properties: Properties) -> dict[str, object]:
    """The properties that the message has."""
    found = {name: getattr(properties, name) for name in Properties.__slots__}
    shown = {name: value for name, value in found.items() if value is not None}
    if properties.headers is not None:
        shown["headers"] = plain_value(table_to_dict(properties.headers))
    return shown


def plain_value(value: object) -> object:
    """A value of a table in a form that JSON has."""
    if isinstance(value, dict):
        return {name: plain_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain_value(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, (str, int, float)) or value is None else str(value)
