"""What the service tells of itself, for Prometheus. Names and numbers only: no token, path or table name."""

from __future__ import annotations

from collections.abc import Callable

from spark_pages.errors import MissingDependencyError

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ModuleNotFoundError as missing:
    raise MissingDependencyError(
        f"Cannot measure the service: {missing.name} is not installed.",
        hint='Install it: `pip install "spark-pages[service]"`.',
    ) from missing

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one service.

    Parameters
    ----------
    version
        Gives the newest version known, or -1.
    age_s
        Gives how many seconds ago storage was asked for it.
    refreshes
        Gives how often storage was asked for something newer.
    """

    def __init__(
        self, version: Callable[[], float], age_s: Callable[[], float], refreshes: Callable[[], float]
    ) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "spark_pages_calls", "Calls, by what was asked and how it ended", ["call", "outcome"],
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "spark_pages_call_seconds", "Time until the answer began", ["call"],
            buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._in_flight = Gauge(
            "spark_pages_calls_in_flight", "Calls begun, not ended", registry=self._registry
        )
        self._bytes = Counter(
            "spark_pages_page_bytes", "Bytes of page files handed out", registry=self._registry
        )
        for name, text, told in (
            ("spark_pages_version", "Newest version known", version),
            ("spark_pages_snapshot_age_seconds", "Time since storage was asked for it", age_s),
            ("spark_pages_refreshes", "How often storage was asked for something newer", refreshes),
        ):
            Gauge(name, text, registry=self._registry).set_function(told)

    def begun(self) -> None:
        """Count a call that began."""
        self._in_flight.inc()

    def answered(self, call: str, outcome: str, seconds: float) -> None:
        """Count an answered call: ``ok``, or the class of the error."""
        self._calls.labels(call, outcome).inc()
        self._seconds.labels(call).observe(seconds)

    def ended(self) -> None:
        """Count a call that ended."""
        self._in_flight.dec()

    def sent(self, size: int) -> None:
        """So many bytes of page files were handed out."""
        self._bytes.inc(size)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)
