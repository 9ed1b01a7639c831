"""The columns of a row, and how record batches of Arrow are built of messages.

Everything but body, number and times depends on what messages share, so it is computed once for each run or for each
distinct value of the properties, and repeated by Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...amqp.fields import Table
from ..errors import wrong_option, wrong_options
from ..options import RowOptions
from . import properties
from .bodies import body_column, sizes_column
from .messages import Messages, joined_messages, taken
from .own_properties import OwnProperties
from .properties import Decoded, as_utf8, decoded
from .variant import variant

#: A record batch has at most this many rows, and ends when its contents have this many bytes.
BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
#: Up to this many distinct properties are decoded one by one.
FEW_PROPERTIES = 64

_UNKNOWN: Any = object()


class RowColumn(NamedTuple):
    """A column: its type in Spark's DDL, and whether it is there unless asked otherwise."""

    type: str
    is_core: bool = False


DEATH = "struct<queue:string,reason:string,exchange:string,routing_keys:array<string>,count:bigint,time:timestamp>"

#: All columns in their order.
COLUMNS = {
    "queue": RowColumn("string", True),
    "seq": RowColumn("bigint", True),
    "exchange": RowColumn("string", True),
    "routing_key": RowColumn("string", True),
    "body": RowColumn("binary", True),
    "headers": RowColumn("map<string,string>", True),
    "content_type": RowColumn("string", True),
    "message_id": RowColumn("string", True),
    "correlation_id": RowColumn("string", True),
    "timestamp": RowColumn("timestamp", True),
    "priority": RowColumn("int", True),
    "redelivered": RowColumn("boolean", True),
    "arrived": RowColumn("timestamp", True),
    "content_encoding": RowColumn("string"),
    "reply_to": RowColumn("string"),
    "expiration": RowColumn("string"),
    "type": RowColumn("string"),
    "user_id": RowColumn("string"),
    "app_id": RowColumn("string"),
    "cluster_id": RowColumn("string"),
    "persistent": RowColumn("boolean"),
    "expires": RowColumn("timestamp"),
    "routing_keys": RowColumn("array<string>"),
    "x_death": RowColumn(f"array<{DEATH}>"),
    "properties": RowColumn("binary"),
    "queue_id": RowColumn("string"),
    "size": RowColumn("bigint"),
}
#: Columns that `columns=all` does not bring: `body_error` must be named, and tables of a data directory have `vhost`.
ON_DEMAND = {"body_error": RowColumn("string"), "vhost": RowColumn("string")}

#: The columns that only the view `history` of a data directory has.
HISTORY = {"state": "string", "file": "string"}

_TEXTS = (
    *("content_type", "message_id", "correlation_id", "content_encoding", "reply_to", "expiration"),
    *("type", "user_id", "app_id", "cluster_id"),
)
#: The columns that are computed from a message's body. A query that reads neither is answered without bodies.
_BODY_COLUMNS = {"body", "body_error"}


def types_of(options: RowOptions, with_vhost: bool = False) -> dict[str, str]:
    """The types of all columns as these options make them."""
    types = {name: column.type for name, column in (COLUMNS | ON_DEMAND).items()}
    if not with_vhost:
        del types["vhost"]
    if getattr(options, "view", None) == "history":
        types |= HISTORY
    types["headers"] = {"json": "string", "variant": "variant"}.get(options.headers_format, types["headers"])
    if options.body_format == "text":
        types["body"] = "string"
    elif options.body_format == "json":
        # Spark's parser takes the fields of a struct as those of a table.
        types["body"] = f"struct<{options.body_schema}>"
    return types


def chosen(options: RowOptions, with_vhost: bool = False) -> list[str]:
    """The names of the columns that the option `columns` asks for. Raises SparkSourceError E4."""
    known = types_of(options, with_vhost)
    if options.columns in (("core",), ("all",)):
        names = [name for name, column in COLUMNS.items() if column.is_core or options.columns == ("all",)]
        return [*(["vhost"] if with_vhost else []), *names, *(name for name in HISTORY if name in known)]
    for name in options.columns:
        if name not in known:
            raise wrong_option("columns", ",".join(options.columns), f"core, all, or names of {', '.join(known)}")
    return list(dict.fromkeys(options.columns))


def ddl(options: RowOptions, with_vhost: bool = False) -> str:
    """The schema as Spark reads it."""
    types = types_of(options, with_vhost)
    return ", ".join(f"`{name}` {types[name]}" for name in chosen(options, with_vhost))


