"""The log lane: commits in their order, rebases as arcs, checkpoints below.

A commit is a dot; those that fall on one spot are piled up. Where a pile would be too high, there are bars
instead, so that a log of any length gives a picture of one size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from spark_pages.display.canvas import WIDTH, Canvas, Key, Picture, text_width
from spark_pages.display.markup import BLUE, GREEN, INK, ORANGE, PURPLE
from spark_pages.display.text import count, moment, seconds

MOST_ARCS = 40
_SPOT = 14
_PILE = 6
_RADIUS = 5.0
_BARS = 70
_SIDE = 14


class CommitKind(IntEnum):
    """What a commit did, as far as its colour tells."""

    ROWS = 0
    PAGES = 1
    TABLES = 2
    OTHER = 3


_KEYS = {
    CommitKind.ROWS: Key(BLUE, "rows written"),
    CommitKind.PAGES: Key(ORANGE, "pages rewritten, the same rows"),
    CommitKind.TABLES: Key(GREEN, "tables changed"),
    CommitKind.OTHER: Key(INK, "claims, leases, tags, retention"),
}


@dataclass(frozen=True, eq=False, slots=True)
class LoggedTransactions:
    """What happened, a value for each transaction, the oldest first.

    Attributes
    ----------
    versions, read_versions : int64, shape (n,)
        Where each landed, and what it had read.
    times_us : int64, shape (n,)
        When, in microseconds since the epoch; does not decrease.
    kinds : int8, shape (n,)
        `CommitKind`.
    checkpoints : int64
        Versions of checkpoints.
    """

    versions: NDArray[np.int64]
    read_versions: NDArray[np.int64]
    times_us: NDArray[np.int64]
    kinds: NDArray[np.int8]
    checkpoints: NDArray[np.int64]


def log_lane(title: str, log: LoggedTransactions) -> Picture:
    """Draw the lane of transactions.

    Notes
    -----
    At most 60 spots of 6 dots or 4 bars, `MOST_ARCS` arcs (the longest), and one diamond a spot.
    """
    n = len(log.versions)
    rebased = np.flatnonzero((log.read_versions >= 0) & (log.read_versions < log.versions - 1))
    told = f"{count(n, 'transaction')}, {count(len(rebased), 'rebase')}"
    canvas = Canvas(f"{title}: {told}")
    canvas.text(0, 14, title, bold=True, room=WIDTH - 330)
    if not n:
        canvas.text(0, 40, "nothing was committed")
        return canvas.finish(50)
    spots = _spots(n)
    arcs = rebased[np.argsort(log.read_versions[rebased] - log.versions[rebased], kind="stable")][:MOST_ARCS]
    piled = np.bincount(spots)
    dots = int(piled.max()) <= _PILE
    told += "" if dots else f", {piled.max():,} at most in a bar"
    canvas.text(WIDTH, 14, told, anchor="end", small=True)
    high = int(piled.max()) * 2 * _RADIUS if dots else _BARS + 6
    base = 24 + high + (26 if len(arcs) else 0)
    (_draw_dots if dots else _draw_bars)(canvas, log, spots, base)
    drawn = _draw_arcs(canvas, log, spots, arcs, base if dots else base - _BARS, base - 22)
    canvas.line(0, base, WIDTH, base)
    y = _draw_versions(canvas, log, spots, base)
    y = _draw_checkpoints(canvas, log, spots, y)
    y = _draw_times(canvas, log.times_us, y)
    keys = [_KEYS[kind] for kind in CommitKind if kind in log.kinds]
    if drawn:
        keys.append(Key("none", "rebased over what came between", stroke=PURPLE))
    return canvas.finish(canvas.legend(y + 10, keys))


def _spots(count: int) -> NDArray[np.int64]:
    """On which spot of the axis each transaction is: as far from the one before as from the one behind."""
    room = (WIDTH - 2 * _SIDE) // _SPOT
    places = np.arange(count) * min(4.0, room / max(count, 1))
    spots: NDArray[np.int64] = np.minimum(places, room - 1).astype(np.int64) + 1
    return spots


def _centre(spot: int) -> float:
    return (int(spot) + 0.5) * _SPOT


def _firsts(spots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first transaction of each spot."""
    return np.flatnonzero(np.append(True, spots[1:] != spots[:-1]))


