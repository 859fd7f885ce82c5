"""How a service listens, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_pages.arguments import as_int, as_seconds, as_str, check_kind
from spark_pages.errors import InvalidInputError

_LAST_PORT = (1 << 16) - 1
_MOST = (1 << 31) - 1
_SHORTEST_S = 1e-6
_DURATIONS = ("staleness_s", "deadline_s")
_LIMITS = ("calls", "question_bytes", "message_bytes", "answer_bytes")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Address, certificate and limits of a service.

    Attributes
    ----------
    host, port
        Where Flight listens; port 0 takes a free one.
    http_port
        Where ``/health`` and ``/metrics`` are; 0 takes a free port, None has none.
    http_host
        The address for it.
    certificate, private_key
        In PEM; None where there is no TLS.
    staleness_s
        See `MetadataService`.
    deadline_s
        A call that takes longer is refused.
    drain_s
        So long calls in flight may go on when the service ends.
    calls
        So many calls may be in flight.
    question_bytes, message_bytes, answer_bytes
        Most bytes of a question; about as many of one message of an answer; most bytes of page files that one
        call may ask for.
    """

    host: str = "127.0.0.1"
    port: int = 0
    http_port: int | None = None
    http_host: str = "127.0.0.1"
    certificate: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    staleness_s: float = 1.0
    deadline_s: float = 30.0
    drain_s: float = 20.0
    calls: int = 64
    question_bytes: int = 256 << 10
    message_bytes: int = 1 << 20
    answer_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise InvalidInputError(
                "Cannot serve with TLS: it needs a certificate and its private key, and one of them "
                "is missing.",
                hint="Pass both `tls_cert` and `tls_key`, or neither.",
            )
        given: dict[str, object] = {
            **{name: as_str(getattr(self, name), name) for name in ("host", "http_host")},
            **{name: as_seconds(getattr(self, name), name, _SHORTEST_S) for name in _DURATIONS},
            **{name: as_int(getattr(self, name), name, "a number", 1, _MOST) for name in _LIMITS},
            "drain_s": as_seconds(self.drain_s, "drain_s"),
            "port": as_int(self.port, "port", "a port", 0, _LAST_PORT),
        }
        if self.http_port is not None:
            given["http_port"] = as_int(self.http_port, "http_port", "a port", 0, _LAST_PORT)
        for name in ("certificate", "private_key"):
            check_kind(getattr(self, name), bytes | None, name, "PEM as bytes")
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @property
    def location(self) -> str:
        """Where Flight listens, as an address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'+tls' if self.certificate else ''}://{host}:{self.port}"
