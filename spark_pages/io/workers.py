"""A few threads that help a call with its work."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from spark_pages.runtime import is_out_of_threads

Job = Callable[[], None]


Item = TypeVar("Item")


class SerialQueue(Generic[Item]):
    """What several threads bring is worked on by one of them at a time, whichever is there first.

    For work that wants the GIL: two threads would take it from each other all the time. Who brings something
    while another is at work leaves it to that one, and waits for nothing.

    Parameters
    ----------
    work
        Processes one item, in the order of `submit`. If it raises, so does the `submit` of the thread that
        ran it.
    """

    def __init__(self, work: Callable[[Item], object]) -> None:
        self._work = work
        self._brought: deque[Item] = deque()
        self._turn = threading.Lock()

    def submit(self, item: Item) -> None:
        """Work on an item now, or hand it to the thread that is working."""
        self._brought.append(item)
        # Who finds the turn taken may leave: the one that has it looks again after it has given it back.
        while self._brought and self._turn.acquire(blocking=False):
            try:
                while self._brought:
                    self._work(self._brought.popleft())
            finally:
                self._turn.release()


class Workers:
    """Does the jobs of a call at the same time, in the calling thread and in up to ``threads - 1`` others.

    Parameters
    ----------
    threads
        Most jobs of one call at a time. The threads are started when they are first needed, and are shared by
        all calls.

    Notes
    -----
    Of one process: a forked child makes its own.
    """

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def threads(self) -> int:
        """Most jobs of one call at a time."""
        return self._threads

    def run(self, jobs: Iterable[Job], at_once: int | None = None) -> None:
        """Every job is done; after the first that fails no other is begun.

        Parameters
        ----------
        jobs
            In the order in which they are begun.
        at_once
            Most of them at the same time, if that is to be fewer than there are threads.

        Raises
        ------
        Exception
            The error of the first job that failed, once no job runs any more.

        Notes
        -----
        Jobs must not wait for other jobs. A call goes on in its own thread where no other is free.
        """
        pending = deque(jobs)
        if len(pending) == 1:
            pending[0]()
            return
        errors: list[BaseException] = []

        def work() -> None:
            while not errors:
                try:
                    job = pending.popleft()
                except IndexError:
                    return
                try:
                    job()
                except BaseException as error:  # noqa: BLE001 - raised again by the calling thread
                    errors.append(error)

        helpers = self._start(work, min(at_once or self._threads, self._threads, len(pending)) - 1)
        try:
            work()
        finally:
            pending.clear()
            if helpers:
                wait([helper for helper in helpers if not helper.cancel()])
        if errors:
            raise errors[0]

    def close(self) -> None:
        """No thread is left; the next call starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _start(self, work: Job, count: int) -> list[Future[None]]:
        if count < 1:
            return []
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    self._threads - 1, thread_name_prefix=f"spark-pages-read-{os.getpid()}"
                )
            helpers: list[Future[None]] = []
            try:
                for _ in range(count):
                    helpers.append(Future())  # known before it is queued: without a thread it stays queued
                    self._pool.submit(_help, helpers[-1], work)
            except RuntimeError as error:
                if not is_out_of_threads(error):
                    raise
            return helpers


def _help(helper: Future[None], work: Job) -> None:
    """Do what is left, unless the call has ended meanwhile; `work` does not fail."""
    if helper.set_running_or_notify_cancel():
        work()
        helper.set_result(None)