def _draw_dots(canvas: Canvas, log: LoggedTransactions, spots: NDArray[np.int64], base: float) -> None:
    firsts = _firsts(spots)
    above = np.arange(len(spots)) - np.repeat(firsts, np.diff(np.append(firsts, len(spots))))
    for spot, place, kind in zip(spots.tolist(), above.tolist(), log.kinds.tolist(), strict=True):
        y = base - _RADIUS - 2 - 2 * _RADIUS * place
        canvas.circle(_centre(spot), y, _RADIUS - 0.8, _KEYS[CommitKind(kind)].fill)


def _draw_bars(canvas: Canvas, log: LoggedTransactions, spots: NDArray[np.int64], base: float) -> None:
    end = int(spots[-1]) + 1
    parts = np.stack([np.bincount(spots[log.kinds == kind], minlength=end) for kind in CommitKind])
    top = int(parts.sum(axis=0).max())
    below = np.vstack([np.zeros(end), np.cumsum(parts, axis=0)]) / top * _BARS
    for kind, spot in np.argwhere(parts > 0).tolist():
        high = below[kind + 1, spot] - below[kind, spot]
        y = base - below[kind + 1, spot]
        canvas.rect(spot * _SPOT + 1, y, _SPOT - 2, high, _KEYS[CommitKind(kind)].fill)


def _draw_arcs(
    canvas: Canvas,
    log: LoggedTransactions,
    spots: NDArray[np.int64],
    arcs: NDArray[np.int64],
    base: float,
    room: float,
) -> int:
    """From the version that a transaction had read to where it landed; gives how many were drawn."""
    drawn = 0
    for index in arcs.tolist():
        read = int(np.searchsorted(log.versions, log.read_versions[index]))
        start, end = _centre(spots[min(read, len(spots) - 1)]), _centre(spots[index])
        if end == start:
            if len(spots) > 10 * MOST_ARCS:
                continue
            start, end = start - _RADIUS, end + _RADIUS  # on one spot: a loop
        drawn += 1
        peak = base - min(room, 24 + (end - start) / 5) * 1.3
        foot = base - _RADIUS
        canvas.path(
            f"M{start:.1f} {foot:.1f}C{start:.1f} {peak:.1f} {end:.1f} {peak:.1f} {end:.1f} {foot:.1f}",
            stroke=PURPLE,
            width=1.4,
        )
    return drawn


def _draw_versions(canvas: Canvas, log: LoggedTransactions, spots: NDArray[np.int64], base: float) -> float:
    """Versions below their spots, as many as there is room for; the newest before others."""
    last = f"{log.versions[-1]:,}"
    half = text_width(last, small=True) / 2
    end = min(_centre(spots[-1]), WIDTH - half)
    canvas.text(end, base + 15, last, anchor="middle", small=True)
    free_from, free_until = 0.0, end - half - 8
    for index in _firsts(spots).tolist():
        words = f"{log.versions[index]:,}"
        half = text_width(words, small=True) / 2
        middle = max(_centre(spots[index]), half)
        if middle - half >= free_from and middle + half <= free_until:
            canvas.text(middle, base + 15, words, anchor="middle", small=True)
            free_from = middle + half + 8
    return base + 22


def _draw_checkpoints(canvas: Canvas, log: LoggedTransactions, spots: NDArray[np.int64], y: float) -> float:
    """Draw a diamond at the commit of each version that has a checkpoint."""
    known = log.checkpoints[(log.checkpoints >= log.versions[0]) & (log.checkpoints <= log.versions[-1])]
    if not len(known):
        return y
    at = np.unique(spots[np.searchsorted(log.versions, known)])
    for spot in at.tolist():
        canvas.diamond(_centre(spot), y + 8, 5.5, INK)
    words = "checkpoint" if len(known) == 1 else f"{len(known):,} checkpoints"
    room = text_width(words, small=True) + 14
    for spot, following in zip(at.tolist(), [*at[1:].tolist(), WIDTH // _SPOT], strict=True):
        if _centre(following) - _centre(spot) >= room + 8:
            canvas.text(_centre(spot) + 11, y + 12, words, small=True)
            return y + 20
    if _centre(at[0]) >= room:
        canvas.text(_centre(at[0]) - 11, y + 12, words, anchor="end", small=True)
        return y + 20
    canvas.text(WIDTH, y + 28, words, anchor="end", small=True)
    return y + 34


def _draw_times(canvas: Canvas, times_us: NDArray[np.int64], y: float) -> float:
    first, last = int(times_us[0]), int(times_us[-1])
    precise = last - first < 10_000_000
    words = f"{moment(first, precise)} UTC"
    if last > first:
        words += f" to {moment(last, precise)} UTC, in {seconds((last - first) / 1e6)}"
    canvas.text(0, y + 14, words, small=True)
    return y + 18
