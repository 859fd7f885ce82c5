"""Local files are read into memory that is used again: no page keeps anything there, however it is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp

ROWS = 500_000
"""Of 8 bytes, narrowed to half at most, these are several spans and several waves of reads."""

RANDOM = np.random.default_rng(7)
NULLS = RANDOM.random(ROWS) < 0.1
DRAWN = RANDOM.integers(0, 1 << 31, ROWS)
COLUMNS = {
    "narrowed": pa.array(DRAWN),
    "narrowed, null": pa.array(DRAWN, mask=NULLS),
    "differences": pa.array(np.cumsum(DRAWN >> 10)),
    "times": pa.array(np.cumsum(DRAWN >> 10)).cast(pa.timestamp("us")),
    "now and then": pa.array(np.where(np.arange(ROWS) // 5_000 % 3, DRAWN, DRAWN % 7)),
    "now and then, null": pa.array(np.where(np.arange(ROWS) // 5_000 % 3, DRAWN, DRAWN % 7), mask=NULLS),
    "wide": pa.array(RANDOM.integers(-(1 << 62), 1 << 62, ROWS)),
    "wide, null": pa.array(RANDOM.integers(-(1 << 62), 1 << 62, ROWS), mask=NULLS),
    "floats": pa.array(RANDOM.random(ROWS)),
    "alike": pa.array(DRAWN % 7),
    "text": pa.array(DRAWN.astype("U10")),
    "text, null": pa.array(DRAWN.astype("U10").astype(object), mask=NULLS),
    "coded": pa.array((DRAWN % 50).astype("U2")).dictionary_encode(),
    "lists": pa.ListArray.from_arrays(np.arange(0, ROWS + 1, 2, dtype=np.int32), pa.array(DRAWN)),
    "decimals": pa.array(DRAWN).cast(pa.decimal128(20)),
}


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("compressed_bytes", [0, 1 << 30])
@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
@pytest.mark.parametrize("name", COLUMNS)
def test_whatever_is_read_between_values_stay(
    tmp_path: Path, name: str, codec: str, compressed_bytes: int
) -> None:
    values = COLUMNS[name]
    store = sp.create(str(tmp_path / "store"), cache=sp.CacheConfig(compressed_bytes=compressed_bytes))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("x", values.type)]), properties={"codec": codec})
        txn.append("t", pa.table({"x": values}))
    table = store.snapshot().table("t")
    rows = np.random.default_rng(8).integers(0, len(values), 5_000)
    some = values.take(pa.array(rows))

    for cold in (True, False):
        for ask in (
            lambda: (table.take(rows, ["x"]), some),
            lambda: (table.read(["x"]), values),
            lambda: (table.scan(["x"]).read_all(), values),
        ):
            if cold:
                table.page_handler.clear()
            found, expected = ask()
            assert _plain(found["x"]) == _plain(expected)


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """In one chunk, and without dictionaries, which may differ in order."""
    whole = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    if pa.types.is_dictionary(whole.type):
        whole = pc.cast(whole, whole.type.value_type)
    return pa.chunked_array([whole.combine_chunks()])
