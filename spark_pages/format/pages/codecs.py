"""Compression of a page's payload, with refusal of sizes that cannot be true."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import lz4.block
import pyarrow as pa

from spark_pages.errors import DamageError, InvalidInputError

# LZ4 blocks, decompressed straight into memory of Arrow.
#
# `lz4.block.decompress` decompresses into memory of its own and copies that into a new `bytes`, which comes
# from and goes back to the system: for a batch that keeps its pages the page faults cost more than the
# decompression. The extension module of lz4 exports the C functions of LZ4 itself, so the same decoder is
# called by its C interface, with the GIL released, into a buffer that Arrow's allocator uses again. Where it
# does not export them, the Python function is called.

_MAX_INT = (1 << 31) - 1


def _bind() -> Callable[[int, int, int, int], int] | None:
    """``LZ4_decompress_safe``: source, target, bytes of the source, bytes of the target."""
    try:
        function = ctypes.CDLL(lz4.block._block.__file__).LZ4_decompress_safe
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    function.restype = ctypes.c_int
    return function


_decompress_safe = _bind()


def decompress_lz4(data: pa.Buffer, size: int) -> pa.Buffer:
    """Decompress one LZ4 block.

    Parameters
    ----------
    data
        The block and nothing else.
    size
        Exactly the bytes that it holds, below 2^31.

    Raises
    ------
    ValueError
        If the block is malformed, or holds another number of bytes; says which.

    Notes
    -----
    Never writes outside of the `size` bytes, and never hands out bytes that it has not written. One
    allocation of Arrow's default pool, no copy; the GIL is released once.
    """
    if data.size > _MAX_INT:
        raise ValueError(f"the block has {data.size} bytes")
    if _decompress_safe is None:
        return _decompress_by_python(data, size)
    target = pa.allocate_buffer(size)
    found = _decompress_safe(data.address, target.address, data.size, size)
    if found != size:
        raise ValueError("the block is malformed or too long" if found < 0 else f"it holds {found} bytes")
    return target


def decompress_lz4_batch(
    blocks: Sequence[memoryview], sizes: Sequence[int], target: pa.Buffer, stride: int
) -> bool:
    """Several LZ4 blocks, one after another into memory that is there already.

    Parameters
    ----------
    blocks
        Each one block and nothing else, below 2^31 bytes.
    sizes
        Exactly the bytes that each holds, below 2^31.
    target
        Takes them, each `stride` bytes behind the one before; must be long enough.

    Returns
    -------
    bool
        Whether each of them was what was promised; else `target` holds anything.

    Notes
    -----
    1 µs a block beside its decompression.
    """
    if _decompress_safe is None or max(sizes) > stride or stride * len(blocks) > target.size:
        return False
    place, decompressed = target.address, _decompress_safe
    for block, size in zip(map(pa.py_buffer, blocks), sizes, strict=True):
        if block.size > _MAX_INT or decompressed(block.address, place, block.size, size) != size:
            return False
        place += stride
    return True


def _decompress_by_python(data: pa.Buffer, size: int) -> pa.Buffer:
    try:
        block = lz4.block.decompress(data, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from error
    if len(block) != size:
        raise ValueError(f"it holds {len(block)} bytes")
    return pa.py_buffer(block)


MAX_UNCOMPRESSED_BYTES = (1 << 31) - 1
"""No payload is larger than this; a header that says otherwise is refused unread."""

BytesLike = bytes | bytearray | memoryview
"""Contiguous bytes, of whatever owner."""


class Codec(IntEnum):
    """How the payload of a page is compressed; the number is the one in the page header."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


_ZSTD = pa.Codec("zstd", compression_level=1)

_MAX_EXPANSION = (1, 255, 32_768)
"""Output bytes that one input byte can stand for, by the number of the codec: an LZ4 length byte counts 255,
and the shortest zstd block (3 bytes of header and the byte repeated) makes 128 KiB."""


