"""Bodies in the form that `bodyFormat` names: bytes, strings, or structs made from JSON."""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from ..errors import bad_body, wrong_options
from ..options import RowOptions


def body_column(queue: str, numbers: Any, bodies: Any, type: Any, options: RowOptions) -> tuple[Any, Any]:
    """The column `body` of this type, and the column `body_error`: why a body is null. Raises SparkSourceError E9."""
    if options.body_format == "binary" or bodies.null_count == len(bodies):
        return (bodies if bodies.null_count < len(bodies) else pa.nulls(len(bodies), type)), _no_errors(len(bodies))
    if options.body_format == "text":
        return _texts(queue, numbers, bodies, options)
    return _structs(queue, numbers, bodies, type, options)


def _no_errors(count: int) -> Any:
    return pa.nulls(count, pa.string())


def _texts(queue: str, numbers: Any, bodies: Any, options: RowOptions) -> tuple[Any, Any]:
    try:
        return bodies.cast(pa.string()), _no_errors(len(bodies))
    except pa.ArrowInvalid:
        pass
    values: list[str | None] = []
    errors: list[str | None] = []
    for number, body in zip(numbers, bodies.to_pylist()):
        try:
            values.append(body.decode())
            errors.append(None)
        except UnicodeDecodeError as error:
            if options.bad_bodies == "fail":
                raise bad_body(queue, int(number), "UTF-8", f"{error.reason} at byte {error.start}") from None
            values.append(None if options.bad_bodies == "null" else body.decode("utf-8", "replace"))
            errors.append(f"not UTF-8: {error.reason} at byte {error.start}")
    return pa.array(values, pa.string()), pa.array(errors, pa.string())


def _structs(queue: str, numbers: Any, bodies: Any, type: Any, options: RowOptions) -> tuple[Any, Any]:
    """Parse all bodies at once if each begins with { and ends with }, and one by one if that finds a body that is not
    one object.
    """
    are_braced = pa.compute.and_(pa.compute.starts_with(bodies, b"{"), pa.compute.ends_with(bodies, b"}"))
    # Arrow's parser takes any bytes within a string, and gives Spark strings that are not UTF-8.
    if pa.compute.all(are_braced).as_py() and _are_utf_8(bodies):
        try:
            found = _parsed(b"\n".join(bodies.to_pylist()), type)
        except pa.ArrowInvalid:
            found = None
        # Good JSON has no newline within a string, and no { that follows a } except between two objects. So no object
        # continues in the next body, each body has at least one, and as many rows as bodies mean one for each.
        if found is not None and len(found) == len(bodies):
            return found, _no_errors(len(bodies))
    values, errors = [], []
    for number, body in zip(numbers, bodies.to_pylist()):
        value, error = _one(body, type)
        if error is not None and options.bad_bodies == "fail":
            raise bad_body(queue, int(number), f"JSON of '{options.body_schema}'", error)
        values.append(value)
        errors.append(error)
    return pa.concat_arrays(values), pa.array(errors, pa.string())


def _are_utf_8(bodies: Any) -> bool:
    try:
        bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def check_body_type(type: Any) -> None:
    """Raise SparkSourceError E4 if the struct that JSON is to become has a field of a type that no JSON becomes."""
    for field in type:
        if not _is_readable(field.type):
            raise wrong_options(
                f"option 'bodySchema' of format 'warren': field '{field.name}' has the type {field.type}, which is not "
                "made from JSON. Declare it as string, and convert it in the query"
            )


def _is_readable(type: Any) -> bool:
    if pa.types.is_struct(type):
        return all(_is_readable(field.type) for field in type)
    if pa.types.is_list(type):
        return _is_readable(type.value_type)
    if pa.types.is_date(type):
        return False  # Arrow takes a number of days, which nobody writes into JSON, and no text.
    try:
        _parsed(b"{}", pa.struct([("a", type)]))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _one(body: bytes, type: Any) -> tuple[Any, str | None]:
    """An array of one struct and None, or an array of one null and the reason."""
    if not body.removeprefix(BOM_UTF8).lstrip(b" \t\r\n").startswith(b"{"):
        # The parser must not get such a body: one that begins with `null` crashes the process.
        return pa.nulls(1, type), "no JSON object"
    try:
        body.decode()
        found = _parsed(body, type)
        if len(found) == 1:
            return found, None
        error = f"{len(found)} values"
    except UnicodeDecodeError as invalid:
        error = f"not UTF-8: {invalid.reason} at byte {invalid.start}"
    except pa.ArrowInvalid as invalid:
        error = str(invalid).removeprefix("JSON parse error: ").split(" in row")[0]
    return pa.nulls(1, type), error


def _parsed(lines: bytes, type: Any) -> Any:
    table = pyarrow.json.read_json(
        io.BytesIO(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(lines) + 1)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(type)), unexpected_field_behavior="ignore", newlines_in_values=True
        ),
    ).combine_chunks()
    columns = [table.column(field.name).combine_chunks() for field in type]
    arrays = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(type)) if arrays else pa.nulls(table.num_rows, type)


def sizes_column(sizes: Any) -> Any:
    """The column `size`."""
    return pa.array(sizes.astype(np.int64))
