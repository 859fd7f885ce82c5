"""Tables as flights, for clients that know Arrow Flight and nothing of this service.

A flight is a table at a version, and its rows are the descriptors of the table's pages, as of `Table.pages`.
"""

from __future__ import annotations

import json
from functools import cache

import pyarrow as pa
import pyarrow.flight as fl

from spark_pages.errors import ColumnNotFoundError, InvalidInputError
from spark_pages.model.chain import RunSlice
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
from spark_pages.model.run import PageRun
from spark_pages.query.directory import PageDirectory
from spark_pages.query.page_table import page_table
from spark_pages.service.metadata import MetadataService
from spark_pages.service.requests import ServiceRequest
from spark_pages.service.table_view import LocalPieces, TableView
from spark_pages.service.tokens import Access
from spark_pages.service.wire import encode_header

PAGES_OF_A_TICKET = 1 << 16
"""Descriptors that one ticket gives at most."""

MOST_LISTED = 4096
"""Flights of one list, and tickets of one flight."""


class TableFlights:
    """Lists tables, and says by which tickets their pages can be had.

    Parameters
    ----------
    service
        Knows the tables.
    question_bytes
        Longer descriptors and criteria are refused.
    """

    def __init__(self, service: MetadataService, question_bytes: int) -> None:
        self._service = service
        self._question_bytes = question_bytes

    def list(self, criteria: bytes, access: Access) -> list[fl.FlightInfo]:
        """List the tables of the newest version that may be read; of one namespace, if criteria name one.

        Raises
        ------
        InvalidInputError
            If there are more than `MOST_LISTED`, or the criteria are no text.
        """
        wanted = self._text(criteria, "criteria")
        version = self._service.version_info().version
        found = [
            (db, name)
            for db, name, _ in self._service.tables(version)
            if access.allows(db) and wanted in ("", db)
        ]
        if len(found) > MOST_LISTED:
            raise InvalidInputError(
                f"Cannot list {len(found)} tables as flights: expected at most {MOST_LISTED}.",
                hint="Pass the name of a namespace as criteria, or use the action `tables`.",
            )
        return [_flight(db, name, version) for db, name in found]

    def info(self, descriptor: fl.FlightDescriptor, access: Access) -> fl.FlightInfo:
        """Say by which tickets the pages of a table can be had.

        Parameters
        ----------
        descriptor
            A path of namespace and table, or a command: a JSON object of ``db``, ``table`` and ``version``.

        Raises
        ------
        InvalidInputError, TableNotFoundError, AccessDeniedError, VersionNotFoundError, SnapshotExpiredError
        """
        question = self._question(descriptor)
        asked = question.perhaps_number("version")
        db = self._service.namespace_called(question.text("db"), asked)
        access.check(db)
        version = self._service.version_info(asked).version
        directory = self._directory(db, question.text("table"), version)
        table = directory.definition
        pages = [(name, directory.chain(name).num_pages) for name in table.schema.names]
        tickets = [
            {"get": "pages", "db": db, "table": table.name, "version": version, "column": name,
             "start": start, "stop": min(start + PAGES_OF_A_TICKET, num_pages)}
            for name, num_pages in pages
            for start in range(0, num_pages, PAGES_OF_A_TICKET)
        ]  # fmt: skip
        if len(tickets) > MOST_LISTED:
            raise InvalidInputError(
                f"Cannot list the pages of {db}.{table.name} as a flight: it would have {len(tickets)} "
                f"tickets, expected at most {MOST_LISTED}.",
                hint="Use `spark_pages.connect(url)`, which loads the pages that a read needs.",
            )
        endpoints = [fl.FlightEndpoint(encode_header(each), []) for each in tickets]
        num_rows = sum(num_pages for _, num_pages in pages)
        return _flight(db, table.name, version, endpoints, num_rows)

    def pages(self, question: ServiceRequest, db: str) -> pa.Table:
        """Return the descriptors of the pages at positions [``start``, ``stop``) of a column.

        Raises
        ------
        InvalidInputError
            Also if these are more than `PAGES_OF_A_TICKET`.
        """
        start, stop = question.number("start"), question.number("stop")
        if stop - start > PAGES_OF_A_TICKET:
            raise InvalidInputError(
                f"Cannot return {stop - start} page descriptors in one call: expected at most "
                f"{PAGES_OF_A_TICKET}.",
                hint="Send `start` and `stop` closer together.",
            )
        directory = self._directory(db, question.text("table"), question.number("version"))
        column = question.text("column")
        if column not in directory.definition.schema.names:
            raise ColumnNotFoundError(
                f"Cannot find column {column[:80]!r} of table {directory.definition.name!r}: there is none "
                "of that name.",
                hint=f"Send one of {', '.join(directory.definition.schema.names[:20])} as 'column'.",
            )
        return page_table(column, directory.pages_from(column, start, stop), start)

    def _directory(self, db: str, table: str, version: int) -> PageDirectory:
        answer = self._service.get_table_meta_snapshot(db, table, version)
        view = TableView(answer, LocalPieces(self._service, db, table, version))
        return PageDirectory(view, answer.definition)

    def _question(self, descriptor: fl.FlightDescriptor) -> ServiceRequest:
        if descriptor.descriptor_type == fl.DescriptorType.CMD:
            return ServiceRequest(descriptor.command or b"", self._question_bytes)
        path = [self._text(each, "a path") for each in descriptor.path or []]
        if len(path) != 2:
            raise InvalidInputError(
                f"Cannot find a flight by a path of {len(path)} parts: expected a namespace and a table.",
                hint="Pass a path such as ('default', 'flights'), or a command such as "
                '{"db": "default", "table": "flights", "version": 7}.',
            )
        body = json.dumps({"db": path[0], "table": path[1]}).encode()
        return ServiceRequest(body, self._question_bytes)

    def _text(self, given: bytes | str, what: str) -> str:
        if len(given) <= self._question_bytes:
            try:
                return given if isinstance(given, str) else given.decode()
            except UnicodeDecodeError:
                pass
        raise InvalidInputError(
            f"Cannot read {what} of the call: expected text in UTF-8 of at most {self._question_bytes} "
            "bytes.",
            hint="Pass names as UTF-8.",
        )


def _flight(
    db: str,
    table: str,
    version: int,
    endpoints: list[fl.FlightEndpoint] | None = None,
    num_rows: int = -1,
) -> fl.FlightInfo:
    descriptor = fl.FlightDescriptor.for_path(db, table)
    about = encode_header({"version": version})
    return fl.FlightInfo(
        pages_schema(), descriptor, endpoints or [], num_rows, -1, ordered=True, app_metadata=about
    )


@cache
def pages_schema() -> pa.Schema:
    """Columns of a flight."""
    return page_table("", RunSlice(PageRun(empty_batch(PAGE_SCHEMA)), 0), 0).schema
