"""LZ4 blocks, decompressed straight into memory of Arrow.

`lz4.block.decompress` decompresses into memory of its own and copies that into a new `bytes`, which comes
from and goes back to the system: for a batch that keeps its pages the page faults cost more than the
decompression. The extension module of lz4 exports the C functions of LZ4 itself, so the same decoder is
called by its C interface, with the GIL released, into a buffer that Arrow's allocator uses again. Where it
does not export them, the Python function is called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import lz4.block
import pyarrow as pa

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
    """The bytes of one LZ4 block.

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
