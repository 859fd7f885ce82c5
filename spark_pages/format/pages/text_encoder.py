"""Pages of text and binary values as bytes, many at a time: what `encode_page` does. Pure.

Lengths of all entries are found and narrowed together, and the bytes of a page go from where they are
straight into its payload.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.format.pages.batch_messages import (
    SLICED_BYTES,
    BatchMessages,
    aligned,
    bitmap_bytes,
    zeros_behind,
)
from spark_pages.format.pages.codecs import MAX_UNCOMPRESSED_BYTES, Codec
from spark_pages.format.pages.integer_batches import fewest_bytes
from spark_pages.format.pages.integer_encoding import FROM_NEIGHBOUR, RESERVED, one_entry
from spark_pages.format.pages.ipc_layout import FlatColumn
from spark_pages.format.pages.null_masking import hides
from spark_pages.format.pages.page_codec import FEWEST_NARROWED, EncodedPage, sealed_page
from spark_pages.format.pages.page_stream import END_OF_STREAM


def encode_text_pages(values: pa.Array, bounds: NDArray[np.int64], codec: Codec) -> list[EncodedPage | None]:
    """The `encode_page` of each piece of text or binary values.

    Returns
    -------
    list
        None for pages whose offsets cannot be narrowed: those of few entries, or of very long ones.

    Notes
    -----
    Some 20 µs a page, beside what the codec takes.
    """
    column, held = FlatColumn.of(values.type), values.buffers()[2]
    if column is None or held is None or codec is Codec.NONE or hides(values):
        return []
    values, cuts = values.slice(int(bounds[0]), int(bounds[-1] - bounds[0])), bounds - bounds[0]
    firsts, rows, width = cuts[:-1], np.diff(cuts), column.offset_bytes
    ends = np.frombuffer(values.buffers()[1], f"<i{width}", len(values) + 1, width * values.offset)
    lengths = np.subtract(ends[1:], ends[:-1])
    of_each, bases = fewest_bytes(
        np.minimum.reduceat(lengths, firsts), np.maximum.reduceat(lengths, firsts), width
    )
    starts = ends[firsts].astype(np.int64)
    sizes = ends[cuts[1:]] - starts
    sizes = np.minimum(-(-sizes // SLICED_BYTES) * SLICED_BYTES, held.size - starts)
    valid, nulls = valid_of(values), np.zeros_like(rows)
    if values.null_count:
        nulls = np.add.reduceat(~valid, firsts, dtype=np.int64)
    messages = BatchMessages.of(values.type)
    batches, streams = messages.told(rows, nulls, (rows + 1) * width, sizes)
    streams += len(END_OF_STREAM)
    fits = (rows >= FEWEST_NARROWED) & (of_each < width) & (streams <= MAX_UNCOMPRESSED_BYTES)
    begins = messages.size_bytes + aligned(bitmap_bytes(rows, nulls))
    above = lengths - np.repeat(bases.astype(lengths.dtype), rows) if bases.any() else lengths
    kept = {narrow: above.astype(f"<u{narrow}") for narrow in {*of_each[fits].tolist()}}
    memory = memoryview(held)

    def page(index: int) -> EncodedPage:
        first, end = cuts[index : index + 2].tolist()
        count, narrow, base, begin, start, size = (
            int(each[index]) for each in (rows + 1, of_each, bases, begins, starts, sizes)
        )
        bitmap = np.packbits(valid[first:end], bitorder="little").tobytes() if nulls[index] else b""
        plain = b"".join(
            (
                one_entry((begin, count, FROM_NEIGHBOUR, width, narrow, RESERVED, base, 0)),
                messages.schema,
                batches[index].data,
                bitmap,
                zeros_behind(len(bitmap)),
                bytes(narrow),  # the first has no length before it
                kept[narrow][first:end].data,
                zeros_behind(count * narrow) + zeros_behind(count * width),
                memory[start : start + size],
                zeros_behind(size),
                END_OF_STREAM,
            )
        )
        return sealed_page(codec, plain, end - first, int(streams[index]))

    return [page(index) if fit else None for index, fit in enumerate(fits.tolist())]
