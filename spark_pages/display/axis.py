"""Round numbers along an axis."""

from __future__ import annotations

import math


def ticks(end: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to `end`, no more than `most` + 1 of them."""
    if end <= 0:
        return [0.0]
    raw = end / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    return [step * index for index in range(int(end / step * (1 + 1e-9)) + 1)]


def whole_ticks(end: int, most: int = 6) -> list[int]:
    """The same among whole numbers."""
    return sorted({round(tick) for tick in ticks(end, min(most, max(end, 1)))})
