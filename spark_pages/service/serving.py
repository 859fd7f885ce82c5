"""A service that runs: Flight, HTTP and their end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from spark_pages.boundary import no_thread
from spark_pages.errors import StorageError
from spark_pages.runtime import Runtime, is_out_of_threads
from spark_pages.service.flight_server import FlightService
from spark_pages.service.metadata import MetadataService
from spark_pages.service.metrics import Metrics
from spark_pages.service.settings import ServiceSettings
from spark_pages.service.tokens import TokenVerifier
from spark_pages.storage.store import ObjectStore

_LAST_S = 5.0

_left_behind: list[FlightService] = []
"""Servers with a call that hangs: if they were destroyed under it, the process would crash."""


class Serving:
    """A store is served from the moment this is made, until `drain`.

    Parameters
    ----------
    objects
        The store.
    settings
        Address, certificate, limits.
    verifier
        Checks tokens; None lets everybody read everything.
    runtime
        Clock and sleep of the service.

    Raises
    ------
    StoreNotFoundError
        If there is no store.
    StorageError
        If the address cannot be listened on.
    """

    def __init__(
        self,
        objects: ObjectStore,
        settings: ServiceSettings,
        verifier: TokenVerifier | None,
        runtime: Runtime | None = None,
    ) -> None:
        self.settings = settings
        self.metadata = MetadataService(objects, runtime, settings.staleness_s)
        self.metadata.freshness.newest()
        self.metrics = Metrics(self._version, self._age_s, lambda: self.metadata.freshness.refreshes)
        self._http: HttpStatus | None = None
        try:
            self._flight = FlightService(self.metadata, settings, verifier, self.metrics)
        except Exception as error:
            if isinstance(error, RuntimeError) and is_out_of_threads(error):
                raise no_thread(f"listen at {settings.location}") from error
            raise StorageError(
                f"Cannot listen at {settings.location}: {type(error).__name__}.",
                hint="The port may be taken, or --tls-cert and --tls-key do not belong together.",
            ) from error
        if settings.http_port is not None:
            try:
                self._http = HttpStatus(
                    settings.http_host,
                    settings.http_port,
                    lambda: self._flight.gate.is_open,
                    self.metrics.text,
                )
            except RuntimeError as error:
                self._flight.shutdown()
                if not is_out_of_threads(error):
                    raise
                raise no_thread(f"listen at {settings.http_host}:{settings.http_port}") from error
            except OSError as error:
                self._flight.shutdown()
                raise StorageError(
                    f"Cannot listen at {settings.http_host}:{settings.http_port}: {error.strerror}.",
                    hint="Choose another --http-port, or 0 for any that is free.",
                ) from error

    @property
    def port(self) -> int:
        """Where Flight listens."""
        port: int = self._flight.port
        return port

    @property
    def http_port(self) -> int | None:
        """Where HTTP listens."""
        return self._http.port if self._http else None

    def drain(self) -> bool:
        """No more calls are taken; those in flight are done, which it gives, or ``drain_s`` are over.

        Notes
        -----
        ``/health`` answers 503 from the beginning, and is the last to go. A call that hangs in storage is
        left behind.
        """
        done = self._flight.gate.close(self.settings.drain_s)
        self._flight.close()
        ending = threading.Thread(target=self._flight.shutdown, name="spark-pages end", daemon=True)
        ending.start()  # waits for Flight's own threads, of which one may hang
        ending.join(_LAST_S)
        if self._http is not None:
            self._http.close()
        if done and not ending.is_alive():
            return True
        _left_behind.append(self._flight)
        return False

    def __enter__(self) -> Self:
        """Return the service, which ends at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `drain`."""
        self.drain()

    def _version(self) -> float:
        known = self.metadata.freshness.known
        return -1 if known is None else known[0].state.version

    def _age_s(self) -> float:
        known = self.metadata.freshness.known
        return -1 if known is None else known[1]


_SLOWEST_S = 5.0


class HttpStatus:
    """A small HTTP server, in threads of its own.

    Parameters
    ----------
    host, port
        Where it listens; port 0 takes a free one.
    is_serving
        Whether the service takes calls.
    metrics
        Gives the metrics as text.
    """

    def __init__(
        self, host: str, port: int, is_serving: Callable[[], bool], metrics: Callable[[], bytes]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _SLOWEST_S  # of a peer that sends no request
            server_version = "spark-pages"
            sys_version = ""

            def do_GET(self) -> None:
                if self.path == "/health":
                    serving = is_serving()
                    text = b'{"status": "serving"}\n' if serving else b'{"status": "draining"}\n'
                    self._send(200 if serving else 503, "application/json", text)
                elif self.path == "/metrics":
                    self._send(200, "text/plain; version=0.0.4; charset=utf-8", metrics())
                else:
                    self._send(404, "text/plain; charset=utf-8", b"There are /health and /metrics.\n")

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: a line for each probe says nothing."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="spark-pages http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
