"""Many clients of one service, beside as many that open the store themselves; storage is 20 ms away.

    python -m benchmarks.service.clients --clients 16 --seconds 10

The service has a process of its own, and every client too. A cold client connects, or opens, and finds a row.
Then all of them ask for the newest version and look a row up in it, over and over, while one writer commits.
Requests are those of metadata to storage, of all clients together.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import pyarrow as pa

import spark_pages as sp
from benchmarks.log.delayed import DelayedStore
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.service.serving import Serving
from spark_pages.service.settings import ServiceSettings
from spark_pages.storage import DurableLocalStore, MeteredStore
from spark_pages.store import Store

_TABLE = "t000000"
_SPAWN = multiprocessing.get_context("spawn")
_COMMITS_S = 5.0

Opener = Callable[[], Any]


def metered(url: str, latency_s: float) -> MeteredStore:
    """The store, far away, with requests counted."""
    return MeteredStore(DelayedStore(DurableLocalStore(url), latency_s))


def serve(url: str, latency_s: float, staleness_s: float, pipe: Connection) -> None:
    """Serves until told to end; tells its address, and how many requests it made whenever it is asked."""
    meter = metered(url, latency_s)
    serving = Serving(meter, ServiceSettings(staleness_s=staleness_s, calls=256), None)
    pipe.send(f"grpc://127.0.0.1:{serving.port}")
    while pipe.recv() == "count":
        pipe.send((meter.counts.requests, sum(os.times()[:2])))
    serving.drain()
    pipe.send(None)


def client(way: str, url: str, latency_s: float, seconds: float, begin: Event, pipe: Connection) -> None:
    """Cold, then warm: tells seconds of each, and requests where it asks storage itself."""
    meter = None if way == "service" else metered(url, latency_s)

    def opened() -> Any:
        return sp.connect(url) if meter is None else Store(meter)

    def look(store: Any, row: int) -> None:
        table = store.snapshot().table(_TABLE)
        table.directory.locate_row(table.columns[0], row % table.num_rows)

    _ = sp.connect, sp.Table  # what is imported late is not what is measured
    pipe.send("ready")
    begin.wait()
    began = time.perf_counter()
    store = opened()
    look(store, 0)
    cold_s = time.perf_counter() - began
    cold_requests = meter.counts.requests if meter else 0
    warm: list[float] = []
    stop = time.perf_counter() + seconds
    while (now := time.perf_counter()) < stop:
        look(store, len(warm) * 7919)
        warm.append(time.perf_counter() - now)
    pipe.send((cold_s, cold_requests, warm, (meter.counts.requests if meter else 0) - cold_requests))
    store.close()


def write(url: str, begin: Event, end: Event) -> None:
    """Commits a row to every column, some times a second."""
    store = sp.open(url)
    columns = store.snapshot().table(_TABLE).schema
    data = pa.table({field.name: pa.nulls(1, field.type) for field in columns})
    begin.wait()
    while not end.wait(1 / _COMMITS_S):
        with store.transaction() as txn:
            txn.append(_TABLE, data)
    store.close()


def run(way: str, url: str, clients: int, latency_s: float, seconds: float, staleness_s: float) -> Row:
    """What so many clients see, that ask the service or storage."""
    begin, end = _SPAWN.Event(), _SPAWN.Event()
    ours, theirs = _SPAWN.Pipe()
    address = url
    before, cpu = 0, 0.0
    service = _SPAWN.Process(target=serve, args=(url, latency_s, staleness_s, theirs))
    if way == "service":
        service.start()
        address = ours.recv()
        ours.send("count")
        before, cpu = ours.recv()
    pipes = [_SPAWN.Pipe() for _ in range(clients)]
    at_work = [
        _SPAWN.Process(target=client, args=(way, address, latency_s, seconds, begin, there))
        for _, there in pipes
    ]
    writer = _SPAWN.Process(target=write, args=(url, begin, end))
    for process in (*at_work, writer):
        process.start()
    for here, _ in pipes:
        here.recv()
    began = time.perf_counter()
    begin.set()
    found = [here.recv() for here, _ in pipes]
    took_s = time.perf_counter() - began
    end.set()
    for process in (*at_work, writer):
        process.join()
    requests = sum(each[1] + each[3] for each in found)
    cpu_s = 0.0
    if way == "service":
        ours.send("count")
        after, used = ours.recv()
        requests, cpu_s = after - before, used - cpu
        ours.send("end")
        ours.recv()
        service.join()
    warm = np.array([second for each in found for second in each[2]]) * 1e3
    return {
        "asks": way,
        "clients": clients,
        "cold ms": float(np.median([each[0] for each in found])) * 1e3,
        "lookups/s": len(warm) / took_s,
        "ms": float(np.median(warm)),
        "p99 ms": float(np.percentile(warm, 99)),
        "requests": requests,
        "requests/s": requests / took_s,
        "service CPU %": 100 * cpu_s / took_s,
    }


def main() -> None:
    """Run it as the module says."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--staleness", type=float, default=1.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"{folder}/store"
        log_note(f"a store of {given.pages:,} pages …")
        make_store(url, Shape(given.pages, 10, 20))
        measure = partial(
            run, url=url, latency_s=given.latency, seconds=given.seconds, staleness_s=given.staleness
        )
        rows = [measure(way, clients=count) for count in given.clients for way in ("storage", "service")]
    show(
        f"Clients that look up a row in the newest version; {given.pages:,} pages, "
        f"storage {given.latency * 1e3:g} ms away, {_COMMITS_S:g} commits/s",
        rows,
        given.json,
    )


if __name__ == "__main__":
    main()