_SMALL_BYTES = 1024
_QUICK: dict[str, Any] = {}
_THOROUGH: dict[str, Any] = {"mode": "high_compression", "compression": 9}
"""Blocks of few bytes are searched thoroughly: a tenth less, for 7 µs in place of 1. Twenty of them are
half of a commit of one row; the decoder is the same."""


def compress(codec: Codec, data: BytesLike | pa.Buffer) -> bytes:
    """Compress bytes as one block without a size prefix.

    Parameters
    ----------
    codec
        The codec; ``Codec.NONE`` copies.
    data
        At most ``MAX_UNCOMPRESSED_BYTES`` bytes.

    Raises
    ------
    InvalidInputError
        If there are more bytes than one block can take: make smaller pages.

    Notes
    -----
    LZ4 takes about 130 µs per 64 KiB, zstd level 1 about 250 µs; both release the GIL.
    """
    if codec is Codec.NONE:
        return bytes(data)
    try:
        if codec is Codec.LZ4:
            size = data.size if isinstance(data, pa.Buffer) else len(data)
            mode = _THOROUGH if size <= _SMALL_BYTES else _QUICK
            return bytes(lz4.block.compress(data, store_size=False, **mode))
        return bytes(_ZSTD.compress(data, asbytes=True))
    except (OverflowError, ValueError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"Cannot compress {len(data)} bytes with {codec.name}: {error}.",
            hint="Set a smaller `page_bytes` by `transaction.set_table_properties`.",
        ) from error


def decompress(
    codec: Codec, data: BytesLike | pa.Buffer, uncompressed_size: int, *, where: str = "a block"
) -> pa.Buffer:
    """Decompress a block of `compress` into `uncompressed_size` bytes.

    Parameters
    ----------
    codec
        The codec that wrote `data`; for ``Codec.NONE`` the result shares the memory of `data`.
    data
        The compressed block and nothing else.
    uncompressed_size
        Exact size of the result in bytes, as the header says it.
    where
        What is being read, for error messages: ``path@offset``.

    Raises
    ------
    DamageError
        If the size cannot be true of so few bytes (found out before anything is allocated), if the
        block is malformed, or if it holds another number of bytes.

    Notes
    -----
    LZ4 through `lz4_block` and not through pyarrow's ``lz4_raw``, which returns uninitialised memory
    behind a block that is shorter than promised. 2 to 30 µs per 64 KiB, by content, without the GIL.
    """
    source = pa.py_buffer(data)
    check_uncompressed_size(codec, source.size, uncompressed_size, where=where)
    if codec is Codec.NONE:
        return source
    try:
        if codec is Codec.LZ4:
            block = decompress_lz4(source, uncompressed_size)
        else:
            block = pa.decompress(source, decompressed_size=uncompressed_size, codec="zstd")
    except (OSError, ValueError) as error:
        raise DamageError(
            f"Cannot decompress {where}: expected a {codec.name} block of {uncompressed_size} bytes, "
            f"found one that is malformed ({error})."
        ) from error
    if block.size != uncompressed_size:
        raise DamageError(
            f"Cannot decompress {where}: expected {uncompressed_size} bytes, found {block.size} in the block."
        )
    return block


def check_uncompressed_size(
    codec: Codec, compressed_size: int, uncompressed_size: int, *, where: str = "a block"
) -> None:
    """Nothing, if `compressed_size` bytes can expand to `uncompressed_size` bytes at all.

    Raises
    ------
    DamageError
        If the size is negative, above ``MAX_UNCOMPRESSED_BYTES``, or more than the codec can reach.
    """
    most = min(MAX_UNCOMPRESSED_BYTES, compressed_size * _MAX_EXPANSION[codec])
    if not 0 <= uncompressed_size <= most or (codec is Codec.NONE and uncompressed_size != compressed_size):
        raise DamageError(
            f"Cannot decompress {where}: expected at most {most} bytes from {compressed_size} bytes "
            f"of {codec.name}, found a promise of {uncompressed_size}."
        )
