"""Calls to the service: one channel for all threads, made anew when the service comes back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as fl
import tenacity

from spark_pages.errors import DamageError, InvalidInputError, UnsupportedFormatError
from spark_pages.runtime import Runtime
from spark_pages.service.failures import MOST_TOKEN, from_flight
from spark_pages.service.wire import PROTOCOL, decode_header, encode_header

Token = str | Callable[[], str]
"""A bearer token, or what gives one: asked before each call, so that it can give a new one in time."""

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_MOST_MESSAGE = 128 << 20

Result = TypeVar("Result")


class ServiceClient:
    """Asks one service.

    Parameters
    ----------
    url
        ``grpc+tls://host:port``, or ``grpc://host:port`` where nothing needs to be kept from listeners.
    token
        See `Token`; never shown by anything.
    certificate
        Of the authority that signed the service's certificate, in PEM; None takes those of the system.
    timeout_s
        A call that takes longer fails.
    retry_s
        So long a service that cannot be reached is tried again.
    runtime
        Sleep.

    Raises
    ------
    InvalidInputError
        If the address is none, or a token would be sent in the clear.
    """

    def __init__(
        self,
        url: str,
        token: Token | None,
        certificate: bytes | None,
        timeout_s: float,
        retry_s: float,
        runtime: Runtime,
    ) -> None:
        self.url = _checked(url)
        if token is not None and not self.url.startswith("grpc+tls://"):
            raise InvalidInputError(
                f"Cannot connect to {self.url}: a token would be sent in the clear.",
                hint="Use grpc+tls://host:port.",
            )
        if token is not None and not callable(token):
            _plain_token(token)
        self._token = token
        self._certificate = certificate
        self._timeout_s = timeout_s
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(fl.FlightUnavailableError),
            stop=tenacity.stop_after_delay(retry_s),
            wait=tenacity.wait_random_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
            sleep=runtime.sleep_s,
            reraise=True,
        )
        self._lock = threading.Lock()
        self._client: tuple[int, fl.FlightClient] | None = None

    def __repr__(self) -> str:
        return f"ServiceClient({self.url!r})"

    def request(self, action: str, **fields: Any) -> dict[str, Any]:
        """Send a small request, and return the answer."""
        asked = fl.Action(action, encode_header(_given(fields)))

        def call(client: fl.FlightClient, options: fl.FlightCallOptions) -> dict[str, Any]:
            results = list(client.do_action(asked, options))
            if len(results) != 1:
                raise DamageError(
                    f"Cannot use the answer of the service at {self.url}: expected one, found {len(results)}."
                )
            return decode_header(results[0].body.to_pybytes())

        return self._call(call)

    def get(self, what: str, **fields: Any) -> tuple[dict[str, Any], list[pa.RecordBatch]]:
        """Header and rows of an answer."""
        ticket = fl.Ticket(encode_header({"get": what, **_given(fields)}))

        def call(
            client: fl.FlightClient, options: fl.FlightCallOptions
        ) -> tuple[dict[str, Any], list[pa.RecordBatch]]:
            header: dict[str, Any] = {}
            batches = []
            for chunk in client.do_get(ticket, options):
                if chunk.app_metadata is not None:
                    header = decode_header(chunk.app_metadata.to_pybytes())
                if chunk.data is not None:
                    batches.append(chunk.data)
            return header, batches

        return self._call(call)

    def handshake(self) -> dict[str, Any]:
        """Return the self-description of the service.

        Raises
        ------
        UnsupportedFormatError
            If it speaks another protocol.
        """
        told = self.request("open")
        if told.get("protocol") != PROTOCOL or not isinstance(told.get("url"), str):
            raise UnsupportedFormatError(
                f"Cannot use the service at {self.url}: expected protocol {PROTOCOL}, found "
                f"{told.get('protocol')!r}.",
                hint="Upgrade the older of the two: `pip install --upgrade spark-pages`.",
            )
        return told

    def close(self) -> None:
        """Close the channel, which the next call opens again."""
        with self._lock:
            held, self._client = self._client, None
        if held is not None and held[0] == os.getpid():
            held[1].close()

    def _call(self, call: Callable[[fl.FlightClient, fl.FlightCallOptions], Result]) -> Result:
        try:
            found: Result = self._retrying.copy()(self._once, call)
            return found
        except pa.ArrowException as error:
            raise from_flight(error, self.url) from None
        except OSError as error:  # Arrow's I/O errors are this one
            raise from_flight(fl.FlightServerError(str(error)[:500]), self.url) from None

    def _once(self, call: Callable[[fl.FlightClient, fl.FlightCallOptions], Result]) -> Result:
        headers = []
        if self._token is not None:
            token = self._token if isinstance(self._token, str) else self._token()
            headers = [(b"authorization", b"Bearer " + _plain_token(token))]
        options = fl.FlightCallOptions(timeout=self._timeout_s, headers=headers)
        client = self._channel()
        try:
            return call(client, options)
        except fl.FlightUnavailableError:
            self._forget(client)
            raise

    def _channel(self) -> fl.FlightClient:
        with self._lock:
            if self._client is None or self._client[0] != os.getpid():  # gRPC does not survive a fork
                client = fl.FlightClient(
                    self.url,
                    tls_root_certs=self._certificate,
                    generic_options=[
                        ("grpc.use_local_subchannel_pool", 1),  # a new channel tries at once
                        ("grpc.max_receive_message_length", _MOST_MESSAGE),
                    ],
                )
                self._client = os.getpid(), client
            return self._client[1]

    def _forget(self, client: fl.FlightClient) -> None:
        """Replace the channel at the next call; the old one closes after its last call."""
        with self._lock:
            if self._client is not None and self._client[1] is client:
                self._client = None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if (
        parts.scheme not in ("grpc+tls", "grpc")
        or not parts.hostname
        or not port
        or "@" in parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise InvalidInputError(
            "Cannot use the address of a service: it must be grpc+tls://host:port, without user, "
            "path or query.",
            hint="Write it like grpc+tls://host:8815; stores without a service are opened with "
            "`spark_pages.open(url)`.",
        )
    return f"{parts.scheme}://{parts.netloc}"


def _plain_token(token: str) -> bytes:
    if isinstance(token, str) and len(token) > MOST_TOKEN:
        raise InvalidInputError(
            f"Cannot send the token: it has {len(token):,} characters, expected at most "
            f"{MOST_TOKEN:,}, because gRPC refuses longer headers.",
            hint="Get a `token` with fewer claims.",
        )
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInputError(
            "Cannot send the token: it is no text of printable ASCII characters without spaces.",
            hint='Pass `token` as the three parts with dots between them, without "Bearer".',
        )
    return token.encode()


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
