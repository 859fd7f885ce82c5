"""``/health`` and ``/metrics`` over HTTP, for probes and Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
        """It does not listen any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
