"""Object store of a service's client, and the index from byte ranges to the pieces that it may request."""

from __future__ import annotations

import builtins
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from spark_pages.errors import DamageError, InvalidInputError, ObjectNotFoundError
from spark_pages.model.run import PageRun
from spark_pages.service.client import ServiceClient
from spark_pages.service.extents import Extents, Stretches, clip
from spark_pages.service.requests import piece_to_plain
from spark_pages.service.responses import PieceName
from spark_pages.service.wire import BYTES
from spark_pages.storage.checks import check_key
from spark_pages.storage.store import CreateOutcome, ObjectInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer


_MOST_BYTES = 16 << 20
_MOST_RANGES = 256


class NamedTable(Protocol):
    """A table at a version, as the service knows it."""

    @property
    def names(self) -> tuple[str, str, int]:
        """Namespace, table and version."""
        ...


class RemoteObjects:
    """An `ObjectStore` that reads pages through the service.

    Parameters
    ----------
    calls
        Asks the service.
    learned
        Where pages were learned of.
    """

    def __init__(self, calls: ServiceClient, learned: PageIndex[NamedTable]) -> None:
        self._calls = calls
        self._learned = learned

    def __repr__(self) -> str:
        return f"RemoteObjects({self.url!r})"

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._calls.url

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`; bytes that are no page of a snapshot are zero."""
        return self.get_ranges(key, [(offset, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """See `ObjectStore.get_ranges`."""
        check_key(key)
        found: list[bytes] = []
        for some in _in_parts([each for each in ranges if each[1]]):
            found += self._read(key, some)
        answers = iter(found)
        return [next(answers) if length else b"" for _, length in ranges]

    def _read(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Asks each table for the ranges that it has pages in; what one may not see comes from another."""
        asked: dict[tuple[NamedTable, bool], tuple[list[int], dict[PieceName, None]]] = {}
        for number, (offset, length) in enumerate(ranges):
            found = self._learned.of(key, offset, length)
            if not found:
                raise ObjectNotFoundError(
                    f"Cannot find a page in {key} at {offset}: no snapshot that is open names one.",
                    hint="Take a new one: `store.snapshot()`.",
                    key=key,
                )
            for which, names in found.items():
                numbers, known = asked.setdefault(which, ([], {}))
                numbers.append(number)
                known.update(dict.fromkeys(names))
        parts: list[list[bytes]] = [[] for _ in ranges]
        for (source, blooms), (numbers, known) in asked.items():
            answers = self._request(source, key, [ranges[number] for number in numbers], [*known], blooms)
            for number, data in zip(numbers, answers, strict=True):
                parts[number].append(data)
        return [each[0] if len(each) == 1 else _overlaid(each) for each in parts]

    def _request(
        self,
        source: NamedTable,
        key: str,
        ranges: Sequence[tuple[int, int]],
        names: Sequence[PieceName],
        blooms: bool,
    ) -> builtins.list[bytes]:
        db, table, version = source.names
        _, batches = self._calls.get(
            "bytes",
            db=db,
            table=table,
            version=version,
            path=key,
            ranges=[list(each) for each in ranges],
            pieces=[piece_to_plain(name) for name in names],
            blooms=blooms or None,
        )
        parts: list[list[bytes]] = [[] for _ in ranges]
        for batch in batches:
            if not batch.schema.equals(BYTES):
                raise DamageError("Cannot use the answer of the service: its columns are not those of bytes.")
            for number, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if data is None or number is None or not 0 <= number < len(parts):
                    raise DamageError(
                        "Cannot use the answer of the service: it holds bytes that nobody asked for."
                    )
                parts[number].append(data)
        found = [each[0] if len(each) == 1 else b"".join(each) for each in parts]
        for (offset, length), data in zip(ranges, found, strict=True):
            if len(data) != length:
                raise DamageError(
                    f"Cannot use the answer of the service: expected {length} bytes of {key} from "
                    f"{offset}, found {len(data)}.",
                    key=key,
                )
        return found

    # what nothing that reads a snapshot asks for

    def get(self, key: str, most_bytes: int = 0) -> bytes:  # noqa: ARG002
        """Refused."""
        raise _refused("get")

    def size(self, key: str) -> int:  # noqa: ARG002
        """Refused."""
        raise _refused("size")

    def stamps(self, keys: Sequence[str]) -> builtins.list[str | None]:  # noqa: ARG002
        """Refused."""
        raise _refused("stamps")

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:  # noqa: ARG002
        """Refused."""
        raise _refused("list")

    def create(self, key: str, data: bytes) -> CreateOutcome:  # noqa: ARG002
        """Refused."""
        raise _refused("create")

    def put(self, key: str, data: Buffer) -> None:  # noqa: ARG002
        """Refused."""
        raise _refused("put")

    def delete(self, key: str) -> None:  # noqa: ARG002
        """Refused."""
        raise _refused("delete")

    def local_path(self, key: str) -> str | None:
        """None: reads go through the service."""
        check_key(key)
        return None

    def now_us(self) -> int | None:
        """None: the service does not tell."""
        return None


def _in_parts(ranges: Sequence[tuple[int, int]]) -> builtins.list[builtins.list[tuple[int, int]]]:
    """Split the ranges into requests within the limits."""
    parts: list[list[tuple[int, int]]] = []
    size = 0
    for each in ranges:
        if not parts or len(parts[-1]) == _MOST_RANGES or size + each[1] > _MOST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += each[1]
    return parts


def _overlaid(parts: Sequence[bytes]) -> bytes:
    """Merge the views of several tables on the same bytes; a table sees zeros where it has no access."""
    whole = np.frombuffer(parts[0], np.uint8).copy()
    for part in parts[1:]:
        whole |= np.frombuffer(part, np.uint8)
    return whole.tobytes()


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot {what} through a service: a connected store only reads pages of its snapshots.",
        hint="Open the store itself with `spark_pages.open(url)`.",
    )


# Where a client learned of the pages that it reads through the service.
#
# The service hands out bytes of a page file only for pieces that the client names. Reading knows files and
# offsets, not pieces; so it is noted, for every piece that comes, which stretches of which files are its.
# Pages that lie one after another are one stretch, so notes are few where pages are many.

_MOST_FILES = 1 << 16
_MOST_NOTES = 1 << 12

Source = TypeVar("Source")


class PageIndex(Generic[Source]):
    """Which pieces hold some bytes. Safe to share between threads.

    Notes
    -----
    Bounded: the files used longest ago are forgotten. Who needs them opens the version again, and learns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OrderedDict[tuple[Source, PieceName, bool], Stretches]] = OrderedDict()

    def add(self, source: Source, name: PieceName, run: PageRun, blooms: bool) -> None:
        """Add the pages of a run to a piece; with `blooms` also their bloom filters."""
        found = Extents.of(run, blooms).by_path
        with self._lock:
            for path, stretches in found.items():
                notes = self._files.setdefault(path, OrderedDict())
                notes[source, name, blooms] = stretches
                notes.move_to_end((source, name, blooms))
                if len(notes) > _MOST_NOTES:
                    notes.popitem(last=False)
                self._files.move_to_end(path)
            while len(self._files) > _MOST_FILES:
                self._files.popitem(last=False)

    def of(self, path: str, offset: int, length: int) -> dict[tuple[Source, bool], list[PieceName]]:
        """Return the pieces that hold bytes of a range, by source and by whether they are for filters.

        What was learned last comes first. What only holds bytes that something newer holds too is left out:
        else a client that lives long would ask for every checkpoint that it has seen.
        """
        found: dict[tuple[Source, bool], list[PieceName]] = {}
        held: list[tuple[int, int]] = []
        with self._lock:
            notes = self._files.get(path)
            if notes is None:
                return found
            self._files.move_to_end(path)
            for (source, name, blooms), stretches in reversed(notes.items()):
                new = [each for each in clip(stretches, offset, offset + length) if not _covers(held, each)]
                if new:
                    found.setdefault((source, blooms), []).append(name)
                    held = _joined([*held, *new])
        return found


def _covers(held: Sequence[tuple[int, int]], stretch: tuple[int, int]) -> bool:
    return any(start <= stretch[0] and stretch[1] <= end for start, end in held)


def _joined(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches in order, those that touch or overlap made one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
