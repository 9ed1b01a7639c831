"""Every option of the format `warren`: its type, its default and what it means.

An option is a field of the classes below. Its name is that of the field in Spark's style: `max_messages_per_trigger` is
`maxMessagesPerTrigger`. Names are compared without regard to case. Each way to use the format has a class, so an option
that has no effect there is refused, and all options are checked before anything is read.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from .endpoints import Endpoint, mapped_endpoints
from .errors import unknown_option, wrong_option, wrong_options

#: Ports of the schemes of a URL.
PORTS = {"amqp": 5672, "amqps": 5671}

#: How the name of each queue begins that a subscription declares.
SUBSCRIPTION = "spark."

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Parsed = TypeVar("Parsed", bound="AnyOptions")


class Secret(str):
    """A password. Neither `repr` nor a log line shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Wrong(ValueError):
    """A value does not fit its option; the text describes the values that fit."""


# --- parsers: each takes the text of an option, and raises Wrong ------------------------------------------------------


def _text(text: str) -> str:
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise Wrong("names, several with commas")
    return names


def _subscription(text: str) -> str:
    if not 1 <= len(text.encode()) <= 200:
        raise Wrong("a name of at most 200 bytes")
    return text


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Wrong("true or false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise Wrong("a number above 0")
    return int(text)


def _limit(text: str) -> int | None:
    return None if text.lower() == "none" else _count(text)


def parse_bytes(text: str) -> int | None:
    """A size such as `4m`; None for `none`. Raises Wrong."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    if text.lower() == "none":
        return None
    if match is None or int(match[1]) < 1:
        raise Wrong("a number of bytes such as 4194304, 4m or 1g")
    return int(match[1]) * _UNITS[match[2]]


def parse_seconds(text: str) -> float:
    """A time such as `10s`. Raises Wrong."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", text.strip().lower())
    if match is None:
        raise Wrong("a time such as 10s, 500ms or 15m")
    return float(match[1]) * _SECONDS[match[2]]


def _moment(text: str) -> int:
    """A time in microseconds since the epoch."""
    if text.strip().isdigit():
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Wrong("milliseconds since 1970, or ISO 8601 in UTC such as 2026-11-23T08:00:00") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise Wrong(" or ".join(values))
        return text.lower()

    return parse


def _offsets(text: str) -> Any:
    """`earliest`, `latest`, or numbers by queue."""
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    expected = Wrong('earliest, latest, or JSON such as {"orders": 120, "audit": "latest"}')
    try:
        found = json.loads(text)
    except ValueError:
        raise expected from None
    if not isinstance(found, dict) or not all(_is_place(place) for place in found.values()):
        raise expected
    return found


def _is_place(value: object) -> bool:
    return value in ("earliest", "latest") if isinstance(value, str) else type(value) is int


def _endpoints(text: str) -> dict[Endpoint, Endpoint]:
    try:
        return mapped_endpoints(text)
    except ValueError:
        raise Wrong("pairs such as node1:5672=10.0.0.5:5672, several with commas") from None


def option(parse: Callable[[str], Any], default: str | None, text: str) -> Any:
    """A field for an option; `default` is written as a user writes it, None if there is no value."""
    value = None if default is None else parse(default)
    metadata = {"parse": parse, "default": default, "text": text}
    if isinstance(value, dict):
        return dataclasses.field(default_factory=value.copy, metadata=metadata)
    return dataclasses.field(default=value, metadata=metadata)


