"""Handlers in forked and spawned workers, as data loaders have them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.io import CacheConfig, PageHandler
from spark_pages.io.single_flight import PendingLoad
from spark_pages.model.run import key_of
from tests.io.fakes import FolderStore, write_pages

ARRAYS = [pa.array(np.random.default_rng(n).integers(0, 2**62, 600)) for n in range(40)]


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path)


@pytest.fixture
def pages(store):
    return write_pages(store, ARRAYS)


def right(handler, pages, first=0, step=1) -> bool:
    found = handler.get_pages(pages[first::step])
    return [batch.column("data") for batch in found] == ARRAYS[first::step]


def in_child(work) -> int:
    """The exit code of a forked child that does the work; 0 if it gives True."""
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # a child that waits for ever must not hang the run
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001 - the child must end here
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_spawned(handler, pages, answers) -> None:
    answers.put((right(handler, pages), handler.stats().misses))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_files_threads_and_queues_are_in_use_reads_right_and_so_does_the_parent(
    store, pages
):
    handler = PageHandler(store, CacheConfig(decoded_bytes=0, compressed_bytes=0, threads=4))
    assert right(handler, pages, 0, 2)
    stop, wrong = threading.Event(), []

    def keep_reading():
        while not stop.is_set():
            wrong.extend([] if right(handler, pages, 0, 3) else [1])

    threads = [threading.Thread(target=keep_reading) for _ in range(3)]
    [each.start() for each in threads]
    codes = [in_child(lambda: right(handler, pages, 1, 2) and right(handler, pages)) for _ in range(5)]
    stop.set()
    [each.join() for each in threads]

    assert codes == [0] * 5
    assert wrong == []
    assert right(handler, pages)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_inside_a_pinned_block_leaves_it_in_peace(store, pages):
    handler = PageHandler(store)

    def leave(block):
        block.__exit__(None, None, None)
        return right(handler, pages)

    block = handler.pinned(pages[:3])
    block.__enter__()
    handler._state.cache._budgets.decoded.lock.acquire()
    code = in_child(lambda: leave(block))
    handler._state.cache._budgets.decoded.lock.release()
    block.__exit__(None, None, None)

    assert code == 0
    assert handler._state.cache._pins == {}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_page_is_loading_does_not_wait_for_the_parents_load(store, pages):
    handler = PageHandler(store)
    live, pending = handler._live(), PendingLoad()
    live.cache.lookup([key_of(page) for page in pages], pending, True)

    code = in_child(lambda: right(handler, pages))

    assert code == 0
    live.cache.store_loaded(pending, True)
    pending.finish()


def test_a_spawned_worker_is_given_the_handler_and_reads_on_its_own(store, pages):
    context = multiprocessing.get_context("spawn")
    handler = PageHandler(store, CacheConfig(threads=3))
    handler.get_pages(pages)
    answers = context.Queue()

    worker = context.Process(target=in_spawned, args=(handler, pages, answers))
    worker.start()
    answer = answers.get(timeout=240)
    worker.join(60)

    assert answer == (True, 40)
    assert pickle.loads(pickle.dumps(handler))._config == CacheConfig(threads=3)  # noqa: S301
