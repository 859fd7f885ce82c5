"""Good inputs to begin with: one object of every kind, and pages of several types."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest

from spark_pages.format.container import _head
from spark_pages.format.names import HINT_KEY
from spark_pages.format.pages.codecs import compress
from spark_pages.io import Codec, encode_page
from spark_pages.log.compaction.archive import encode_index
from spark_pages.log.compaction.compacted_range import CompactedRange
from tests.damage.flipping import kind_of, small_store
from tests.fuzz.targets import BUNDLE, RANGE, good_objects

_NESTED = pa.struct([("a", pa.list_(pa.string())), ("b", pa.map_(pa.int8(), pa.decimal128(9, 2)))])

_TYPES = (
    *(pa.int64(), _NESTED, pa.dictionary(pa.int32(), pa.string()), pa.timestamp("us", "Europe/Paris")),
    *(pa.list_(pa.binary(4), 3), pa.large_list(pa.duration("s")), pa.month_day_nano_interval()),
)
"""Types of the columns of a schema."""

_TARGET_OF_KIND = {
    "slot": "slot",
    "checkpoints": "root",
    "parts": "nodes",
    "segments": "segment",
    "stats": "stats",
    "catalog": "catalog",
    "manifests": "manifest",
    "compacted range": "compacted_range",
}


def seeds() -> dict[str, list[bytes]]:
    """Good inputs by target."""
    found: dict[str, list[bytes]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        store = small_store(patch)
    for _ in range(3):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [9]}))
    store.compact_log()
    for _ in range(2):
        for info in store.object_store.list("_log/"):
            target = _TARGET_OF_KIND.get(kind_of(info.key))
            if target == "compacted_range" and info.key != RANGE.key:
                continue
            if target is not None and (data := store.object_store.get(info.key)) not in found[target]:
                found[target].append(data)
        store.vacuum(retention=3)  # makes tombstones
    meta = pa.array([b"m", None, b"", b"x"])
    pages = [
        encode_page(pa.array([1, None, 3, 4])),
        encode_page(pa.array(["a", None, "", "dé"]), codec=Codec.NONE, prefix_meta=meta),
        encode_page(pa.array(["x", "y", "x", "y"]).dictionary_encode(), codec=Codec.ZSTD),
        encode_page(pa.array([[1], None, [], [2, 3]]), suffix_meta=meta, page_metadata={"k": "v"}),
        encode_page(pa.array([1.5] * 500)),
        encode_page(pa.array([7 * i for i in range(2000)])),  # narrowed
        encode_page(pa.array([f"row {i}" for i in range(500)]), codec=Codec.ZSTD),
    ]
    found["page"] = [page.data for page in pages]
    found["header"] = [page.data[:64] for page in pages]
    parts = [(CompactedRange(0, 5), 700), *((CompactedRange(version, 0), 90) for version in range(32, 64))]
    found["bundle_index"] = [encode_index(BUNDLE, parts)]
    text = b"page after page after page after page " * 20
    found["lz4_block"] = [len(text).to_bytes(2, "little") + compress(Codec.LZ4, text)]
    columns = [pa.field("c", kind, metadata={"spark_pages.field_id": "1"}) for kind in _TYPES]
    found["arrow_schema"] = [pa.schema([each]).serialize().to_pybytes() for each in columns]
    found["hint"] = [store.object_store.get(HINT_KEY)]
    found["foreign_container"] = [_taken_apart(data) for data in found["slot"]]
    found["forged"] = [bytes([index]) + bytes(22) for index in range(len(good_objects()))]
    return dict(found)


def _taken_apart(data: bytes) -> bytes:
    """Codec, schema and blocks of a container, as `foreign_container` takes them."""
    metadata, source = _head(data)
    return metadata["avro.codec"] + b":" + metadata["avro.schema"] + b"\0" + data[source.position :]