def check_schema(declared: Iterable[tuple[str, str]], options: RowOptions, with_vhost: bool = False) -> None:
    """Raise SparkSourceError E4 if a declared column, with its type in DDL, is none of the format's."""
    types = types_of(options, with_vhost)
    declared = list(declared)
    if "body_error" in dict(declared) and "body" not in dict(declared):
        raise wrong_options("column 'body_error' of format 'warren' says why 'body' is null, so name that column too")
    for name, type in declared:
        if name not in types:
            raise wrong_options(f"format 'warren' has no column '{name}'. Its columns are {', '.join(types)}")
        if name == "body" and options.body_format == "json":
            # Types have several names in DDL, and only Spark's own parser accepts them all.
            is_right = type.startswith("struct<")
        else:
            is_right = type.replace(" ", "") == types[name]
        if not is_right:
            raise wrong_options(f"column '{name}' of format 'warren' is of type {types[name]}, not {type}")


@dataclass(frozen=True)
class RowPlan:
    """What a task needs to make rows: the schema of Arrow that Spark declared, and the options."""

    schema: Any
    options: RowOptions

    @property
    def needs_bodies(self) -> bool:
        return bool(_BODY_COLUMNS.intersection(self.schema.names))

    def batches(
        self, queue: str, queue_id: str, parts: Iterable[Messages], vhost: str = "/", **constants: str
    ) -> Iterator[Any]:
        """Record batches of parts that adjoin, united to large ones; `constants` are the values of further columns."""
        waiting: list[Messages] = []
        rows = size = 0
        for whole in parts:
            for part in _at_most(whole):
                is_like = not waiting or waiting[-1].headers_only == part.headers_only
                if waiting and (rows + len(part) > BATCH_ROWS or size >= BATCH_BYTES or not is_like):
                    yield self.batch(queue, queue_id, joined_messages(waiting), vhost, **constants)
                    waiting, rows, size = [], 0, 0
                if len(part):
                    waiting.append(part)
                    rows += len(part)
                    size += int(part.bounds[-1] - part.bounds[0])
        if waiting:
            yield self.batch(queue, queue_id, joined_messages(waiting), vhost, **constants)

    def batch(self, queue: str, queue_id: str, messages: Messages, vhost: str = "/", **constants: str) -> Any:
        """One record batch of exactly the declared schema."""
        constants |= {"queue": queue, "vhost": vhost}
        build = _Builder({**constants, "queue_id": queue_id or None}, messages, self)
        return pa.RecordBatch.from_arrays([build.column(field) for field in self.schema], schema=self.schema)


def _at_most(messages: Messages) -> Iterator[Messages]:
    """Parts with at most the rows and about the bytes of a record batch."""
    start = 0
    while start < len(messages):
        limit = int(messages.bounds[start]) + BATCH_BYTES
        by_size = int(np.searchsorted(messages.bounds, limit, "right")) - 1
        stop = min(len(messages), start + BATCH_ROWS, max(by_size, start + 1))
        yield messages if (start, stop) == (0, len(messages)) else messages.part(start, stop)
        start = stop


