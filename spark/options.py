"""Every option of the format `warren`: its type, its default and what it means.

An option is a field of the classes below. Its name is that of the field in Spark's style: `max_messages_per_trigger` is
`maxMessagesPerTrigger`. Names are compared without regard to case. Each way to use the format has a class, so an option
that has no effect there is refused, and all options are checked before anything is read.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from .endpoints import Endpoint
from .errors import unknown_option, wrong_option, wrong_options
from .option_values import (
    Wrong,
    parse_bytes,
    parse_count,
    parse_endpoints,
    parse_flag,
    parse_limit,
    parse_moment,
    parse_names,
    parse_offsets,
    parse_one_of,
    parse_seconds,
    parse_size,
    parse_subscription,
    parse_text,
    parse_timeout,
)

log = logging.getLogger("warren.spark")

#: Ports of the schemes of a URL.
PORTS = {"amqp": 5672, "amqps": 5671}

#: How the name of each queue begins that a subscription declares.
SUBSCRIPTION = "spark."

Parsed = TypeVar("Parsed", bound="AnyOptions")


class Secret(str):
    """A password. Neither `repr` nor a log line shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


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


@functools.cache
def _warn(text: str) -> None:
    """Log a warning, once in each process, because Spark has options checked several times."""
    log.warning("%s", text)


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
    user: str | None = option(parse_text, None, "the user, instead of the URL's")
    password: str | None = option(
        Secret, None, "the password; without this option it is that of `passwordFile`, WARREN_PASSWORD or the URL"
    )
    password_file: str | None = option(parse_text, None, "a file whose first line is the password")
    tls_ca_file: str | None = option(parse_text, None, "the authorities that the broker's certificate is checked with")
    tls_cert_file: str | None = option(parse_text, None, "the client's certificate")
    tls_key_file: str | None = option(parse_text, None, "its key")
    tls_server_name: str | None = option(
        parse_text, None, "the name in the broker's certificate, if it is not the host's"
    )
    tls_verify: str = option(parse_one_of("full", "none"), "full", "`none` accepts any certificate")
    endpoint_map: dict[Endpoint, Endpoint] = option(
        parse_endpoints, "", "addresses that are others here, `node1:5672=10.0.0.5:5672`; several with commas"
    )
    connect_timeout: float = option(parse_timeout, "10s", "how long one attempt to connect may take")
    reconnect_timeout: float = option(
        parse_seconds, "60s", "how long a task tries to connect again before it fails with E5"
    )

    def check(self) -> None:
        super().check()
        place = self.place()
        if any((urlsplit(url.strip()).password or "guest") != "guest" for url in self.url.split(",")):
            _warn(
                "option 'url' of format 'warren' has a password in it. Spark hides the values of options whose names "
                "contain 'password', but not a part of a URL: give the password in 'passwordFile' (--password-file of "
                "a command), in 'password', or in the environment variable WARREN_PASSWORD"
            )
        if place.is_tls and self.tls_verify == "none":
            _warn(
                "option 'tlsVerify' of format 'warren' is 'none': whoever is between this machine and the broker can "
                "pose as the broker, and gets the password. Give the authorities of its certificate in 'tlsCaFile'"
            )

    def place(self) -> ConnectionParameters:
        """Where to connect. Raises SparkSourceError E4."""
        endpoints, vhosts, users, schemes = [], set(), [], set()
        for url in self.url.split(","):
            try:
                parts = urlsplit(url.strip())
                port = parts.port
                is_url = parts.scheme in PORTS
            except ValueError:
                is_url = False
            if not is_url:
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
        if schemes == {"amqp"}:
            self._check_no_tls()
        user = self.user or users[0][0]
        return ConnectionParameters(
            tuple(endpoints), schemes == {"amqps"}, vhosts.pop(), user, self._password(users[0][1])
        )

    def _check_no_tls(self) -> None:
        """Raise SparkSourceError E4 for an option of TLS: without TLS the connection is not what the user expects."""
        for name in ("tls_ca_file", "tls_cert_file", "tls_key_file", "tls_server_name"):
            if getattr(self, name) is not None:
                raise wrong_options(
                    f"option '{_camel(name)}' of format 'warren' is for amqps://, and the option 'url' has amqp://, "
                    "whose connections are not encrypted"
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
            except (OSError, UnicodeDecodeError) as error:
                raise wrong_option("passwordFile", self.password_file, f"a file that can be read ({error})") from None
        return Secret(os.environ.get("WARREN_PASSWORD") or in_url or "guest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions(AnyOptions):
    """Which columns there are, and what is made of bodies."""

    columns: tuple[str, ...] = option(parse_names, "core", "`core`, `all`, or names with commas")
    headers_format: str = option(
        parse_one_of("map", "json", "variant", "none"),
        "map",
        "`headers` as a map of strings, as one string of JSON, as a variant, which keeps the types, or always null",
    )
    body_format: str = option(
        parse_one_of("binary", "text", "json"),
        "binary",
        "`body` as it is, as a string of UTF-8, or as a struct from JSON",
    )
    body_schema: str | None = option(
        parse_text, None, "with `bodyFormat=json`: the struct's fields, `id long, total double`"
    )
    bad_bodies: str = option(
        parse_one_of("replace", "null", "fail"),
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

    queue: str | None = option(parse_text, None, "the queue; a sharded one means its shards")
    queues: tuple[str, ...] | None = option(parse_names, None, "several queues with commas")
    pattern: str | None = option(parse_text, None, "all queues whose name fits: `*` and `?`")
    exchange: str | None = option(
        parse_text, None, "instead of a queue: what is published there from now on, by way of a queue of its own"
    )
    binding_keys: tuple[str, ...] = option(
        parse_names, "#", "with `exchange`: the keys with which that queue is bound, several with commas"
    )
    subscription: str | None = option(
        parse_subscription,
        None,
        "with `exchange`: the queue is `spark.` and this name; each query needs a name of its own",
    )
    starting_offsets: Any = option(
        parse_offsets,
        "earliest",
        'where to begin: `earliest`, `latest`, `{"orders": 120, "audit": "latest"}`, negative numbers from the end',
    )
    starting_timestamp: int | None = option(
        parse_moment, None, "instead: begin at the first message that arrived then, milliseconds or ISO 8601, or later"
    )
    max_messages_per_partition: int = option(parse_count, "250000", "the most numbers that one task reads")
    min_partitions: int = option(parse_count, "2", "longer ranges are divided until there are so many tasks")
    read_mode: str = option(
        parse_one_of("auto", "blocks", "plain"),
        "auto",
        "`blocks` or `plain` to force one way of reading, for comparisons",
    )
    block_size: int = option(parse_size, "1m", "bytes in a block, 64k to 16m")

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

    @property
    def given_names(self) -> tuple[str, ...]:
        """The queues that the options name, that of a subscription included; empty for a pattern."""
        if self.subscription is not None:
            return (f"{SUBSCRIPTION}{self.subscription}",)
        return self.queues or ((self.queue,) if self.queue is not None else ())


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchOptions(QueueOptions):
    """`spark.read` on a running broker."""

    ending_offsets: Any = option(parse_offsets, "latest", "the first numbers that are not read: `latest`, or by queue")
    fail_on_data_loss: bool = option(parse_flag, "false", "fail if messages of the range are gone when they are read")
    push_filters: bool = option(
        parse_flag, "false", "let filters on `queue` and `seq` shrink the ranges; `session()` allows it"
    )
    skip_unreadable: bool = option(
        parse_flag, "false", "with `pattern`: leave out queues that cannot be read by number, such as priority queues"
    )

    def check(self) -> None:
        super().check()
        if self.skip_unreadable and self.pattern is None:
            raise wrong_options("option 'skipUnreadable' of format 'warren' is for 'pattern', and has no effect here")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamOptions(QueueOptions):
    """`spark.readStream`."""

    max_messages_per_trigger: int | None = option(parse_limit, "2000000", "messages of a micro-batch; `none`: no limit")
    max_bytes_per_trigger: int | None = option(
        parse_bytes, "1g", "bytes of a micro-batch, planned by each queue's average; `none`: no limit"
    )
    min_messages_per_trigger: int | None = option(parse_count, None, "fewer wait for the next trigger")
    max_trigger_delay: float = option(parse_seconds, "15m", "how long they wait at most")
    delete_on_commit: str = option(
        parse_one_of("false", "true", "strict"),
        "false",
        "acknowledge what a finished micro-batch has read; `strict`: when the next one has begun",
    )
    delete_skipped: bool = option(
        parse_flag,
        "false",
        "let a query that deletes begin elsewhere than at `earliest`: what is below is deleted unread",
    )
    fail_on_data_loss: bool = option(parse_flag, "true", "fail if messages are gone that the query has not read")

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

    path: str = option(parse_text, "", "the data directory of a stopped broker, or a copy of one")
    view: str = option(
        parse_one_of("messages", "history", "queues", "files", "damage"),
        "messages",
        "the messages; [every message in the files](#views-of-a-data-directory); a row a queue; a row a file; or what "
        "is damaged",
    )
    vhost: str | None = option(parse_text, None, "only this virtual host")
    queue: str | None = option(parse_text, None, "only this queue")
    bodies: str = option(
        parse_one_of("all", "none"), "all", "`none` reads no body from the message store: `body` is null there"
    )
    metadata: str = option(
        parse_one_of("read", "ignore"),
        "read",
        "`ignore` reads a directory whose metadata are damaged or missing: queues are named `#` and their number",
    )

    def check(self) -> None:
        super().check()
        if self.queue is not None and self.view in ("files", "damage"):
            raise wrong_options(
                f"option 'queue' of format 'warren' has no effect with view={self.view}: queues share files. Leave it "
                f"out, and filter the rows"
            )

    @property
    def needs_metadata(self) -> bool:
        """Whether the names of queues come from the directory's metadata."""
        return self.metadata == "read"


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

    exchange: str = option(parse_text, "", "where rows without a column `exchange` are published; the default exchange")
    routing_key: str = option(parse_text, "", "the key of rows without a column `routing_key`")
    delivery_guarantee: str = option(
        parse_one_of("at-least-once", "exactly-once"),
        "at-least-once",
        "`exactly-once` needs `messageId`, and [queues that deduplicate](#each-row-exactly-once)",
    )
    message_id: str | None = option(
        parse_text,
        None,
        "a column whose value names a row for ever, for brokers that drop what is published twice; `source`: the"
        " columns `queue_id` and `seq` of rows that were read from warren",
    )
    job: str | None = option(
        parse_text, None, "needed with `messageId` in a batch: the name under which its rows are known"
    )
    mandatory: bool = option(parse_flag, "true", "a row that reaches no queue is an error; `false` drops it")
    ignore_columns: bool = option(parse_flag, "false", "leave out columns that the sink does not know")
    confirm_window: int = option(parse_count, "10000", "messages that may be unconfirmed, 8 MiB at most")
    confirm_timeout: float = option(parse_timeout, "5m", "how long to wait without any confirm")
    rate: int | None = option(parse_count, None, "messages a second, of all tasks together")
    parallel_tasks: int = option(parse_count, "1", "tasks that run side by side, which share the rate")
    path: str | None = option(parse_text, None, "has no effect; Spark may set it")
    checkpoint_location: str | None = option(
        parse_text, None, "Spark's own: where a streaming query keeps its progress"
    )

    def check(self) -> None:
        super().check()
        if self.delivery_guarantee == "exactly-once" and self.message_id is None:
            raise wrong_options(
                "option 'deliveryGuarantee' of format 'warren': exactly-once needs 'messageId', a column whose value "
                "names each row for ever, or 'source' for rows that were read from warren"
            )

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
