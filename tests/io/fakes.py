"""A store in memory, a store in a folder, and descriptors of pages that were put there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.io import Codec, EncodedPage, PageFileWriter, encode_page
from spark_pages.model.ids import PageId
from spark_pages.model.page import PageDescriptor, PageKind


class MemoryStore:
    """Objects in a dict; counts the ranges it is asked for and the objects it is given."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, int, int]] = []
        self.puts = 0

    def put(self, key, data):
        self.puts += 1
        self.objects[key] = bytes(data)

    def get_range(self, key, offset, length):
        if key not in self.objects:
            raise ObjectNotFoundError(f"no {key}")
        self.asked.append((key, offset, length))
        found = self.objects[key][offset : offset + length]
        if len(found) != length:
            raise DamageError(f"{key} is short")
        return found

    def get_ranges(self, key, ranges):
        return [self.get_range(key, offset, length) for offset, length in ranges]

    def local_path(self, key):
        return None


class FolderStore(MemoryStore):
    """Objects as files, which are read directly."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def put(self, key, data):
        self.puts += 1
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get_range(self, key, offset, length):
        self.objects[key] = (self.root / key).read_bytes()
        return super().get_range(key, offset, length)

    def local_path(self, key):
        return str(self.root / key)


def descriptor(page: EncodedPage, path: str, offset: int, number: int = 0, **changes) -> PageDescriptor:
    fields = {
        "page_id": PageId(number),
        "entry_count": page.entry_count,
        "payload_entries": page.entry_count,
        "kind": PageKind.FILE,
        "disk_path": path,
        "offset": offset,
        "alloc_len": page.alloc_len,
        "actual_len": page.actual_len,
        "checksum": page.checksum,
    }
    return PageDescriptor(**{**fields, **changes})


def inline_page(data: pa.Array, number: int = 0, **changes) -> PageDescriptor:
    page = encode_page(data)
    no_place = {"kind": PageKind.INLINE, "alloc_len": 0, "actual_len": 0, "data": page.data}
    return descriptor(page, "", 0, number, **{**no_place, **changes})


def constant_page(value: object, kind: pa.DataType, count: int, number: int = 0) -> PageDescriptor:
    changes = {"kind": PageKind.CONSTANT, "checksum": 0, "entry_count": count, "payload_entries": count}
    return inline_page(pa.array([value], kind), number, **changes)


def write_pages(store, arrays: list[pa.Array], key: str = "pages/a.pages") -> list[PageDescriptor]:
    """One page file that holds the arrays, and the descriptors of its pages."""
    writer = PageFileWriter(store, key)
    pages = [encode_page(array, codec=Codec.LZ4) for array in arrays]
    descriptors = [descriptor(page, key, writer.add(page), number) for number, page in enumerate(pages)]
    writer.finish()
    return descriptors
