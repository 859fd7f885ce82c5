"""Limits of calls: how many run at once, how long each may take, and how long unread answers are kept."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from spark_pages.errors import StorageError

_PEER = re.compile(r"ipv[46]:(?:\[|%5B)?(.+?)(?:\]|%5D)?:(\d+)")
"""How gRPC writes the address of a client."""

_DESCRIPTORS = "/dev/fd"


class Admission:
    """One call that is inside. Ended once, by whoever comes first or when nobody holds it any more."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave: Callable[[], None] | None = leave
        self._lock = threading.Lock()

    def release(self) -> None:
        """Release the place of the call."""
        with self._lock:
            leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def __del__(self) -> None:
        self.release()


class AdmissionControl:
    """Lets calls in until it is closed.

    Parameters
    ----------
    most
        So many calls may be inside at once.
    entered, left
        Told of each call.
    """

    def __init__(self, most: int, entered: Callable[[], None], left: Callable[[], None]) -> None:
        self._most = most
        self._entered = entered
        self._left = left
        self._inside = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether calls are let in."""
        return not self._closed

    def enter(self) -> Admission:
        """Admit a call.

        Raises
        ------
        StorageError
            If the gate is closed, or too many are inside: the same call may succeed later.
        """
        with self._changed:
            if self._closed:
                raise StorageError(
                    "Cannot answer the call: the service is ending and takes no more.",
                    hint="Call again: `connect` finds the service that takes its place.",
                )
            if self._inside >= self._most:
                raise StorageError(
                    f"Cannot answer the call: the service has {self._inside} calls to answer and "
                    "takes no more.",
                    hint="Call again; a client does for `retry_s` seconds by itself.",
                )
            self._inside += 1
        self._entered()
        return Admission(self._leave)

    def close(self, timeout_s: float) -> bool:
        """Nobody is let in any more; gives whether all who were inside have left within the time."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: self._inside == 0, timeout_s)

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()
        self._left()


class Endable(Protocol):
    """A call that gives back its place and its memory when it is ended."""

    def end(self) -> None:
        """End the call; more than once changes nothing."""
        ...


class Deadlines:
    """Ends calls at their deadline, in a thread that lives only while there are calls.

    Parameters
    ----------
    clock_s
        Seconds, never going back.

    Notes
    -----
    Flight looks for the next batch only when its client has read the last one. A client that does not read
    would hold the place and the memory of its call for as long as it likes.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._waiting: deque[tuple[float, weakref.ref[Endable]]] = deque()
        self._changed = threading.Condition()
        self._running = False
        self._closed = False

    def watch(self, call: Endable, stop_s: float) -> None:
        """End a call at a time, which is not before that of any call watched earlier, unless it is gone."""
        with self._changed:
            self._waiting.append((stop_s, weakref.ref(call)))
            if self._running or self._closed:
                return
            threading.Thread(target=self._run, name="spark-pages deadlines", daemon=True).start()
            self._running = True  # not before: where no thread starts, the next call tries again

    def close(self) -> None:
        """End the thread; calls that are watched go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            call = due()
            if call is not None:
                call.end()
            del call, due

    def _next(self) -> weakref.ref[Endable] | None:
        """Wait for the next deadline; None if there is no call left to wait for."""
        with self._changed:
            while self._waiting and not self._closed:
                stop_s, call = self._waiting[0]
                left_s = stop_s - self._clock_s()
                if left_s <= 0 or call() is None:
                    self._waiting.popleft()
                    return call
                self._changed.wait(left_s)
            self._running = False
            return None


class UnreadAnswers:
    """Counts answers that were ended at their deadline and that Flight still tries to send, by host.

    Parameters
    ----------
    most
        So many of one host are let be: each holds a thread and a message.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_host: dict[str, weakref.WeakSet[Endable]] = {}
        self._lock = threading.Lock()

    def add(self, host: str, call: Endable) -> None:
        """Count an answer until Flight lets go of it."""
        with self._lock:
            self._by_host = {name: calls for name, calls in self._by_host.items() if len(calls)}
            self._by_host.setdefault(host, weakref.WeakSet()).add(call)

    def check(self, host: str) -> None:
        """Raise StorageError if a host has too many of them."""
        with self._lock:
            unread = len(self._by_host.get(host, ()))
        if unread >= self._most:
            raise StorageError(
                f"Cannot answer {host}: it has asked for {unread} answers that it does not read.",
                hint="Read the answers to the end, or `close()` their readers.",
            )


class ClientConnection:
    """The connection of one client, which is closed from outside of Arrow Flight when it is ended.

    Parameters
    ----------
    peer
        As ``ServerCallContext.peer`` gives it.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def end(self) -> None:
        """Close the connection: whatever waits to send on it fails, and the client's other calls, too."""
        found = _PEER.fullmatch(self._peer)
        if found is None:  # no network
            return
        wanted = found[1], int(found[2])
        with suppress(OSError):
            for name in os.listdir(_DESCRIPTORS):
                with suppress(OSError):
                    _shut_down(int(name), wanted)


def _shut_down(descriptor: int, wanted: tuple[str, int]) -> None:
    """Shut down a descriptor if it is a connection to this address."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    with socket.socket(fileno=os.dup(descriptor)) as connection:  # whatever it is by now, it is looked at
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return
        host, port = connection.getpeername()[:2]
        if (host.removeprefix("::ffff:"), port) == (wanted[0].removeprefix("::ffff:"), wanted[1]):
            connection.shutdown(socket.SHUT_RDWR)
