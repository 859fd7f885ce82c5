"""A proxy in front of an S3 server that does to requests what networks and busy servers do to them.

It passes on what it gets byte for byte, so signatures stay valid. A `Fault` says whether and when the server
gets a request, and what the client is told; `FaultProxy.inject` says which requests it happens to.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import unquote

from tests.s3.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, options_for

_HEAD_END = b"\r\n\r\n"
_NO_BODY = (204, 304)
_LIMIT = 1 << 24


class Kind(StrEnum):
    """What a request asks for."""

    CREATE = "create"
    PUT = "put"
    GET = "get"
    RANGE = "range"
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request.

    Attributes
    ----------
    name
        In a few words.
    applied
        Whether the server gets it: ``"no"``, ``"now"`` before the client is answered, or ``"late"``.
    answer
        What the client gets: an HTTP status, the server's own answer (``"real"``), its first half
        (``"half"``), all of it bit by bit (``"trickle"``), a closed connection (``"drop"``), a reset one
        (``"reset"``), or nothing for as long as it waits (``"never"``).
    late_s
        Seconds until the server gets it, if late; None for as long as nobody calls `settle`.
    delay_s
        Seconds until the client gets its answer.
    """

    name: str
    applied: Literal["no", "now", "late"]
    answer: int | Literal["real", "half", "trickle", "drop", "reset", "never"]
    late_s: float | None = 0.0
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came by, and the fault that it met, if any."""

    kind: Kind
    path: str
    fault: str | None


@dataclass(slots=True)
class _Rule:
    fault: Fault | Callable[[], Fault]
    kinds: tuple[Kind, ...]
    path: re.Pattern[str]
    left: int | None


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    kind: Kind
    path: str
    raw: bytes


@dataclass(slots=True)
class _Shared:
    """What the two threads share; each use holds the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    rules: list[_Rule] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)


class FaultProxy:
    """Listens on a port of this machine; one thread with an event loop; ends with its ``with`` block."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._shared = _Shared()
        self._loop = asyncio.new_event_loop()
        self._late: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.Task[None]] = set()
        self._settling = asyncio.Event()
        self._asking = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_error: object) -> None:
        self.clear()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # for tests

    def options(self, timeout: str | None = None, retries: dict[str, Any] | None = None) -> dict[str, Any]:
        """Storage options that lead through this proxy."""
        return options_for(self.port, timeout, retries)

    def inject(
        self,
        fault: Fault | Callable[[], Fault],
        *kinds: Kind,
        path: str = "",
        times: int | None = 1,
    ) -> None:
        """The next `times` requests of these kinds meet the fault; all until `clear` where it is None.

        Parameters
        ----------
        fault
            What happens, or a function that says it anew for each request.
        kinds
            Kinds of requests; all where none is given.
        path
            A regular expression that the path of the request must contain.
        times
            How many requests.
        """
        with self._shared.lock:
            self._shared.rules.append(_Rule(fault, kinds, re.compile(path), times))

    def clear(self) -> None:
        """No request meets a fault any more; those on their way still do."""
        with self._shared.lock:
            self._shared.rules.clear()

    def forget(self) -> None:
        """As if no request had come by yet."""
        with self._shared.lock:
            self._shared.seen.clear()

    def settle(self, timeout_s: float = 20.0) -> None:
        """What was late has arrived, and so has what clients have given up."""
        asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(timeout_s)

    @property
    def seen(self) -> list[Seen]:
        """All requests until now, in the order in which they came."""
        with self._shared.lock:
            return list(self._shared.seen)

    @property
    def faults(self) -> int:
        """Number of requests that met a fault."""
        return sum(each.fault is not None for each in self.seen)

    # the event loop

    async def _listen(self) -> int:
        self._listener = await asyncio.start_server(self._client, "127.0.0.1", 0, limit=_LIMIT)
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def _settle(self) -> None:
        self._settling.set()
        while self._late or self._asking:
            await asyncio.gather(*self._late, asyncio.sleep(0.001), return_exceptions=True)
        self._settling.clear()

    async def _stop(self) -> None:
        await self._settle()
        self._listener.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while (request := await _read_request(reader)) is not None:
                if not await self._serve(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # a client that gave up, or the end of the test
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve(
        self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; whether the connection lives on."""
        fault = self._fault_for(request)
        if fault is None:
            return await _send(writer, await self._ask(request))
        real = b""
        if fault.applied == "late":
            self._apply_late(request, fault.late_s)
        elif fault.applied == "now":
            real = await self._ask(request)
        await asyncio.sleep(fault.delay_s)
        match fault.answer:
            case "real":
                return await _send(writer, real)
            case "trickle":
                return await _send(writer, real, pieces=20)
            case "half":
                await _send(writer, _half(real))
            case "never":
                await reader.read(1)  # the client goes away, or sends what nobody will answer
            case "reset":
                _reset(writer)
            case "drop":
                pass
            case status:
                return await _send(writer, _error(status))
        return False

    def _fault_for(self, request: _Request) -> Fault | None:
        with self._shared.lock:
            fault = self._taken(request)
            name = fault.name if fault else None
            self._shared.seen.append(Seen(request.kind, request.path, name))
            return fault

    def _taken(self, request: _Request) -> Fault | None:
        for rule in self._shared.rules:
            if (rule.kinds and request.kind not in rule.kinds) or not rule.path.search(request.path):
                continue
            if rule.left is not None:
                if rule.left == 0:
                    continue
                rule.left -= 1
            return rule.fault if isinstance(rule.fault, Fault) else rule.fault()
        return None

    def _apply_late(self, request: _Request, late_s: float | None) -> None:
        async def apply() -> None:
            await (self._settling.wait() if late_s is None else asyncio.sleep(late_s))
            await self._ask(request)

        task = self._loop.create_task(apply())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _ask(self, request: _Request) -> bytes:
        """The whole answer of the server."""
        self._asking += 1
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port, limit=_LIMIT)
            try:
                writer.write(request.raw)
                await writer.drain()
                return await _read_answer(reader, request.method)
            finally:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
        finally:
            self._asking -= 1


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = await reader.readuntil(_HEAD_END)
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return None
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = _headers(lines[1:])
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return _Request(method, _kind(method, target, headers), unquote(target), head + body)


