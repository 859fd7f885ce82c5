"""A store in a folder of a POSIX file system that keeps what it acknowledged, also after a power cut.

The local store of obstore never syncs: after a power cut an acknowledged commit was gone, or there under its
name with 0 bytes. This one writes to a file without a name, syncs it, links it, and syncs the folder.
"""

from __future__ import annotations

import builtins
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from spark_pages.arguments import as_int, as_list
from spark_pages.errors import (
    DamageError,
    InvalidKeyError,
    ObjectNotFoundError,
    SparkPagesError,
    StorageError,
    StoreNotFoundError,
)
from spark_pages.storage.checks import (
    RESERVED_FOLDER,
    check_answer,
    check_data,
    check_key,
    check_length,
    check_most_bytes,
    check_prefix,
    check_ranges,
    is_key,
    past_end,
    split_key,
    split_known_key,
)
from spark_pages.storage.direct import write_direct
from spark_pages.storage.folders import (
    NO_LINKS,
    NO_LINKS_REMEDY,
    is_file,
    kind_of,
    make_folder,
    open_folder,
    stamp,
    stamp_of,
    sync,
    walk,
)
from spark_pages.storage.store import (
    MAX_OBJECT_BYTES,
    Created,
    CreateOutcome,
    Doubtful,
    Exists,
    NotCreated,
    ObjectInfo,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

Result = TypeVar("Result")

_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_NO_FILE = (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)
"""What opening a socket, or a device that is not there, fails with."""

_TEMPORARY = re.compile(r"[0-9a-f]{32}")
"""Names that `put` and `create` give."""

_PERMISSIONS = 0o666  # less the umask of the process


class DurableLocalStore:
    """Objects are files below ``root``; nothing outside of it is ever read or written.

    Parameters
    ----------
    root
        Folder of the store. It is made by the first write, not here, and once it was there it is not made
        again: whoever removed it removed the store. Links above and at the root are followed once, now;
        links below it are refused.

    Notes
    -----
    A create takes 4 ms where the disk really syncs. Unfinished files of killed writers stay in ``_tmp/``
    until `sweep_temporaries`. The store survives pickling and fork.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.realpath(os.fspath(root))
        self._url = Path(self._root).as_uri()
        self._durable_folders: set[tuple[str, ...]] = set()
        self._seen: set[str] = set()
        self._nameless_files = bool(_O_TMPFILE) and os.path.isdir("/proc/self/fd")

    def __repr__(self) -> str:
        return f"DurableLocalStore({self._root!r})"

    def __reduce__(self) -> tuple[type[DurableLocalStore], tuple[str]]:
        return (DurableLocalStore, (self._root,))

    @property
    def url(self) -> str:
        """See `ObjectStore.url`."""
        return self._url

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`; here `Exists` also says that the folder entry which was met is durable.

        So creating again after `Doubtful` makes durable what the first call may have linked.
        """
        folders, name = split_key(check_key(key))
        check_data(data)
        try:
            with _closing(_before_link(lambda: self._folder_to_write(key, folders))) as folder:
                outcome = self._link_new(folder, name, data)
                sync(folder)
                return outcome
        except _NotLinkedError as error:
            why = _reason(error.cause)
            if error.remedy == NO_LINKS_REMEDY:
                why = f"this file system has no hard links: {why}"
            reason = f"creating {key!r} in {self.url} failed: {why}."
            return NotCreated(reason, error.remedy or _remedy(error.cause))
        except OSError as error:
            return Doubtful(f"creating {key!r} in {self.url} failed: {_reason(error)}.")

    def put(self, key: str, data: Buffer) -> None:
        """See `ObjectStore.put`."""
        folders, name = split_key(check_key(key))
        check_data(data)
        try:
            with (
                _closing(self._folder_to_write(key, folders)) as folder,
                self._named_temporary(data) as (temporary_folder, temporary),
            ):
                os.rename(temporary, name, src_dir_fd=temporary_folder, dst_dir_fd=folder)
                sync(folder)
        except OSError as error:
            raise self._failure("write", key, error) from error

    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """See `ObjectStore.get`."""
        check_most_bytes(most_bytes)
        with self._file_to_read(key) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            check_length(key, size_bytes, most_bytes)
            return check_answer(key, 0, size_bytes, _read(descriptor, 0, size_bytes))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        return self.get_ranges(key, [(offset, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """See `ObjectStore.get_ranges`; the file is opened once."""
        check_key(key)
        ranges = check_ranges(key, ranges)
        if not any(length for _, length in ranges):
            return [b""] * len(ranges)
        with self._file_to_read(key) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            for offset, length in ranges:
                if length and offset + length > size_bytes:
                    raise past_end(key, offset, length, found=f"it ends at {size_bytes}")
            return [check_answer(key, *asked, _read(descriptor, *asked)) for asked in ranges]

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        with self._file_to_read(key) as descriptor:
            return os.fstat(descriptor).st_size

    def stamps(self, keys: Sequence[str]) -> builtins.list[str | None]:
        """See `ObjectStore.stamps`; some 2 µs for each of several keys of one folder."""
        keys = as_list(keys, str, "keys", "keys of objects")
        found: builtins.list[str | None] = []
        folder: int | None = None
        opened: builtins.list[str] = []
        try:
            for key in keys:
                folders, name = split_known_key(key)
                if folder is None or folders != opened:
                    if folder is not None:
                        os.close(folder)
                        folder = None
                    folder, opened = self._folder_if_there(key, folders), folders
                found.append(None if folder is None else stamp(folder, name))
        except OSError as error:
            raise self._failure("find", keys[len(found)], error) from error
        finally:
            if folder is not None:
                os.close(folder)
        return found

    def _folder_if_there(self, key: str, folders: builtins.list[str]) -> int | None:
        try:
            return open_folder(self._root, folders)
        except OSError as error:
            self._refuse_links(key, error)
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """See `ObjectStore.list`; symbolic links are left out."""
        folder = check_prefix(prefix).rpartition("/")[0]
        try:
            with _closing(open_folder(self._root, folder.split("/") if folder else [])) as opened:
                found = [
                    ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000)
                    for key, status in walk(opened, f"{folder}/" if folder else "")
                    if key.startswith(prefix) and is_file(status) and is_key(key)
                ]
        except OSError as error:
            self._refuse_links(folder, error)
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise self._failure("list", prefix, error) from error
        return sorted(found, key=lambda info: info.key)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        folders, name = split_key(check_key(key))
        try:
            with _closing(open_folder(self._root, folders)) as folder:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self._refuse_links(key, error)
            if error.errno != errno.ENOTDIR:
                raise self._failure("delete", key, error) from error

    def local_path(self, key: str) -> str | None:
        """See `ObjectStore.local_path`."""
        return self._resolved(check_key(key))

    def now_us(self) -> int | None:
        """See `ObjectStore.now_us`; on a network drive this is the clock of its server."""
        try:
            with self._named_temporary(b"") as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns // 1000
        except OSError as error:
            raise self._failure("date", RESERVED_FOLDER, error) from error

    def temporaries(self) -> builtins.list[ObjectInfo]:
        """Unfinished files, of writers that live or were killed, sorted by name.

        Returns
        -------
        list of ObjectInfo
            Their names begin with ``_tmp/`` and are no keys: only `sweep_temporaries` takes them.

        Raises
        ------
        StorageError
            If the folder cannot be read.
        """
        try:
            with _closing(open_folder(self._root, [RESERVED_FOLDER])) as folder:
                return sorted(_unfinished(folder), key=lambda info: info.key)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._no_folder("list", RESERVED_FOLDER, error) from error

    def sweep_temporaries(self, before_us: int) -> int:
        """Unfinished files last written before a time are gone.

        Parameters
        ----------
        before_us
            Microseconds since 1970 (UTC).

        Returns
        -------
        int
            How many were removed.

        Raises
        ------
        StorageError
            If the folder cannot be read or written.

        Notes
        -----
        Sweeping the file of a writer that still lives makes its write fail, never anything else: no two
        writers share a temporary name.
        """
        before_us = as_int(before_us, "before_us")
        removed = 0
        try:
            with _closing(open_folder(self._root, [RESERVED_FOLDER])) as folder:
                for info in _unfinished(folder):
                    if info.modified_at_us < before_us:
                        with suppress(FileNotFoundError):
                            os.unlink(info.key.rpartition("/")[2], dir_fd=folder)
                            removed += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._no_folder("sweep", RESERVED_FOLDER, error) from error
        return removed

    def foreign_objects(self) -> dict[str, str]:
        """List everything below the root that is no file: no call reads, follows or removes it.

        Returns
        -------
        dict of str to str
            What each is, such as "a symbolic link" or "a folder", by its path below the root; sorted.

        Raises
        ------
        StorageError
            If a folder cannot be read.
        """
        try:
            with _closing(open_folder(self._root, [])) as root:
                found = {name: kind_of(status) for name, status in walk(root, "") if not is_file(status)}
        except (FileNotFoundError, NotADirectoryError):  # `list` finds nothing there either
            return {}
        except OSError as error:
            raise self._failure("list", "", error) from error
        return dict(sorted(found.items()))

    def _link_new(self, folder: int, name: str, data: bytes) -> Created | Exists:
        if _is_there(folder, name):  # spares the loser of a race the write; the link below decides
            return Exists()
        try:
            linked = self._link_nameless(folder, name, data)
            if linked is None:
                with self._named_temporary(data) as (temporary_folder, temporary):
                    linked = stamp(temporary_folder, temporary)
                    os.link(temporary, name, src_dir_fd=temporary_folder, dst_dir_fd=folder)
        except FileExistsError:
            return Exists()
        except OSError as error:
            if error.errno in NO_LINKS and not _is_there(folder, name):
                raise _NotLinkedError(error, NO_LINKS_REMEDY) from error
            raise
        return Created(linked)

    def _link_nameless(self, folder: int, name: str, data: bytes) -> str | None:
        """Link a file that had no name before, and give its stamp.

        None where this system cannot, and the name is still free.
        """
        descriptor = _before_link(lambda: self._nameless_file(folder))
        if descriptor is None:
            return None
        with _closing(descriptor):
            _before_link(lambda: _write(descriptor, data))
            try:
                # dst_dir_fd makes Python call linkat, which follows the link of /proc to the file
                os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=folder, follow_symlinks=True)
            except OSError as error:
                if error.errno not in NO_LINKS or _is_there(folder, name):
                    raise
                self._nameless_files = False
                return None
            return stamp_of(os.fstat(descriptor))

    def _nameless_file(self, folder: int) -> int | None:
        if not self._nameless_files:
            return None
        try:
            return os.open(".", _O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, _PERMISSIONS, dir_fd=folder)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
            self._nameless_files = False
            return None

    @contextmanager
    def _named_temporary(self, data: Buffer) -> Iterator[tuple[int, str]]:
        name = secrets.token_hex(16)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with _closing(self._folder_of_temporaries()) as folder:
            try:
                with _closing(os.open(name, flags, _PERMISSIONS, dir_fd=folder)) as descriptor:
                    _write(descriptor, data)
                yield folder, name
            finally:
                with suppress(OSError):  # renamed away, or left for sweep_temporaries
                    os.unlink(name, dir_fd=folder)

    @contextmanager
    def root_folder(self) -> Iterator[int]:
        """Open the folder of the store.

        Raises
        ------
        OSError
            If that cannot be done.
        """
        with _closing(open_folder(self._root, [])) as folder:
            yield folder

    def _folder_of_temporaries(self) -> int:
        """Open the folder of temporaries, unsynced: nothing in it must survive a power cut."""
        with suppress(FileNotFoundError):
            return open_folder(self._root, [RESERVED_FOLDER])
        return make_folder(self._root, [RESERVED_FOLDER])

    def _folder_to_write(self, key: str, folders: builtins.list[str]) -> int:
        try:
            return self._open_or_make(tuple(folders))
        except OSError as error:
            self._refuse_links(key, error)
            raise

    def _open_or_make(self, folders: tuple[str, ...]) -> int:
        if folders in self._durable_folders:
            with suppress(FileNotFoundError):
                return open_folder(self._root, folders)
        self._check_not_removed(folders)
        descriptor = make_folder(self._root, folders)
        self._durable_folders.add(folders)
        self._was_removed_check(folders)
        return descriptor

    def _was_removed_check(self, folders: Sequence[str]) -> None:
        """Raise if the root or the outermost folder was removed."""
        self._seen.update(("", *folders[:1]))

    def _check_not_removed(self, folders: Sequence[str]) -> None:
        """Nothing, unless somebody removed the store: what is written then would be all that it has."""
        for name in ("", *folders[:1]):
            path = os.path.join(self._root, name)
            if name in self._seen and not os.path.isdir(path):
                raise StoreNotFoundError(
                    f"Cannot use the store at {self.url}: it was removed while it was in use: {path} "
                    "is not there any more. Nothing was written.",
                    hint="Create it anew by `spark_pages.create(url)`, or put it back and open it again.",
                    url=self.url,
                )

    @contextmanager
    def _file_to_read(self, key: str) -> Iterator[int]:
        folders, name = split_key(check_key(key))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with _closing(open_folder(self._root, folders)) as folder:
                descriptor = os.open(name, flags, dir_fd=folder)
            self._was_removed_check(folders)
        except OSError as error:
            self._refuse_links(key, error)
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise self._missing(key) from None
            if error.errno in _NO_FILE:
                raise self._no_file(key, "a socket or device") from None
            raise self._failure("open", key, error) from error
        with _closing(descriptor):
            status = os.fstat(descriptor)
            if not is_file(status):
                raise self._no_file(key, kind_of(status))
            try:
                yield descriptor
            except OSError as error:
                raise self._failure("read", key, error) from error

    def _resolved(self, key: str) -> str:
        path = os.path.join(self._root, key).rstrip("/")
        if os.path.realpath(path) != path:
            raise self._link_refused(key)
        return path

    def _refuse_links(self, key: str, error: OSError) -> None:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            path = os.path.join(self._root, key).rstrip("/")
            if os.path.realpath(path) != path:
                raise self._link_refused(key) from error

    def _link_refused(self, key: str) -> InvalidKeyError:
        return InvalidKeyError(
            f"Cannot use object {key!r} in {self.url}: its path passes through a symbolic link.",
            hint="Replace the link by the files it points to (`cp -rL`): a store follows none below its "
            "root.",
            key=key,
        )

    def _no_file(self, key: str, found: str) -> DamageError:
        return DamageError(
            f"Cannot read object {key!r} in {self.url}: {found} lies in its place.",
            hint="Move it away with `mv`, and put the object back from a copy of the store.",
            key=key,
        )

    def _no_folder(self, action: str, folder: str, error: OSError) -> SparkPagesError:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            return self._failure(action, folder, error)
        return InvalidKeyError(
            f"Cannot {action} {folder!r} in {self.url}: it is no folder.",
            hint=f"Move away what lies in place of {folder!r}: a store follows no link below its root.",
            key=folder,
        )

    def _missing(self, key: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(
            f"Cannot find object {key!r} in {self.url}: there is none of that key.",
            hint="Run `spark-pages verify URL`: it lists the objects that are missing.",
            key=key,
        )

    def _failure(self, action: str, key: str, error: OSError) -> StorageError:
        return StorageError(
            f"Cannot {action} {key!r} in {self.url}: {_reason(error)}.", hint=_remedy(error), key=key
        )


class _NotLinkedError(Exception):
    """Failed before the object could get its name."""

    def __init__(self, cause: OSError, remedy: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy


def _before_link(work: Callable[[], Result]) -> Result:
    try:
        return work()
    except OSError as error:
        raise _NotLinkedError(error) from error


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write(descriptor: int, data: Buffer) -> None:
    rest = memoryview(data).cast("B")
    rest = rest[write_direct(descriptor, rest) :]
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    sync(descriptor)


def _read(descriptor: int, offset: int, length: int) -> bytes:
    first = os.pread(descriptor, length, offset) if length else b""
    if len(first) == length:
        return first
    pieces = [first]
    missing = length - len(first)
    while missing and pieces[-1]:
        pieces.append(os.pread(descriptor, missing, offset + length - missing))
        missing -= len(pieces[-1])
    return b"".join(pieces)


def _unfinished(folder: int) -> Iterator[ObjectInfo]:
    """Files of writers in the folder of temporaries; what else lies there is left alone."""
    for name, status in walk(folder, ""):
        if _TEMPORARY.fullmatch(name) and is_file(status):
            yield ObjectInfo(f"{RESERVED_FOLDER}/{name}", status.st_size, status.st_mtime_ns // 1_000)


def _reason(error: OSError) -> str:
    code = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"{error.strerror or 'unknown error'} ({code})"


def _remedy(error: OSError) -> str:
    match error.errno:
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "Use another address, or a user who may do that there."
        case errno.ENOTDIR:
            return "A file lies where a folder of the store should be: move it away, or use another address."
        case errno.ENOSPC | errno.EDQUOT:
            return "Make room there, then try again."
        case _:
            return "Check the health of the disk and the limits of the process, then try again."
