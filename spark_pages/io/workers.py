"""A few threads that help a call with its work."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")
Job: TypeAlias = Callable[[], Result]


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

    def run(self, jobs: Iterable[Job[object]], at_once: int | None = None) -> None:
        """Every job is done; see `each`."""
        for _ in self.each(jobs, at_once):
            pass

    def each(self, jobs: Iterable[Job[Result]], at_once: int | None = None) -> Iterator[Result]:
        """What the jobs give, in the order in which they are done.

        Parameters
        ----------
        jobs
            In the order in which they are begun; none is begun after the first that fails.
        at_once
            Most of them at the same time, if that is to be fewer than there are threads.

        Raises
        ------
        Exception
            The error of the first job that failed, once no job runs any more.

        Notes
        -----
        Jobs must not wait for other jobs. A call goes on in its own thread where no other is free, and where
        nothing has come that it could go on with.
        """
        pending = deque(jobs)
        if len(pending) == 1:
            yield pending[0]()
            return
        done: SimpleQueue[Future[Result]] = SimpleQueue()

        def help_out() -> None:
            while True:
                try:
                    job = pending.popleft()
                except IndexError:
                    return
                outcome: Future[Result] = Future()
                try:
                    outcome.set_result(job())
                except BaseException as error:  # noqa: BLE001 - raised again by the calling thread
                    pending.clear()
                    outcome.set_exception(error)
                done.put(outcome)

        left = len(pending)
        helpers = self._start(help_out, min(at_once or self._threads, self._threads, left) - 1)
        try:
            for _ in range(left):
                yield self._next(pending, done)
        finally:
            pending.clear()
            if helpers:
                wait([helper for helper in helpers if not helper.cancel()])

    @staticmethod
    def _next(pending: deque[Job[Result]], done: SimpleQueue[Future[Result]]) -> Result:
        """What a helper has done, else what this thread does, else what a helper is about to have done."""
        with suppress(Empty):
            return done.get_nowait().result()
        try:
            job = pending.popleft()
        except IndexError:
            return done.get().result()
        return job()

    def close(self) -> None:
        """No thread is left; the next call starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _start(self, work: Job[None], count: int) -> list[Future[None]]:
        if count < 1:
            return []
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    self._threads - 1, thread_name_prefix=f"spark-pages-read-{os.getpid()}"
                )
            try:
                return [self._pool.submit(work) for _ in range(count)]
            except RuntimeError as error:
                if "new futures after" not in str(error):
                    raise
                return []  # the interpreter is ending and starts no more threads
