"""Values that are wrong for most parameters: of every kind that callers get wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa


class Unshowable:
    """Its repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Uncountable:
    """Going through it fails."""

    def __iter__(self) -> Any:
        raise OSError("no iterator")


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]

VALUES: dict[str, Any] = {
    "nothing": None,
    "true": True,
    "true of numpy": np.True_,
    "zero": 0,
    "less than nothing": -1,
    "beyond 32 bits": 1 << 31,
    "beyond 63 bits": 1 << 63,
    "beyond 64 bits": 1 << 64,
    "less than 64 bits": -(1 << 64),
    "of 100,000 bits": 1 << 100_000,
    "a number of numpy": np.int64(-1),
    "an unsigned number of numpy": np.uint64((1 << 64) - 1),
    "a number of pyarrow": pa.scalar(1),
    "half": 0.5,
    "not a number": float("nan"),
    "not a number of numpy": np.float32("nan"),
    "infinity": float("inf"),
    "a decimal": Decimal(1),
    "a complex number": 1j,
    "no text": "",
    "text": "nope",
    "text with controls": "a\x00\x1b[31m\u202eb",
    "half of a pair": "\ud800",
    "long text": "x" * 100_000,
    "bytes": b"n",
    "no list": [],
    "a list of text": ["nope"],
    "a list of nothing": [None],
    "a list of numbers": [0, 1],
    "a list of truths": [True, False],
    "a list of all kinds": [0, "a", None, 1.5],
    "a list of huge numbers": [1 << 64],
    "a list of half a pair": ["\ud800"],
    "a pair": ("n", "=="),
    "a nested list": NESTED,
    "no mapping": {},
    "a mapping": {"nope": 1},
    "a mapping of numbers": {1: "x"},
    "a set": {"nope"},
    "an object": object(),
    "a class": int,
    "a function": len,
    "a generator": (each for each in ()),
    "no time of pandas": pd.NaT,
    "not available": pd.NA,
    "no time of numpy": np.datetime64("NaT"),
    "no duration of numpy": np.timedelta64("NaT"),
    "no time of pyarrow": pa.scalar(None, pa.timestamp("us")),
    "a day": date(2026, 11, 25),
    "a naive time": datetime(2026, 11, 25),
    "the first time": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "the last time": datetime.max.replace(tzinfo=UTC),
    "a duration": timedelta(days=-1),
    "the longest duration": timedelta.max,
    "a time of pandas": pd.Timestamp("2026-11-25T00:00:00.123456789", tz="Asia/Tokyo"),
    "a duration of pandas": pd.Timedelta(days=1),
    "an array": np.array([[0, 1], [1, 0]]),
    "an array of floats": np.array([0.5, np.nan]),
    "an array of objects": np.array([object()], dtype=object),
    "a series": pd.Series([1, None, 2]),
    "an index": pd.Index(["n"]),
    "a frame": pd.DataFrame({"nope": [1, "a", None]}),
    "a frame of equal names": pd.DataFrame([[1, 2]], columns=["n", "n"]),
    "an array of pyarrow": pa.array([0, None]),
    "a table": pa.table({"nope": [1]}),
    "a table of equal names": pa.table([[1], [2]], names=["n", "n"]),
    "a schema": pa.schema([("nope", pa.int64())]),
    "a schema of equal names": pa.schema([("m", pa.int64()), ("m", pa.int64())]),
    "a type": pa.int64(),
    "a field": pa.field("nope", pa.int64()),
    "not showable": Unshowable(),
    "not countable": Uncountable(),
}
