"""Transactions on synthetic stores: descriptors of pages that nobody wrote, straight into the log."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from spark_pages.log.log import Log
from spark_pages.log.state import LogState
from spark_pages.model.actions import Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages, NewPage
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.page import PageKind, PageStats
from spark_pages.runtime import Runtime, writer_name

ENTRIES = 8192


def pages_in_a_file(entries: Sequence[int], path: str) -> dict[str, Any]:
    """Pages and statistics of a record: pages with these entry counts, one behind the other in one file."""
    stats = PageStats(0, b"\x00" * 8, b"\xff" * 8, True)
    pages = [
        NewPage(n, n, PageKind.FILE, path, 65_536 * i, 65_536, 60_000, _checksum(path, i), None, stats)
        for i, n in enumerate(entries)
    ]
    return {"own": AddedPages.of(pages)}


def _checksum(path: str, index: int) -> int:
    return int.from_bytes(blake2b(f"{path}{index}".encode(), digest_size=8).digest())


def append(
    log: Log, chains: Sequence[ChainKey], pages_each: int = 1, described: dict[str, Any] | None = None
) -> None:
    """Commit that appends some pages to each chain; `described` are pages that are known already."""
    splices = [
        Splice(
            TableId(table),
            FieldId(field),
            0,
            (),
            0,
            0,
            i * pages_each,
            (i + 1) * pages_each,
            pages_each * ENTRIES,
        )
        for i, (table, field) in enumerate(chains)
    ]
    _commit(log, [ENTRIES] * (len(chains) * pages_each), splices, described)


def replace_page(log: Log, chains: Sequence[ChainKey], row: int = 0) -> None:
    """Commit that puts a new page in the place of the one that holds a row, in each chain."""
    found = [log.snapshot().chain(key).locate_row(row) for key in chains]
    entries = [each.page.entry_count for each in found]
    splices = [
        Splice(
            TableId(key[0]),
            FieldId(key[1]),
            row - each.row_in_page,
            (each.page.page_id,),
            count,
            0,
            i,
            i + 1,
            count,
        )
        for i, (key, each, count) in enumerate(zip(chains, found, entries, strict=True))
    ]
    _commit(log, entries, splices)


def set_property(log: Log) -> None:
    """Commit that changes no chain and no table."""
    _commit(log, [], [], properties={"changed": "yes"})


def _commit(
    log: Log,
    entries: Sequence[int],
    splices: Sequence[Splice],
    described: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    token = Runtime().token()
    pages = described or pages_in_a_file(entries, f"pages/{0:020d}-{token}-0.pages")
    read = log.known()  # as a transaction does

    def build(_: LogState) -> TransactionRecord:
        return TransactionRecord(
            token=token,
            operation="benchmark",
            read_version=read.state.version,
            writer=writer_name(),  # as the log knows this process, which else waits for the turn of another
            splices=tuple(splices),
            **pages,
            **more,
        )

    log.commit(read, build)
