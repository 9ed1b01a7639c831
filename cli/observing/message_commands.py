"""The commands that find messages: `query_message` and `decode_message_id` (QP-50)."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

from ...actors.message_index.keys import WarrenId
from ...actors.message_index.search_limits import DEFAULT_MESSAGES
from ..failure import EX_UNAVAILABLE, CommandFailure
from ..formatters import dumped
from ..node_command import BadArguments, Call, node_command

SECTION = "Queues"

COLUMNS = ("queue", "seq", "id", "stored_at", "state", "exchange", "routing_key", "size", "keys", "detail")

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text: str, now: int) -> int:
    """Milliseconds since 1970. `text` has this number, a time in ISO 8601, or an age at the time `now`, such as `-15m`.

    Raises BadArguments.
    """
    try:
        if text.isdigit():
            return int(text)
        age = re.fullmatch(r"-(\d+)([smhd])", text)
        if age is not None:
            return now - int(age[1]) * _UNITS[age[2]]
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise BadArguments(
            f"Bad argument: '{text}' is no time. Give milliseconds since 1970, ISO 8601 such as 2026-11-22T10:00:00, "
            "or an age such as -15m, -2h or -3d",
            is_data=True,
        ) from None


@node_command(SECTION)
@click.option("--id", help="The id that an earlier query showed, or the property message-id.")
@click.option("--queue", "queues", multiple=True, help="Search this queue; may be given several times.")
@click.option("--key", help="The key of the messages.")
@click.option("--begin", metavar="TIME", help="Stored at this time or later.  [default: -3d]")
@click.option("--end", metavar="TIME", help="Stored at this time or earlier.  [default: now]")
@click.option("--max-num", type=int, default=DEFAULT_MESSAGES, show_default=True, help="Messages at most, up to 64.")
@click.option("--no-body", is_flag=True, help="Leave the bodies out of JSON.")
@click.option("--fail-if-none", is_flag=True, help="Exit with 69 if nothing is found.")
def query_message(
    call: Call,
    id: str | None,
    queues: tuple[str, ...],
    key: str | None,
    begin: str | None,
    end: str | None,
    max_num: int,
    no_body: bool,
    fail_if_none: bool,
) -> None:
    """Find messages of indexed queues by id or by key, also those that have left their queue.

    `warren pipeline query` searches archives, queues without an index and data directories.
    """
    if (id is None) == (key is None) or id is None and not queues:
        raise BadArguments("give either --id, or --queue and --key")
    now = int(time.time() * 1000)
    call.banner(f"Searching the message index of vhost {call.vhost} ...")
    answer = call.ask(
        "query_message",
        vhost=call.vhost,
        id=id,
        queues=list(queues) or None,
        key=key,
        begin=None if begin is None else milliseconds(begin, now),
        end=None if end is None else milliseconds(end, now),
        max_num=max_num,
        with_body=not no_body,
    )
    if call.formatter == "json":
        click.echo(dumped(answer))
    else:
        call.list(COLUMNS, [_for_people(row) for row in answer["messages"]])
        if answer["truncated"]:
            call.remark("There are more. Narrow the time range, or raise --max-num.")
        updated = answer["index_last_update_timestamp"]
        if not answer["messages"]:
            call.remark(
                "Nothing found. Only queues to which a policy with the key message-index applies are searched. "
                + (f"The index was last written at {_time(updated)}." if updated else "The index is empty.")
            )
    if fail_if_none and not answer["messages"]:
        raise CommandFailure("no message was found", EX_UNAVAILABLE)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    shown = {**row, "stored_at": _time(row["stored_at"]), "keys": " ".join(row.get("keys", []))}
    if row["gone_at"]:
        shown["detail"] = " ".join(filter(None, [f"at {_time(row['gone_at'])}", row["detail"]]))
    return shown


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"


@node_command(SECTION)
@click.argument("message_id", metavar="ID")
def decode_message_id(call: Call, message_id: str) -> None:
    """Show what the ID of a message contains: address and port of the node, and its position. No node is asked."""
    decoded = WarrenId.decoded(message_id)
    if decoded is None:
        raise BadArguments(
            f"Bad argument: '{message_id}' is no id of a message. An id has 32 or 56 hexadecimal digits, as "
            "query_message shows it",
            is_data=True,
        )
    call.facts({"address": decoded.address, "port": decoded.port, "counter": decoded.position})


COMMANDS = (query_message, decode_message_id)
