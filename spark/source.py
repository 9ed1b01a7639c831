"""`WarrenDataSource`: the data source `warren` of Spark.

Its constructors open no connection, because Spark also creates readers in a process that only pickles them for tasks.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from .errors import wrong_options
from .options import BatchOptions, DirectoryOptions, RowOptions, SinkOptions, StreamOptions, parse_read


class WarrenDataSource(DataSource):
    """`format("warren")` of reads, writes and streams."""

    @classmethod
    def name(cls) -> str:
        return "warren"

    def schema(self) -> str:
        from .rows.columns import ddl

        options = self._options()
        if isinstance(options, DirectoryOptions) and options.view not in ("messages", "history"):
            from .offline.offline_views import VIEWS

            return VIEWS[options.view]
        return ddl(options, isinstance(options, DirectoryOptions))

    def reader(self, schema: Any) -> Any:
        if "path" in self._given():
            from .offline.directory_reader import DirectoryReader

            directory = parse_read(self._given(), DirectoryOptions)
            return DirectoryReader(directory, self._rows(schema, directory))
        from .reading.batch_reader import BatchReader, FilteringBatchReader

        options = parse_read(self._given(), BatchOptions)
        rows = self._rows(schema, options)
        return FilteringBatchReader(options, rows) if options.push_filters else BatchReader(options, rows)

    def streamReader(self, schema: Any) -> Any:
        from .reading.stream_reader import StreamReader

        options = parse_read(self._given(), StreamOptions)
        return StreamReader(options, self._rows(schema, options))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from .writer import BatchWriter

        if overwrite:
            raise wrong_options("the sink 'warren' only appends: a queue has nothing that could be overwritten")
        return BatchWriter(self._sink_options(schema))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from .writer import StreamWriter

        return StreamWriter(self._sink_options(schema))

    def _sink_options(self, schema: Any) -> SinkOptions:
        from .outgoing import check_columns
        from .rows.columns import names_of

        options = SinkOptions.parse(self._given())
        check_columns(names_of(schema), options.ignore_columns, options.id_columns)
        return options

    def _given(self) -> dict[str, str]:
        return {str(name).lower(): value for name, value in self.options.items()}

    def _options(self) -> RowOptions:
        """The options of a read, before Spark has decided whether it is a batch or a stream."""
        given = self._given()
        if "path" in given:
            return parse_read(given, DirectoryOptions)
        only_streams = {name.lower() for name in StreamOptions.names()} - {
            name.lower() for name in BatchOptions.names()
        }
        return parse_read(given, StreamOptions if only_streams.intersection(given) else BatchOptions)

    def _rows(self, schema: Any, options: RowOptions) -> Any:
        from pyspark.sql.pandas.types import to_arrow_schema

        from .rows.bodies import check_body_type
        from .rows.columns import RowPlan, check_schema, names_of

        if not (isinstance(options, DirectoryOptions) and options.view not in ("messages", "history")):
            check_schema(names_of(schema), options, isinstance(options, DirectoryOptions))
        found = to_arrow_schema(schema, timezone="UTC")
        if options.body_format == "json" and "body" in found.names:
            check_body_type(found.field("body").type)
        return RowPlan(found, options)
