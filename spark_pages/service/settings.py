"""How a service listens, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_pages.errors import InvalidInputError


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
            raise InvalidInputError("TLS needs a certificate and its private key: one of them is missing.")
        numbers = {
            name: getattr(self, name)
            for name in (
                "staleness_s",
                "deadline_s",
                "calls",
                "question_bytes",
                "message_bytes",
                "answer_bytes",
            )
        }
        wrong = [f"{name}={value}" for name, value in numbers.items() if value <= 0]
        if wrong or self.drain_s < 0:
            raise InvalidInputError(f"The service was given {', '.join(wrong) or f'drain_s={self.drain_s}'}.")

    @property
    def location(self) -> str:
        """Where Flight listens, as an address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'+tls' if self.certificate else ''}://{host}:{self.port}"