class _Builder:
    """The columns of one batch. What several columns need is computed once."""

    def __init__(self, constants: Mapping[str, str | None], messages: Messages, plan: RowPlan) -> None:
        self._constants = constants
        self._queue = str(constants["queue"])
        self._messages = messages
        self._options = plan.options
        self._body_type = plan.schema.field("body").type if "body" in plan.schema.names else pa.binary()
        self._body: tuple[Any, Any] | None = None
        self._dictionary: Any = None
        self._distinct: tuple[list[Decoded], Any] | None = None
        self._own: Any = _UNKNOWN

    def column(self, field: Any) -> Any:
        """The array of one column."""
        name, messages = field.name, self._messages
        if pa.types.is_dictionary(field.type):
            return self._repeated(name, field.type.value_type)
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], pa.string()), len(messages))
        if name == "seq":
            return pa.array(messages.numbers)
        if name == "body":
            return self._bodies()[0]
        if name == "body_error":
            return self._bodies()[1]
        if name == "size":
            return sizes_column(messages.body_sizes())
        if name == "properties":
            return messages.properties()
        if name in _OF_RUN:
            return messages.of_runs([_OF_RUN[name](run) for run in messages.runs], field.type)
        if name == "routing_keys":
            return self._routing_keys(field.type)
        own = self._own_properties()
        if own is not None:
            return self._of_own(own, name, field.type)
        return self._of_properties(_OF_PROPERTIES[name], field.type)

    def _repeated(self, name: str, type: Any) -> Any:
        """A column whose values repeat, as a dictionary array of values of this type."""
        messages = self._messages
        if name in self._constants:
            return taken(pa.array([self._constants[name]], type), pa.array(np.zeros(len(messages), np.int32)))
        if name in _OF_RUN:
            return taken(pa.array([_OF_RUN[name](run) for run in messages.runs], type), messages.run_places())
        own = self._own_properties()
        if own is not None:
            return self._of_own(own, name, type).dictionary_encode()
        distinct, indices = self._decoded()
        return taken(pa.array([_OF_PROPERTIES[name](each, self._options) for each in distinct], type), indices)

    def _own_properties(self) -> OwnProperties | None:
        """The fields of the properties if most messages have their own, and all can be decoded."""
        if self._own is _UNKNOWN:
            distinct = len(self._encoded().dictionary)
            is_worth_it = distinct > FEW_PROPERTIES and 2 * distinct > len(self._messages)
            self._own = OwnProperties.of(self._messages) if is_worth_it else None
        return self._own

    def _of_own(self, own: OwnProperties, name: str, type: Any) -> Any:
        found = None
        if name in _TEXTS:
            found = own.text(name)
        elif name == "timestamp":
            found = own.timestamps(type)
        elif name in ("priority", "persistent"):
            numbers = own.number("priority" if name == "priority" else "delivery_mode")
            if name == "persistent":
                is_two = np.zeros(len(self._messages), bool) if numbers is None else numbers[0] & (numbers[1] == 2)
                return pa.array(is_two)
            found = None if numbers is None else pa.array(numbers[1], type, mask=~numbers[0])
        elif not (name == "headers" and self._options.headers_format == "none"):
            found = own.of_headers(partial(_of_table, name, self._options), type)
        return pa.nulls(len(self._messages), type) if found is None else found

    def _bodies(self) -> tuple[Any, Any]:
        if self._body is None:
            messages = self._messages
            self._body = body_column(self._queue, messages.numbers, messages.bodies(), self._body_type, self._options)
        return self._body

    def _encoded(self) -> Any:
        """The encoded properties as a dictionary array."""
        if self._dictionary is None:
            self._dictionary = self._messages.encoded_properties()
        return self._dictionary

    def _decoded(self) -> tuple[list[Decoded], Any]:
        if self._distinct is None:
            encoded = self._encoded()
            self._distinct = [decoded(props) for props in encoded.dictionary.to_pylist()], encoded.indices
        return self._distinct

    def _of_properties(self, value: Callable[[Decoded, RowOptions], Any], type: Any) -> Any:
        distinct, indices = self._decoded()
        values = [value(each, self._options) for each in distinct]
        if not any(each is not None for each in values):
            return pa.nulls(len(indices), type)
        return pa.array(values, type).take(indices)

    def _routing_keys(self, type: Any) -> Any:
        """The keys of a run, and those that the messages themselves name in CC, which a delivery shows nowhere else."""
        if all(len(run.routing_keys) != 1 for run in self._messages.runs) or not self._name_keys():
            return self._messages.of_runs([list(map(as_utf8, run.routing_keys)) for run in self._messages.runs], type)
        distinct, indices = self._decoded()
        texts = [tuple(map(as_utf8, run.routing_keys)) for run in self._messages.runs]
        keys = [each for run, each in zip(self._messages.runs, texts) for _ in range(run.size)]
        return pa.array(
            [
                list(each) if len(each) > 1 else properties.routing_keys(each[0], distinct[index].table)
                for each, index in zip(keys, indices.to_pylist())
            ],
            type,
        )

    def _name_keys(self) -> bool:
        """Whether a message has keys in CC."""
        own = self._own_properties()
        tables = [each.table for each in self._decoded()[0]] if own is None else own.tables
        return any(table is not None and table.get("CC") is not None for table in tables)


def _time(value: int) -> int | None:
    return None if value < 0 else value


#: The columns that all messages of a run share, and how each is made of the run.
_OF_RUN: dict[str, Callable[[Any], Any]] = {
    "exchange": lambda run: run.exchange,
    "routing_key": lambda run: as_utf8(run.routing_keys[0]) if run.routing_keys else None,
    "redelivered": lambda run: run.redelivered,
    "arrived": lambda run: _time(run.arrived),
    "expires": lambda run: _time(run.expires),
}


#: How the column `headers` is made of a message's headers, by the option `headersFormat`.
_OF_HEADERS: Mapping[str, Callable[[Table], Any]] = {
    "map": properties.headers_as_map,
    "json": properties.headers_as_json,
    "variant": variant,
}


def _of_table(name: str, options: RowOptions, table: Table) -> Any:
    """The columns `headers` and `x_death` of a message with these headers."""
    return properties.x_death(table) if name == "x_death" else _OF_HEADERS[options.headers_format](table)


def _text_of(name: str, each: Decoded, options: RowOptions) -> str | None:
    return each.text(name)


def _headers(each: Decoded, options: RowOptions) -> Any:
    if each.table is None or options.headers_format == "none":
        return None
    return _OF_HEADERS[options.headers_format](each.table)


#: The columns that are made of a message's properties, and how.
_OF_PROPERTIES: dict[str, Callable[[Decoded, RowOptions], Any]] = {
    **{name: partial(_text_of, name) for name in _TEXTS},
    "headers": _headers,
    "timestamp": lambda each, options: each.timestamp,
    "priority": lambda each, options: each.number("priority"),
    "persistent": lambda each, options: each.persistent,
    "x_death": lambda each, options: properties.x_death(each.table),
}


def names_of(schema: Any) -> Sequence[tuple[str, str]]:
    """The columns of a schema of Spark with their types in DDL."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
