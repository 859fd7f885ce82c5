"""A table of ten mixed columns, about 70 bytes a row, made piece by piece from a seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

PIECE_ROWS = 1 << 20

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us")),
        ("kind", pa.int32()),
        ("price", pa.float64()),
        ("score", pa.float32()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("code", pa.string()),
        ("name", pa.string()),
        ("amount", pa.int64()),
    ]
)


def pieces(rows: int, seed: int = 5) -> Iterator[pa.Table]:
    """The table as pieces of at most PIECE_ROWS rows."""
    random = np.random.default_rng(seed)
    words = np.array(
        [f"{a}{b}" for a in ("north", "south", "upper", "new ") for b in ("field", "ton", "ville")]
    )
    codes = np.array(["AA", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"])
    for first in range(0, rows, PIECE_ROWS):
        n = min(PIECE_ROWS, rows - first)
        ids = np.arange(first, first + n, dtype=np.int64)
        at = 1_700_000_000_000_000 + ids * 250_000 + random.integers(0, 250_000, n)
        numbers = random.integers(0, 100_000, n)
        names = np.char.add(np.char.add(words[numbers % len(words)], " "), numbers.astype("U5"))
        amount = pa.array(random.integers(-1_000_000, 1_000_000, n), mask=random.random(n) < 0.1)
        yield pa.table(
            [
                pa.array(ids),
                pa.array(at).cast(pa.timestamp("us")),
                pa.array(random.integers(0, 24, n).astype(np.int32)),
                pa.array(np.round(random.lognormal(3, 1, n), 2)),
                pa.array(random.random(n, dtype=np.float32)),
                pa.array(random.random(n) < 0.3),
                pa.array((ids // 345_600 + 19_675).astype(np.int32)).cast(pa.date32()),
                pa.array(codes[random.integers(0, len(codes), n)]),
                pa.array(names),
                amount,
            ],
            schema=SCHEMA,
        )