# --- the options ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyOptions:
    """What all classes of options have."""

    @classmethod
    def names(cls) -> dict[str, dataclasses.Field[Any]]:
        """The fields by the names of their options."""
        return {_camel(field.name): field for field in dataclasses.fields(cls)}

    @classmethod
    def parse(cls: type[Parsed], given: Mapping[str, str]) -> Parsed:
        """The options that a user gave to Spark. Raises SparkSourceError E4."""
        known = cls.names()
        by_lower = {name.lower(): name for name in known}
        values = {}
        for name, text in given.items():
            if name.lower() not in by_lower:
                raise unknown_option(name, known)
            spelt = by_lower[name.lower()]
            try:
                values[known[spelt].name] = known[spelt].metadata["parse"](str(text))
            except Wrong as wrong:
                raise wrong_option(spelt, str(text), str(wrong)) from None
        options = cls(**values)
        options.check()
        return options

    def check(self) -> None:
        """Raise SparkSourceError E4 for options that do not belong together."""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class ConnectionParameters(NamedTuple):
    """Where a broker is, and who logs in."""

    endpoints: tuple[Endpoint, ...]
    is_tls: bool
    vhost: str
    user: str
    password: Secret


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConnectionOptions(AnyOptions):
    """How to reach a broker."""

    url: str = option(
        Secret, "amqp://guest:guest@127.0.0.1:5672/%2F", "the broker, `amqp[s]://host:port/vhost`; several with commas"
    )
    user: str | None = option(_text, None, "the user, instead of the URL's")
    password: str | None = option(
        Secret, None, "the password; without this option it is that of `passwordFile`, WARREN_PASSWORD or the URL"
    )
    password_file: str | None = option(_text, None, "a file whose first line is the password")
    tls_ca_file: str | None = option(_text, None, "the authorities that the broker's certificate is checked with")
    tls_cert_file: str | None = option(_text, None, "the client's certificate")
    tls_key_file: str | None = option(_text, None, "its key")
    tls_server_name: str | None = option(_text, None, "the name in the broker's certificate, if it is not the host's")
    tls_verify: str = option(_one_of("full", "none"), "full", "`none` accepts any certificate")
    endpoint_map: dict[Endpoint, Endpoint] = option(
        _endpoints, "", "addresses that are others here, `node1:5672=10.0.0.5:5672`; several with commas"
    )
    connect_timeout: float = option(parse_seconds, "10s", "how long one attempt to connect may take")
    reconnect_timeout: float = option(
        parse_seconds, "60s", "how long a task tries to connect again before it fails with E5"
    )

    def place(self) -> ConnectionParameters:
        """Where to connect. Raises SparkSourceError E4."""
        endpoints, vhosts, users, schemes = [], set(), [], set()
        for url in self.url.split(","):
            parts = urlsplit(url.strip())
            try:
                port = parts.port
            except ValueError:
                port = -1
            if parts.scheme not in PORTS or port == -1:
                raise wrong_options(
                    "option 'url' of format 'warren' is no URL of a broker. Give amqp://host:port/vhost; reserved "
                    "characters in user and password must be percent-encoded, such as %2F for /"
                )
            endpoints.append(self.mapped(parts.hostname or "127.0.0.1", port or PORTS[parts.scheme]))
            vhosts.add(unquote(parts.path[1:]) or "/")
            schemes.add(parts.scheme)
            users.append((unquote(parts.username or "guest"), unquote(parts.password or "")))
        if len(vhosts) > 1 or len(schemes) > 1:
            raise wrong_options("option 'url' of format 'warren' has several URLs: they must have one scheme and vhost")
        user = self.user or users[0][0]
        return ConnectionParameters(
            tuple(endpoints), schemes == {"amqps"}, vhosts.pop(), user, self._password(users[0][1])
        )

    def mapped(self, host: str, port: int) -> Endpoint:
        """The endpoint at which another one is reached from this machine."""
        return self.endpoint_map.get((host, port), (host, port))

    def _password(self, in_url: str) -> Secret:
        if self.password is not None:
            return Secret(self.password)
        if self.password_file is not None:
            try:
                with open(self.password_file, encoding="utf-8") as file:
                    return Secret(file.readline().rstrip("\r\n"))
            except OSError as error:
                raise wrong_option("passwordFile", self.password_file, f"a file that can be read ({error})") from None
        return Secret(os.environ.get("WARREN_PASSWORD") or in_url or "guest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions(AnyOptions):
    """Which columns there are, and what is made of bodies."""

    columns: tuple[str, ...] = option(_names, "core", "`core`, `all`, or names with commas")
    headers_format: str = option(
        _one_of("map", "json", "none"), "map", "`headers` as a map of strings, as one string of JSON, or always null"
    )
    body_format: str = option(
        _one_of("binary", "text", "json"), "binary", "`body` as it is, as a string of UTF-8, or as a struct from JSON"
    )
    body_schema: str | None = option(
        _text, None, "with `bodyFormat=json`: the struct's fields, `id long, total double`"
    )
    bad_bodies: str = option(
        _one_of("replace", "null", "fail"),
        "replace",
        "what becomes of bodies that are not in `bodyFormat`; `replace` is for text",
    )

    def check(self) -> None:
        super().check()
        if (self.body_format == "json") != (self.body_schema is not None):
            raise wrong_options(
                "options 'bodyFormat' and 'bodySchema' of format 'warren': bodyFormat=json needs a bodySchema such as "
                "'id long, total double', and no other bodyFormat has one"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueueOptions(ConnectionOptions, RowOptions):
    """Which messages are read from a running broker."""

    queue: str | None = option(_text, None, "the queue; a sharded one means its shards")
    queues: tuple[str, ...] | None = option(_names, None, "several queues with commas")
    pattern: str | None = option(_text, None, "all queues whose name fits: `*` and `?`")
    exchange: str | None = option(
        _text, None, "instead of a queue: what is published there from now on, by way of a queue of its own"
    )
    binding_keys: tuple[str, ...] = option(
        _names, "#", "with `exchange`: the keys with which that queue is bound, several with commas"
    )
    subscription: str | None = option(
        _subscription, None, "with `exchange`: the queue is `spark.` and this name; each query needs a name of its own"
    )
    starting_offsets: Any = option(
        _offsets, "earliest", 'where to begin: `earliest`, `latest`, `{"orders": 120, "audit": "latest"}`'
    )
    starting_timestamp: int | None = option(
        _moment, None, "instead: begin at the first message that arrived then, milliseconds or ISO 8601, or later"
    )
    max_messages_per_partition: int = option(_count, "250000", "the most numbers that one task reads")
    min_partitions: int = option(_count, "2", "longer ranges are divided until there are so many tasks")
    read_mode: str = option(
        _one_of("auto", "blocks", "plain"), "auto", "`blocks` or `plain` to force one way of reading, for comparisons"
    )
    block_size: int = option(parse_bytes, "1m", "bytes in a block, 64k to 16m")

    def check(self) -> None:
        super().check()
        given = [name for name in ("queue", "queues", "pattern", "exchange") if getattr(self, name) is not None]
        if len(given) != 1:
            raise wrong_options(
                "format 'warren' needs one of the options 'queue', 'queues', 'pattern' and 'exchange'"
                + (f", not {' and '.join(given)}" if given else ", or 'path' for a data directory")
            )
        if (self.exchange is None) != (self.subscription is None):
            raise wrong_options(
                "options 'exchange' and 'subscription' of format 'warren' belong together: the queue that collects "
                "what is published to the exchange is named by the subscription"
            )
        if self.exchange is None and self.binding_keys != ("#",):
            raise wrong_options("option 'bindingKeys' of format 'warren' is for 'exchange', and has no effect here")
        if self.starting_timestamp is not None and self.starting_offsets != "earliest":
            raise wrong_options("format 'warren' takes either 'startingOffsets' or 'startingTimestamp'")
        if not 65_536 <= self.block_size <= 16_777_216:
            raise wrong_option("blockSize", str(self.block_size), "64k to 16m")
        self.place()

    @property
    def given_names(self) -> tuple[str, ...]:
        """The queues that the options name, that of a subscription included; empty for a pattern."""
        if self.subscription is not None:
            return (f"{SUBSCRIPTION}{self.subscription}",)
        return self.queues or ((self.queue,) if self.queue is not None else ())


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchOptions(QueueOptions):
    """`spark.read` on a running broker."""

    ending_offsets: Any = option(_offsets, "latest", "the first numbers that are not read: `latest`, or by queue")
    fail_on_data_loss: bool = option(_flag, "false", "fail if messages of the range are gone when they are read")
    push_filters: bool = option(
        _flag, "false", "let filters on `queue` and `seq` shrink the ranges; `session()` allows it"
    )
    skip_unreadable: bool = option(
        _flag, "false", "with `pattern`: leave out queues that cannot be read by number, such as priority queues"
    )

    def check(self) -> None:
        super().check()
        if self.skip_unreadable and self.pattern is None:
            raise wrong_options("option 'skipUnreadable' of format 'warren' is for 'pattern', and has no effect here")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions(QueueOptions):
    """`spark.readStream`."""

    max_messages_per_trigger: int | None = option(_limit, "2000000", "messages of a micro-batch; `none`: no limit")
    max_bytes_per_trigger: int | None = option(
        parse_bytes, "1g", "bytes of a micro-batch, planned by each queue's average; `none`: no limit"
    )
    min_messages_per_trigger: int | None = option(_count, None, "fewer wait for the next trigger")
    max_trigger_delay: float = option(parse_seconds, "15m", "how long they wait at most")
    delete_on_commit: str = option(
        _one_of("false", "true", "strict"),
        "false",
        "acknowledge what a finished micro-batch has read; `strict`: when the next one has begun",
    )
    delete_skipped: bool = option(
        _flag, "false", "let a query that deletes begin elsewhere than at `earliest`: what is below is deleted unread"
    )
    fail_on_data_loss: bool = option(_flag, "true", "fail if messages are gone that the query has not read")

    def check(self) -> None:
        super().check()
        begins_later = self.starting_offsets != "earliest" or self.starting_timestamp is not None
        if self.delete_on_commit != "false" and begins_later and not self.delete_skipped:
            raise wrong_options(
                "option 'deleteOnCommit' of format 'warren': an acknowledgement takes all messages below a number, so "
                "a query that deletes must begin at startingOffsets=earliest. With deleteSkipped=true it deletes what "
                "it skips"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectoryOptions(RowOptions):
    """`spark.read` on the data directory of a stopped broker."""

    path: str = option(_text, "", "the data directory of a stopped broker, or a copy of one")
    view: str = option(
        _one_of("messages", "history", "queues", "files", "damage"),
        "messages",
        "the messages; [every message in the files](#views-of-a-data-directory); a row a queue; a row a file; or what "
        "is damaged",
    )
    vhost: str | None = option(_text, None, "only this virtual host")
    queue: str | None = option(_text, None, "only this queue")
    bodies: str = option(
        _one_of("all", "none"), "all", "`none` reads no body from the message store: `body` is null there"
    )

    def check(self) -> None:
        super().check()
        if self.queue is not None and self.view in ("files", "damage"):
            raise wrong_options(
                f"option 'queue' of format 'warren' has no effect with view={self.view}: queues share files. Leave it "
                f"out, and filter the rows"
            )


def parse_read(given: Mapping[str, str], cls: type[Parsed]) -> Parsed:
    """The options of a read. If only another way of reading has an option, the error names that way."""
    others: Iterable[tuple[type[AnyOptions], str]] = (
        (BatchOptions, "spark.read on a broker"),
        (StreamOptions, "spark.readStream"),
        (DirectoryOptions, "spark.read on a data directory"),
    )
    known = {name.lower() for name in cls.names()}
    for name in given:
        if name.lower() in known:
            continue
        for other, where in others:
            if name.lower() in {each.lower() for each in other.names()}:
                raise wrong_options(f"option '{name}' of format 'warren' is for {where}, and has no effect here")
    return cls.parse(given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectionOptions):
    """`write` and `writeStream`."""

    exchange: str = option(_text, "", "where rows without a column `exchange` are published; the default exchange")
    routing_key: str = option(_text, "", "the key of rows without a column `routing_key`")
    delivery_guarantee: str = option(
        _one_of("at-least-once", "exactly-once"),
        "at-least-once",
        "`exactly-once` needs `messageId`, and [queues that deduplicate](#each-row-exactly-once)",
    )
    message_id: str | None = option(
        _text,
        None,
        "a column whose value names a row for ever, for brokers that drop what is published twice; `source`: the"
        " columns `queue_id` and `seq` of rows that were read from warren",
    )
    job: str | None = option(_text, None, "with `messageId` in a batch: the name under which its rows are known")
    mandatory: bool = option(_flag, "true", "a row that reaches no queue is an error; `false` drops it")
    ignore_columns: bool = option(_flag, "false", "leave out columns that the sink does not know")
    confirm_window: int = option(_count, "10000", "messages that may be unconfirmed, 8 MiB at most")
    confirm_timeout: float = option(parse_seconds, "5m", "how long to wait without any confirm")
    rate: int | None = option(_count, None, "messages a second, of all tasks together")
    parallel_tasks: int = option(_count, "1", "tasks that run side by side, which share the rate")
    path: str | None = option(_text, None, "has no effect; Spark may set it")
    checkpoint_location: str | None = option(_text, None, "Spark's own: where a streaming query keeps its progress")

    def check(self) -> None:
        super().check()
        if self.delivery_guarantee == "exactly-once" and self.message_id is None:
            raise wrong_options(
                "option 'deliveryGuarantee' of format 'warren': exactly-once needs 'messageId', a column whose value "
                "names each row for ever, or 'source' for rows that were read from warren"
            )
        self.place()

    @property
    def destination(self) -> str:
        """Where rows are published that name no other place, for error texts."""
        if self.exchange:
            return f"exchange '{self.exchange}'"
        return f"queue '{self.routing_key}'" if self.routing_key else "the default exchange"

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns whose values together name a row for ever; none without `messageId`."""
        if self.message_id is None:
            return ()
        return ("queue_id", "seq") if self.message_id.lower() == "source" else (self.message_id,)
