"""What a process beside the doctor's does: ``python -m spark_pages.doctor.probe``, told by a line of JSON.

Role ``create``: say that it is ready, wait for a line, create a key from several threads, print the answers.
Role ``fork``: read a key, fork, and let the child read it too; print how that went.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from dataclasses import asdict
from typing import Any

from spark_pages.doctor.races import race_threads
from spark_pages.errors import SparkPagesError
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore

FORK_TIMEOUT_S = 10.0


def main() -> None:
    """Read the request, do it, print the answer."""
    request: dict[str, Any] = json.loads(sys.stdin.readline())
    store = open_object_store(request["url"], request["options"] or None)
    if request["role"] == "create":
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        answer: Any = [asdict(each) for each in race_threads(store, request["key"], request["creators"])]
    else:
        answer = read_after_fork(store, request["key"])
    sys.stdout.write(json.dumps(answer))


def read_after_fork(store: ObjectStore, key: str, timeout_s: float = FORK_TIMEOUT_S) -> str:
    """``works``, ``refused`` (an error at once, which is fine), ``hangs``, or ``dies``."""
    store.get(key)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:  # nothing of the parent's may run here: no cleanup, no exit handlers
        word = b"dies"
        try:
            store.get(key)
            word = b"works"
        except SparkPagesError:
            word = b"refused"
        finally:
            os.write(writing, word)
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], timeout_s)
    answer = os.read(reading, 16).decode() if ready else "hangs"
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return answer or "dies"


if __name__ == "__main__":
    main()
