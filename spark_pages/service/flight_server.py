"""The service over Arrow Flight: who may ask what, how long it may take, and answers in pieces.

Questions are JSON. Small answers are JSON too (actions), descriptors and bytes of pages come as record
batches (`do_get`). Every call goes through `_answer`: gate, token, deadline, errors, metrics.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from spark_pages.arguments import as_microseconds
from spark_pages.boundary import no_thread
from spark_pages.errors import AccessDeniedError, InvalidInputError, SparkPagesError
from spark_pages.model.table import NAMESPACE_NAMES
from spark_pages.runtime import is_out_of_threads
from spark_pages.service.call_limits import (
    Admission,
    AdmissionControl,
    ClientConnection,
    Deadlines,
    UnreadAnswers,
)
from spark_pages.service.failures import NO_TOKEN, deadline_error, to_flight
from spark_pages.service.freshness import SharedLoads
from spark_pages.service.metadata import MetadataService
from spark_pages.service.metrics import Metrics
from spark_pages.service.requests import ServiceRequest
from spark_pages.service.responses import TableMetaSnapshot
from spark_pages.service.settings import ServiceSettings
from spark_pages.service.table_flights import TableFlights
from spark_pages.service.tokens import EVERYTHING, Access, TokenVerifier
from spark_pages.service.wire import (
    PROTOCOL,
    BytesFrame,
    Frame,
    descriptor_rows,
    encode_header,
    frame_of_changes,
    frame_of_snapshot,
    frame_of_table,
    location_to_plain,
    no_rows,
    object_to_plain,
)
from spark_pages.versions.blame import Blame

_KEPT_FRAMES = 64

GRACE_S = 1.0
"""A client that reads is told in this time that its call has ended; then its connection is closed."""

_METHODS = (
    fl.FlightMethod.DO_ACTION,
    fl.FlightMethod.DO_GET,
    fl.FlightMethod.GET_FLIGHT_INFO,
    fl.FlightMethod.LIST_ACTIONS,
    fl.FlightMethod.LIST_FLIGHTS,
)

Answer = TypeVar("Answer")


class _Caller(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """What is known of the caller of one call."""

    def __init__(self, access: Access | AccessDeniedError) -> None:
        self.access = access


class _Callers(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Looks at the token of every call; what it found is told when the call is answered."""

    def __init__(self, verifier: TokenVerifier | None) -> None:
        self._verifier = verifier

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str]]) -> _Caller:
        """See `pyarrow.flight.ServerMiddlewareFactory`; what the service does not do is refused here."""
        if info.method not in _METHODS:
            raise to_flight(
                InvalidInputError(
                    "Cannot answer this kind of call: the service answers actions, list_flights, "
                    "get_flight_info and do_get, nothing else.",
                    hint="Use `spark_pages.connect(url)`; docs/service.md lists the calls.",
                ),
                "",
            )
        if self._verifier is None:
            return _Caller(EVERYTHING)
        try:
            (header,) = headers.get("authorization") or [""]
            return _Caller(self._verifier.verify(header if isinstance(header, str) else None))
        except ValueError:
            return _Caller(
                AccessDeniedError(
                    "Cannot check the call: it has several tokens.",
                    hint="Send one `authorization` header.",
                    why=NO_TOKEN,
                )
            )
        except AccessDeniedError as refused:
            return _Caller(refused)


