"""The picture of what one question asked of storage."""

from __future__ import annotations

from collections.abc import Callable

from spark_pages.display import waterfall as drawing
from spark_pages.display.canvas import Picture
from spark_pages.format.names import LOG
from spark_pages.runtime import Runtime
from spark_pages.storage import TimedRequest, TimedStore
from spark_pages.store import Store


def waterfall(store: Store, question: Callable[[Store], object], title: str = "requests") -> Picture:
    """What a stranger who asks a question must ask of storage, and when: a line for each request.

    Parameters
    ----------
    store
        Where it is. It is opened anew, with empty caches, and not read through its own.
    question
        Told the store that was opened; such as ``lambda s: s.snapshot().table("flights").take([5])``.

    Notes
    -----
    Asks the question. A store on a local disk is read as a remote one is, request by request; the times are
    those of this disk.
    """
    clock_s = Runtime().monotonic_s
    timed = TimedStore(store.object_store, clock_s)
    start_s = clock_s()
    question(Store(timed))
    total_s = clock_s() - start_s
    return drawing.waterfall(title, [_shown(each, start_s) for each in timed.requests], total_s)


def _shown(request: TimedRequest, start_s: float) -> drawing.ShownRequest:
    place = "" if request.offset is None else f" @ {request.offset:,}"
    return drawing.ShownRequest(
        what=_kind(request.key),
        key=f"{request.key}{place}",
        start_s=request.start_s - start_s,
        end_s=request.end_s - start_s,
        size_bytes=request.size_bytes,
        failed=request.failed,
    )


def _kind(key: str) -> str:
    if not key.startswith(LOG):
        return "pages"
    return "commit" if key.endswith(".avro") or key.startswith(f"{LOG}manifests/") else "checkpoint"
