"""Folders of a local store: opened without following symbolic links, made so that a power cut keeps them."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

from spark_pages.storage.checks import MAX_KEY_CHARS

if sys.platform == "darwin":
    import fcntl

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
"""Answers of `link` where a file system has no hard links, as FAT, exFAT, many SMB and FUSE mounts."""

NO_LINKS_REMEDY = "Use a file system with hard links (ext4, XFS, APFS, NFS), or an object store."

_INNER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_folder(root: str, parts: Sequence[str]) -> int:
    """Open a folder below the root, through real folders only.

    Parameters
    ----------
    root
        Absolute path; it was resolved when the store was opened.
    parts
        Names of the folders below it, outermost first.

    Returns
    -------
    int
        A descriptor; the caller closes it.

    Raises
    ------
    FileNotFoundError
        If one of them is not there.
    NotADirectoryError
        If one of them is a file or a symbolic link.

    Notes
    -----
    One system call per part. Nothing can be swapped for a link between the check and the use.
    """
    if not parts:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    folder = os.open(f"{root}/{parts[0]}", _INNER)  # follows links above that part alone
    for part in parts[1:]:
        folder = _step(folder, part)
    return folder


def open_folder_in(folder: int, name: str) -> int:
    """Open a folder inside an open one without following a link; the caller closes both.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        As `open_folder`.
    """
    return os.open(name, _INNER, dir_fd=folder)


def make_folder(root: str, parts: Sequence[str]) -> int:
    """Open a folder, and create it so that it survives a power cut.

    Parameters
    ----------
    root, parts
        As `open_folder`; what is missing is made.

    Returns
    -------
    int
        A descriptor; the caller closes it.

    Raises
    ------
    OSError
        If one of them cannot be made or synced.

    Notes
    -----
    One sync per part, also where the folder is there: who made it may not have synced it yet, and a commit in
    it must not be acknowledged before.
    """
    _make_root(root)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            _mkdir(part, folder)
            sync(folder)
        except BaseException:
            os.close(folder)
            raise
        folder = _step(folder, part)
    return folder


def sync(descriptor: int) -> None:
    """Flush a file or folder, so that it survives a power cut.

    Parameters
    ----------
    descriptor
        An open file or folder.

    Raises
    ------
    OSError
        If the disk refused. The state is then unknown, and a second sync would prove nothing.
    """
    if sys.platform == "darwin":  # fsync of macOS leaves the data in the cache of the disk
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def stamp(folder: int, name: str) -> str | None:
    """Text that tells what has this name in an open folder from what had it before; None where nothing has.

    The number of an inode alone may be given again.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stamp_of(status)


def stamp_of(status: os.stat_result) -> str:
    """Text that tells a file from another one of its name, by its status."""
    return f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def walk(folder: int, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below an open folder, each with its status; follow no link."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                yield prefix + entry.name, status
                if not stat.S_ISDIR(status.st_mode) or len(prefix) > MAX_KEY_CHARS:
                    continue
                try:
                    inner = open_folder_in(folder, entry.name)
                except OSError as error:
                    if error.errno not in (errno.ENOTDIR, errno.ELOOP):  # it was a folder a moment ago
                        raise
                    continue
                try:
                    yield from walk(inner, f"{prefix}{entry.name}/")
                finally:
                    os.close(inner)


def is_file(status: os.stat_result) -> bool:
    """Return whether this is a regular file."""
    return stat.S_ISREG(status.st_mode)


def kind_of(status: os.stat_result) -> str:
    """Name the kind of what is no regular file, such as "a folder"."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "something that is no file")


def _step(folder: int, part: str) -> int:
    try:
        return open_folder_in(folder, part)
    finally:
        os.close(folder)


def _mkdir(part: str, folder: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(part, dir_fd=folder)


def _make_root(root: str) -> None:
    missing = []
    path = root
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _mkdir(os.path.basename(path), parent)
            sync(parent)
        finally:
            os.close(parent)
