"""Work done beside the caller, a bounded number of pieces ahead of what it has taken."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

from spark_pages.errors import InvalidInputError

Result = TypeVar("Result")

Job = Callable[[], Result]
"""One piece of work."""


def read_ahead(jobs: Iterator[Job[Result]], most: int) -> Iterator[Result]:
    """The results of the jobs, in order.

    Parameters
    ----------
    jobs
        Asked for as they are begun, in order, always by the caller's thread.
    most
        Jobs that are begun and whose results are not taken yet, at most.

    Notes
    -----
    The first job runs in the caller's thread, and the others not before a second result is asked for: who
    takes one result starts no thread. Each of the others runs in a thread that ends with it. So whoever
    stops, by leaving the loop, by an error or by dropping the iterator, has no thread left once those that
    are begun are done; their results are dropped. Waiting can be interrupted from the keyboard.
    """
    first = next(jobs, None)
    if first is None:
        return
    yield first()
    process = os.getpid()
    begun: deque[Future[Result]] = deque()
    limit = min(2, most)
    while True:
        if os.getpid() != process:
            raise InvalidInputError(
                "A scan cannot go on in a forked process: the threads that read for it are in the other one.",
                hint="Begin the scan in the process that reads it.",
            )
        begun.extend(map(_begin, islice(jobs, limit - len(begun))))
        if not begun:
            return
        result = begun.popleft().result()
        limit = min(limit + 1, most)
        begun.extend(map(_begin, islice(jobs, limit - len(begun))))  # they go on while the caller is away
        yield result


def _begin(job: Job[Result]) -> Future[Result]:
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(job())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            answer.set_exception(error)

    try:
        threading.Thread(target=work, name="spark-pages scan").start()
    except RuntimeError:  # the interpreter is ending and starts no more threads
        work()
    return answer