class FlightService(fl.FlightServerBase):  # type: ignore[misc]
    """Answers calls from the moment it is made.

    Parameters
    ----------
    service
        Knows the answers.
    settings
        Address, certificate, limits.
    verifier
        Checks tokens; None lets everybody read everything.
    metrics
        Counts.
    """

    def __init__(
        self,
        service: MetadataService,
        settings: ServiceSettings,
        verifier: TokenVerifier | None,
        metrics: Metrics,
    ) -> None:
        self._service = service
        self._settings = settings
        self._metrics = metrics
        self._frames: SharedLoads[TableMetaSnapshot, Frame] = SharedLoads(_KEPT_FRAMES)
        self._workers = ThreadPoolExecutor(settings.calls, thread_name_prefix="spark-pages call")
        self._deadlines = Deadlines(time.monotonic)
        self._unread = UnreadAnswers(settings.calls)
        self._closings = Deadlines(time.monotonic)
        self._flights = TableFlights(service, settings.question_bytes)
        self.gate = AdmissionControl(settings.calls, metrics.begun, metrics.ended)
        self._actions: dict[str, Callable[[ServiceRequest, Access], dict[str, Any]]] = {
            "open": self._open,
            "version": self._version,
            "tables": self._tables,
            "objects": self._objects,
            "blame": self._blame,
        }
        self._gets: dict[str, Callable[[ServiceRequest, Access], Frame | BytesFrame]] = {
            "get_table_meta_snapshot": self._table,
            "collect_table_meta_changes_in_range": self._changes,
            "part": self._part,
            "piece": self._piece,
            "stats": self._stats,
            "bytes": self._bytes,
            "pages": self._pages,
            "history": self._history,
            "changes": self._row_changes,
            "tags": self._tags,
            "leases": self._leases,
        }
        tls = [(settings.certificate, settings.private_key)] if settings.certificate else None
        super().__init__(settings.location, tls_certificates=tls, middleware={"caller": _Callers(verifier)})

    # what Flight calls

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> list[fl.Result]:
        """Answer a small question; ``health`` without a token."""
        if action.type == "health":
            status = "serving" if self.gate.is_open else "draining"
            return [fl.Result(encode_header({"status": status}))]
        known = action.type in self._actions
        call = action.type if known else "unknown"

        def work(access: Access) -> dict[str, Any]:
            if not known:
                raise _unknown("action", action.type, self._actions)
            return self._actions[call](self._question(action.body), access)

        def result(answer: dict[str, Any], passage: Admission) -> list[fl.Result]:
            passage.release()
            return [fl.Result(encode_header(answer))]

        results: list[fl.Result] = self._answer(context, call, work, result)
        return results

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.GeneratorStream:
        """Answer a request for rows, as ``get`` says."""
        call = "unknown"
        body = ticket.ticket
        try:
            asked = self._question(body).text("get")
            call = asked if asked in self._gets else call
        except InvalidInputError:
            pass  # is told below, once it is known that the caller may ask at all

        peer = context.peer()
        host = peer.rpartition(":")[0]

        def work(access: Access) -> Frame | BytesFrame:
            self._unread.check(host)
            question = self._question(body)
            if call == "unknown":
                raise _unknown("'get'", question.text("get"), self._gets)
            return self._gets[call](question, access)

        stop_s = time.monotonic() + self._settings.deadline_s

        def stream(frame: Frame | BytesFrame, passage: Admission) -> fl.GeneratorStream:
            batches = _Batches(frame, self._settings, passage, stop_s, partial(self._overdue, peer))
            self._deadlines.watch(batches, stop_s)
            return fl.GeneratorStream(frame.schema, iter(batches))

        return self._answer(context, call, work, stream)

    def _overdue(self, peer: str, batches: _Batches) -> None:
        """Close the connection of a client that does not read, unless it takes in a moment that this is over.

        Flight waits in a thread until its message is read, and cannot be told to stop.
        """
        self._unread.add(peer.rpartition(":")[0], batches)
        batches.connection = ClientConnection(peer)  # there for as long as Flight holds the answer
        self._closings.watch(batches.connection, time.monotonic() + GRACE_S)

    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> Iterator[fl.FlightInfo]:
        """List the tables that may be read; of one namespace, if criteria name one."""

        def work(access: Access) -> list[fl.FlightInfo]:
            return self._flights.list(criteria or b"", access)

        found: list[fl.FlightInfo] = self._answer(context, "list_flights", work, _released)
        return iter(found)

    def get_flight_info(
        self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor
    ) -> fl.FlightInfo:
        """Say by which tickets the page descriptors of a table can be had."""

        def work(access: Access) -> fl.FlightInfo:
            return self._flights.info(descriptor, access)

        return self._answer(context, "get_flight_info", work, _released)

    def list_actions(self, _context: fl.ServerCallContext) -> list[tuple[str, str]]:
        """See `pyarrow.flight.FlightServerBase`."""
        return [
            ("health", "Whether the service takes calls"),
            *((name, "See docs/service.md") for name in self._actions),
        ]

    def close(self) -> None:
        """Threads for calls end once their work is done; see `spark_pages.service.serving` for all of it."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._deadlines.close()
        self._closings.close()

    # one call

    def _answer(
        self,
        context: fl.ServerCallContext,
        call: str,
        work: Callable[[Access], Answer],
        wrap: Callable[[Answer, Admission], Any],
    ) -> Any:
        """Run the work within the deadline, and wrap its result; errors become Flight errors."""
        began = time.monotonic()
        outcome = "ok"
        passage: Admission | None = None
        running: Future[Answer] | None = None
        try:
            passage = self.gate.enter()
            running = self._begin(work, self._access(context))
            try:
                answer = running.result(self._settings.deadline_s)
            except TimeoutError:
                raise deadline_error("the service") from None
            return wrap(answer, passage)
        except Exception as error:  # noqa: BLE001 - nothing but named errors may reach Flight
            if passage is not None and running is not None and not running.done():
                running.add_done_callback(partial(_end, passage))  # it runs on: it is still inside
            elif passage is not None:
                passage.release()
            incident = uuid.uuid4().hex[:12]
            outcome = type(error).__name__ if isinstance(error, SparkPagesError) else "InternalError"
            raise to_flight(error, incident) from None
        finally:
            self._metrics.answered(call, outcome, time.monotonic() - began)

    def _begin(self, work: Callable[[Access], Answer], access: Access) -> Future[Answer]:
        try:
            return self._workers.submit(work, access)
        except RuntimeError as error:
            if not is_out_of_threads(error):
                raise
            raise no_thread("answer the call") from error

    def _access(self, context: fl.ServerCallContext) -> Access:
        caller: _Caller = context.get_middleware("caller")
        if isinstance(caller.access, AccessDeniedError):
            raise caller.access
        return caller.access

    def _question(self, body: pa.Buffer | bytes | None) -> ServiceRequest:
        size = 0 if body is None else len(body)
        most = self._settings.question_bytes
        data = b"" if body is None or size > most else bytes(body)  # what is too long is not copied
        if size > most:
            raise InvalidInputError(
                f"Cannot answer the call: its request has {size} bytes, expected at most {most}.",
                hint=f"Ask for fewer rows or columns at once: at most {most} bytes describe them.",
            )
        return ServiceRequest(data, most)

    # answers

    def _open(self, _question: ServiceRequest, access: Access) -> dict[str, Any]:
        namespaces = sorted(access.namespaces)
        return {"protocol": PROTOCOL, "url": self._service.objects.url, "namespaces": namespaces}

    def _version(self, question: ServiceRequest, _access: Access) -> dict[str, Any]:
        moment = self._service.version_info(
            question.perhaps_number("version"),
            question.perhaps_number("timestamp_us"),
            question.perhaps_text("tag"),
        )
        store = self._service.store_id
        return {"version": moment.version, "timestamp_us": moment.timestamp_us, "store": store}

    def _tables(self, question: ServiceRequest, access: Access) -> dict[str, Any]:
        found = self._service.tables(question.perhaps_number("version"))
        return {"tables": [list(names) for names in found if access.allows(names[0])]}

    def _objects(self, question: ServiceRequest, access: Access) -> dict[str, Any]:
        """Namespaces that may be read; types, which belong to none, for whoever may read the catalog."""
        found = self._service.namespaces_and_types(question.perhaps_number("version"))
        return {
            "objects": [
                object_to_plain(each)
                for each in found
                if access.allows(each.name if each.namespace_id == NAMESPACE_NAMES else "system")
            ]
        }

    def _table(self, question: ServiceRequest, access: Access) -> Frame:
        version = question.perhaps_number("version")
        if question.perhaps_number("timestamp_us") is not None:
            version = self._service.version_info(version, question.number("timestamp_us")).version
        db = self._namespace(question, access, version)
        answer = self._service.get_table_meta_snapshot(db, question.text("table"), version)
        return self._frames.get(answer, lambda: frame_of_snapshot(answer))

    def _changes(self, question: ServiceRequest, access: Access) -> Frame:
        db, table = self._named(question, access)
        return frame_of_changes(
            self._service.collect_table_meta_changes_in_range(
                db, table, question.number("from"), question.perhaps_number("to")
            )
        )

    def _part(self, question: ServiceRequest, access: Access) -> Frame:
        found = self._service.part(
            *self._named(question, access), question.number("version"), question.piece()
        )
        return Frame({"places": list(map(location_to_plain, found))}, no_rows())

    def _piece(self, question: ServiceRequest, access: Access) -> Frame:
        run = self._service.piece(
            *self._named(question, access), question.number("version"), question.piece()
        )
        return Frame({}, descriptor_rows(run.pages, None))

    def _stats(self, question: ServiceRequest, access: Access) -> Frame:
        found = self._service.stats(
            *self._named(question, access), question.number("version"), question.piece()
        )
        return Frame({}, descriptor_rows(*found))

    def _bytes(self, question: ServiceRequest, access: Access) -> BytesFrame:
        wanted = question.named_bytes()
        size = sum(length for _, length in wanted.ranges)
        if size > self._settings.answer_bytes:
            raise InvalidInputError(
                f"Cannot answer the call: it asks for {size} bytes, expected at most "
                f"{self._settings.answer_bytes}.",
                hint=f"Ask for fewer ranges at once: at most {self._settings.answer_bytes} bytes together.",
            )
        found = self._service.read(*self._named(question, access), question.number("version"), wanted)
        self._metrics.sent(size)
        return BytesFrame(found)

    def _pages(self, question: ServiceRequest, access: Access) -> Frame:
        db = self._namespace(question, access, question.number("version"))
        return self._frame(self._flights.pages(question, db))

    # what the log tells

    def _history(self, question: ServiceRequest, access: Access) -> Frame:
        access.check("system")
        limit, end = question.perhaps_number("limit"), question.perhaps_number("end")
        found = self._service.log_queries.history(limit, end)
        return self._frame(found.rows, {"first": found.first, "oldest": found.oldest})

    def _row_changes(self, question: ServiceRequest, access: Access) -> Frame:
        end, table = question.number("end"), None
        if question.perhaps_text("table") is None:
            access.check_all("the changes of all tables")
        else:
            table = f"{self._namespace(question, access, end)}.{question.text('table')}"
        found = self._service.log_queries.changes(
            question.number("start"), end, table, question.text("granularity")
        )
        return self._frame(found)

    def _tags(self, _question: ServiceRequest, _access: Access) -> Frame:
        return self._frame(self._service.log_queries.tags())

    def _leases(self, _question: ServiceRequest, access: Access) -> Frame:
        access.check("system")
        return self._frame(self._service.log_queries.leases())

    def _blame(self, question: ServiceRequest, access: Access) -> dict[str, Any]:
        db, table = self._namespace(question, access, None), question.text("table")
        found = self._service.log_queries.blame(
            f"{db}.{table}", question.text("column"), question.number("row")
        )
        return _blame_header(found)

    def _frame(self, table: pa.Table, header: dict[str, Any] | None = None) -> Frame:
        if table.nbytes > self._settings.answer_bytes:
            raise InvalidInputError(
                f"Cannot answer the call: its answer has {table.nbytes} bytes, expected at most "
                f"{self._settings.answer_bytes}.",
                hint="Pass `limit`, or `start` and `end` closer together.",
            )
        return frame_of_table(table, header)

    def _named(self, question: ServiceRequest, access: Access) -> tuple[str, str]:
        """Namespace, as it is spelled, and table of the question, which the caller may read."""
        version = question.perhaps_number("to" if question.text("get").startswith("collect") else "version")
        return self._namespace(question, access, version), question.text("table")

    def _namespace(self, question: ServiceRequest, access: Access, version: int | None) -> str:
        """Return the namespace of the question, as it is spelled, which the caller may read."""
        db = self._service.namespace_called(question.text("db"), version)
        access.check(db)
        return db


class _Batches:
    """The batches of an answer, the header beside the first.

    The call is inside until the last batch is taken, or until its deadline: then place and memory are given
    back even if Flight waits for a client that does not read.
    """

    def __init__(
        self,
        frame: Frame | BytesFrame,
        settings: ServiceSettings,
        passage: Admission,
        stop_s: float,
        overdue: Callable[[_Batches], None],
    ) -> None:
        self._header: bytes | None = encode_header(frame.header)
        self._batches: Iterator[pa.RecordBatch] | None = frame.split(settings.message_bytes)
        self._passage = passage
        self._stop_s = stop_s
        self._overdue = overdue
        self._lock = threading.Lock()
        self.connection: ClientConnection | None = None

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch | tuple[pa.RecordBatch, bytes]:
        with self._lock:
            if self._batches is None or time.monotonic() > self._stop_s:
                self._release()
                raise to_flight(deadline_error("the service"), "")
            batch = next(self._batches, None)
            if batch is None:
                self._release()
                raise StopIteration
            header, self._header = self._header, None
        return batch if header is None else (batch, header)

    def end(self) -> None:
        """See `Endable`: Flight holds the message that it is sending until the connection is closed."""
        with self._lock:
            if self._batches is not None:
                self._release()
                self._overdue(self)

    def _release(self) -> None:
        self._batches = None
        self._passage.release()


def _released(answer: Answer, passage: Admission) -> Answer:
    passage.release()
    return answer


def _end(passage: Admission, _: object) -> None:
    passage.release()


def _unknown(what: str, given: str, known: dict[str, Any]) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot answer {what} {given[:80]!r}: there is none of that name.",
        hint=f"There are {', '.join(sorted(known))}.",
    )


def _blame_header(found: Blame) -> dict[str, Any]:
    told: dict[str, Any] = {
        "version": found.version,
        "timestamp_us": as_microseconds(found.timestamp),
        "operation": found.operation,
        "writer": found.writer,
        "exact": found.exact,
    }
    if found.deleted_by is not None:
        told["deleted_by"] = _blame_header(found.deleted_by)
    return told