def _kind(method: str, target: str, headers: dict[str, str]) -> Kind:
    query = target.partition("?")[2]
    match method:
        case "PUT" if not query:
            return Kind.CREATE if headers.get("if-none-match") == "*" else Kind.PUT
        case "GET" if "list-type" in query:
            return Kind.LIST
        case "GET":
            return Kind.RANGE if "range" in headers else Kind.GET
        case "HEAD":
            return Kind.HEAD
        case "DELETE":
            return Kind.DELETE
        case "POST" if query.startswith("delete"):
            return Kind.DELETE
    return Kind.OTHER


async def _read_answer(reader: asyncio.StreamReader, method: str) -> bytes:
    head = await reader.readuntil(_HEAD_END)
    lines = head.decode("latin-1").split("\r\n")
    headers = _headers(lines[1:])
    if method == "HEAD" or int(lines[0].split(" ")[1]) in _NO_BODY:
        return head
    if headers.get("transfer-encoding") != "chunked":
        return head + await reader.readexactly(int(headers["content-length"]))
    answer = head
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size, 16) + 2)
        answer += size + chunk
        if len(chunk) == 2:
            return answer


async def _send(writer: asyncio.StreamWriter, data: bytes, pieces: int = 1) -> bool:
    step = max(1, -(-len(data) // pieces))
    for start in range(0, len(data), step):
        writer.write(data[start : start + step])
        await writer.drain()
        if pieces > 1:
            await asyncio.sleep(0.002)
    return True


def _half(answer: bytes) -> bytes:
    """The head and half of the body; half of the head where there is no body."""
    head_bytes = answer.index(_HEAD_END) + len(_HEAD_END)
    body_bytes = len(answer) - head_bytes
    return answer[: head_bytes + body_bytes // 2] if body_bytes else answer[: head_bytes // 2]


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


def _error(status: int) -> bytes:
    """An answer that names secrets, as real ones were seen to do: nothing of it may be shown."""
    body = (
        f"<Error><Code>Injected</Code><AWSAccessKeyId>{ACCESS_KEY_ID}</AWSAccessKeyId>"
        f"<StringToSign>{SECRET_ACCESS_KEY}</StringToSign></Error>"
    )
    head = f"HTTP/1.1 {status} Injected\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()
