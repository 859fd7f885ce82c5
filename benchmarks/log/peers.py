"""The same work by other systems, in the same run: commit one entry, and open from nothing to locate one.

The folder of each store is on the local disk. spark-pages syncs every commit; the others do not. Opening is
timed in a fresh process, imports apart. A system that is not installed is left out, with the line that
installs it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.log.peer_systems import ENTRIES, PEERS, Peer, missing
from benchmarks.log.report import Row, arguments, in_fresh_process, log_note, peak_mb, show
from spark_pages.storage import DurableLocalStore

_PATIENCE_S = 60.0


def measure(peer: Peer, folder: Path, entries: int, rounds: int) -> Row:
    """One system on a store of that many entries."""
    begin = time.perf_counter()
    peer.make(folder, entries)
    made_s = time.perf_counter() - begin
    handle = peer.open(folder)
    times: list[float] = []
    for number in range(rounds + 2):
        begin = time.perf_counter()
        handle = peer.commit(handle, entries + number)
        times.append(time.perf_counter() - begin)
        if sum(times) > _PATIENCE_S:
            break
    row: Row = {
        "system": peer.name,
        "entries": entries,
        "syncs": peer.durable,
        "commit ms": statistics.median(times[2:] or times) * 1e3,
        "commits": len(times),
    }
    located = {"open + locate ms": "", "cpu ms": "", "peak MB": ""}
    if entries:
        words = ("--probe", peer.name, folder, entries // 2 * ENTRIES)
        runs = [in_fresh_process("benchmarks.log.peers", *words) for _ in range(3)]
        located = {key: statistics.median(run[key] for run in runs) for key in located}
    return {**row, **located, "made in s": made_s}


def probe(name: str, folder: Path, row: int) -> Row:
    """Open and locate in this process."""
    (peer,) = (each for each in PEERS if each.name == name)
    missing(peer)  # imports what it needs
    begin, begin_cpu = time.perf_counter(), time.process_time()
    peer.locate(folder, row)
    return {
        "open + locate ms": (time.perf_counter() - begin) * 1e3,
        "cpu ms": (time.process_time() - begin_cpu) * 1e3,
        "peak MB": peak_mb(),
    }


def bare_put_ms(folder: Path, rounds: int) -> float:
    """A bare durable put of 6 KB."""
    objects = DurableLocalStore(folder)
    times = []
    for number in range(rounds):
        begin = time.perf_counter()
        objects.create(f"bare/{number:020d}", bytes(6_000))
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--probe"]:
        print(json.dumps(probe(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = arguments(__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[0, 100_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=[peer.name for peer in PEERS])
    options = parser.parse_args()
    rows: list[Row] = []
    for entries in options.entries:
        for peer in PEERS:
            reason = "not asked for" if peer.name not in options.only else missing(peer)
            if reason:
                log_note(f"left out: {reason}")
                continue
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                rows.append(measure(peer, Path(folder) / "store", entries, options.rounds))
            log_note(f"{peer.name}, {entries:,} entries: done")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bare = bare_put_ms(Path(folder), 50)
    for row in rows:
        row["times bare put"] = row["commit ms"] / bare
    show(f"one entry a commit; a bare durable put of 6 KB takes {bare:.2f} ms", rows, options.json)


if __name__ == "__main__":
    main()
