"""A file system without hard links is refused at once, by name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import spark_pages as sp
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import Created, NotCreated

CODES = [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK]


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_a_create_says_that_the_file_system_has_no_hard_links(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)

    outcome = DurableLocalStore(tmp_path / "store").create("_log/0", b"data")

    assert isinstance(outcome, NotCreated)
    assert "no hard links" in outcome.reason
    assert "object store" in outcome.hint
    with pytest.raises(sp.StorageError, match="no hard links"):
        sp.create(str(tmp_path / "other"))


def test_where_only_files_without_a_name_cannot_be_linked_named_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(source: str, *args: object, **kwargs: object) -> None:
        if source.startswith("/proc/"):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        real(source, *args, **kwargs)

    monkeypatch.setattr(os, "link", link)
    store = DurableLocalStore(tmp_path)

    assert [store.create(key, b"data") for key in ("_log/0", "_log/1")] == [Created(), Created()]
    assert store.get("_log/1") == b"data"
