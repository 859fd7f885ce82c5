from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import DamageError, ObjectNotFoundError, StorageError
from spark_pages.io import CacheConfig, PageHandler, linux_aio, local_file, local_reads, page_reader
from spark_pages.io import local_file as dio_alignment
from spark_pages.io.local_file import LocalFile, OpenFiles, aligned_memory
from spark_pages.io.read_plan import ReadRange
from tests.io.fakes import FolderStore, write_pages

SIZE = 40 * 4096
ARRAYS = [pa.array(np.random.default_rng(n).integers(0, 2**62, 600)) for n in range(40)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.pages"
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    return path


@pytest.fixture
def scratch():
    return aligned_memory(1 << 20)


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 4096), (4096, 8192), (0, SIZE), (SIZE - 4096, 4096), (0, 0)]
)
@pytest.mark.parametrize("direct", [dio_alignment.O_DIRECT, 0])
def test_a_direct_read_equals_a_buffered_one(file, scratch, monkeypatch, offset, length, direct):
    monkeypatch.setattr(local_file, "O_DIRECT", direct)

    found = LocalFile(str(file)).read(offset, length, scratch)

    assert bytes(found) == file.read_bytes()[offset : offset + length]


def test_a_file_system_without_direct_reads_is_read_buffered(file, scratch, monkeypatch):
    real, opened = os.open, []

    def refuse_direct(path, flags):
        opened.append(bool(flags & os.O_DIRECT))
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return real(path, flags)

    monkeypatch.setattr(os, "open", refuse_direct)
    opening = LocalFile(str(file))
    found = bytes(opening.read(0, 4096, scratch))

    assert (found, opened, opening.is_direct) == (file.read_bytes()[:4096], [True, False], False)


def test_a_file_that_the_kernel_reads_only_buffered_is_opened_again(file, scratch, monkeypatch):
    monkeypatch.setattr(local_file, "find_alignment", lambda *_: dio_alignment.BUFFERED)

    opening = LocalFile(str(file))

    assert not opening.is_direct
    assert bytes(opening.read(4096, 4096, scratch)) == file.read_bytes()[4096:8192]


def test_a_file_that_refuses_direct_reads_only_when_it_is_read_is_read_buffered(file, scratch, monkeypatch):
    real, refused = os.preadv, []

    def preadv(descriptor, views, offset):
        if not refused:
            refused.append(descriptor)
            raise OSError(errno.EINVAL, "misaligned")
        return real(descriptor, views, offset)

    opening = LocalFile(str(file))
    monkeypatch.setattr(os, "preadv", preadv)

    assert bytes(opening.read(4096, 8192, scratch)) == file.read_bytes()[4096:12288]


def test_the_alignment_that_the_kernel_does_not_tell_is_tried_out(file, monkeypatch):
    real, tried = os.preadv, []

    def preadv(descriptor, views, offset):
        tried.append(len(views[0]))
        if len(views[0]) < 16384:
            raise OSError(errno.EINVAL, "misaligned")
        return real(descriptor, views, offset)

    monkeypatch.setattr(dio_alignment, "_statx", None)
    monkeypatch.setattr(os, "preadv", preadv)
    with file.open("rb") as opened:
        found = dio_alignment.find_alignment(opened.fileno(), SIZE)

    assert (found, tried) == (16384, [4096, 16384])


def test_a_disk_with_larger_blocks_is_read_in_larger_blocks(file, scratch, monkeypatch):
    asked = []
    real = os.preadv
    monkeypatch.setattr(local_file, "find_alignment", lambda *_: 16384)
    opening = LocalFile(str(file))
    monkeypatch.setattr(
        os, "preadv", lambda fd, views, at: asked.append((at, len(views[0]))) or real(fd, views, at)
    )

    found = opening.read(20480, 4096, scratch)
    last = opening.read(SIZE - 4096, 4096, aligned_memory(1 << 20))

    assert (bytes(found), bytes(last)) == (file.read_bytes()[20480:24576], file.read_bytes()[-4096:])
    assert asked[0] == (16384, 16384)
    assert all(at % 16384 == 0 and length % 4096 == 0 for at, length in asked)
    assert not opening.is_direct


@pytest.mark.parametrize("step", [4096, 5000])
@pytest.mark.parametrize("direct", [dio_alignment.O_DIRECT, 0])
def test_short_answers_of_the_system_are_continued(file, scratch, monkeypatch, step, direct):
    real = os.preadv
    monkeypatch.setattr(local_file, "O_DIRECT", direct)
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:step]], at))

    found = LocalFile(str(file)).read(4096, 5 * 4096, scratch)

    assert bytes(found) == file.read_bytes()[4096 : 6 * 4096]


def test_a_read_past_the_end_is_refused_before_anything_is_allocated(file, scratch, monkeypatch):
    monkeypatch.setattr(local_file, "aligned_memory", lambda _: pytest.fail("was allocated"))

    with pytest.raises(DamageError, match=r"a\.pages: expected 1099511627776 bytes at 0.*ends at 163840"):
        LocalFile(str(file)).read(0, 1 << 40, scratch)


def test_a_file_that_shrinks_under_the_read_is_damage(file, scratch, monkeypatch):
    opening = LocalFile(str(file))
    monkeypatch.setattr(os, "preadv", lambda *_: 0)

    with pytest.raises(DamageError, match="ends at 4096"):
        opening.read(4096, 4096, scratch)


def test_a_disk_that_fails_is_a_storage_error(file, scratch, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    opening = LocalFile(str(file))
    monkeypatch.setattr(os, "preadv", fail)

    with pytest.raises(StorageError, match=r"4096 bytes at 4096 of .*a\.pages: Input/output error"):
        opening.read(4096, 4096, scratch)


def test_a_file_is_opened_once_for_many_reads(tmp_path, file):
    located = []
    files = OpenFiles(lambda key: located.append(key) or str(tmp_path / key))

    for _ in range(3):
        with files.lease("a.pages") as found:
            assert found.size_bytes == SIZE

    assert located == ["a.pages"]


def test_a_file_that_is_gone_and_one_that_is_a_link_or_a_folder_are_refused(tmp_path, file):
    files = OpenFiles(lambda key: str(tmp_path / key))
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "folder").mkdir()

    for key, error in (
        ("gone", ObjectNotFoundError),
        ("link", StorageError),
        ("folder", DamageError),
    ):
        with pytest.raises(error, match=key), files.lease(key):
            pass


def test_no_more_files_stay_open_than_allowed_and_none_after_close(tmp_path):
    for number in range(6):
        (tmp_path / str(number)).write_bytes(bytes(4096))
    files = OpenFiles(lambda key: str(tmp_path / key), limit=2)
    before = open_descriptors()

    for number in range(6):
        with files.lease(str(number)):
            pass
    kept = open_descriptors() - before
    files.close()

    assert (kept, open_descriptors() - before) == (2, 0)


def test_a_file_in_use_is_closed_by_its_last_reader_and_not_before(tmp_path, file, scratch):
    files = OpenFiles(lambda key: str(tmp_path / key))
    before = open_descriptors()

    with files.lease("a.pages") as found:
        files.forget(["a.pages"])
        data = bytes(found.read(0, 4096, scratch))

    assert data == file.read_bytes()[:4096]
    assert open_descriptors() == before


def test_a_file_in_use_is_not_closed_to_make_room(tmp_path, file, scratch):
    for number in range(3):
        (tmp_path / str(number)).write_bytes(bytes(4096))
    files = OpenFiles(lambda key: str(tmp_path / key), limit=1)

    with files.lease("a.pages") as found:
        for number in range(3):
            with files.lease(str(number)):
                pass
        data = bytes(found.read(0, 4096, scratch))

    assert data == file.read_bytes()[:4096]


def test_where_no_more_files_may_be_open_those_not_in_use_are_closed(tmp_path, file, monkeypatch):
    (tmp_path / "other").write_bytes(bytes(4096))
    files = OpenFiles(lambda key: str(tmp_path / key))
    with files.lease("other"):
        pass
    real, full = os.open, [True]

    def refuse_once(*arguments):
        if full:
            full.clear()
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    monkeypatch.setattr(os, "open", refuse_once)
    with files.lease("a.pages") as found:
        assert found.size_bytes == SIZE

    assert list(files._files) == ["a.pages"]


def test_a_handler_that_is_dropped_leaves_no_file_open(tmp_path):
    store = FolderStore(tmp_path)
    pages = write_pages(store, ARRAYS)
    before = open_descriptors()

    handler = PageHandler(store)
    handler.get_pages(pages[::2])
    handler.close()
    del handler

    assert open_descriptors() == before


def spans(*places: tuple[int, int]) -> list[ReadRange]:
    return [ReadRange("a", start, stop, stop, []) for start, stop in places]


def read_by(queue, path, many):
    for together in queue.read({"a": LocalFile(str(path))}, many):
        yield from together


@pytest.fixture
def queue():
    found = linux_aio.open_queue(aligned_memory(linux_aio.QUEUE_BYTES))
    if found is None:
        pytest.skip("the system has no asynchronous I/O for this process")
    return found


@pytest.mark.parametrize("refuses", [False, True])
def test_memory_of_huge_pages_is_aligned_to_them_also_where_the_system_has_none(monkeypatch, refuses):
    asked = []

    class Mapping(mmap.mmap):
        def madvise(self, advice):
            asked.append(advice)
            if refuses:
                raise OSError(errno.EINVAL, "no huge pages here")

    monkeypatch.setattr(local_file.mmap, "mmap", Mapping)

    memory = local_file.huge_memory(3 << 20)

    assert np.frombuffer(memory, np.uint8).ctypes.data % local_file.HUGE_PAGE_BYTES == 0
    assert (len(memory), memory.readonly, asked) == (3 << 20, False, [mmap.MADV_HUGEPAGE])


def test_the_queue_of_a_tool_reads_into_the_memory_of_the_tool(file):
    tool = local_reads.ReadBuffers()
    if (queue := tool.queue()) is None:
        pytest.skip("the system has no asynchronous I/O for this process")

    ((_, view),) = read_by(queue, file, spans((4096, 8192)))

    assert np.shares_memory(np.frombuffer(view, np.uint8), np.frombuffer(tool.memory(), np.uint8))
    assert bytes(view) == file.read_bytes()[4096:8192]


def test_a_queue_reads_what_single_reads_give(file, queue):
    many = spans(*((n % 40 * 4096, n % 40 * 4096 + 4096) for n in range(0, 400, 3)))
    data = file.read_bytes()

    found = [(span, bytes(view)) for span, view in read_by(queue, file, many)]

    assert found == [(span, data[span.start : span.stop]) for span in many]


def test_a_queue_takes_two_system_calls_for_a_wave_of_spans(file, queue, monkeypatch):
    calls = []
    real = linux_aio._call
    monkeypatch.setattr(linux_aio, "_call", lambda which, *rest: calls.append(which) or real(which, *rest))

    list(read_by(queue, file, spans(*((n * 4096, n * 4096 + 4096) for n in range(40)))))

    assert calls.count(3) == 2
    assert calls.count(2) in (2, 3, 4)


def test_a_queue_reads_spans_of_several_files_together(file, tmp_path, queue):
    other = tmp_path / "b.pages"
    other.write_bytes(np.random.default_rng(1).bytes(SIZE))
    files = {"a": LocalFile(str(file)), "b": LocalFile(str(other))}
    many = [replace(span, path=path) for path in "ab" for span in spans((0, 4096), (8192, 16384))]

    (together,) = queue.read(files, many)

    data = {"a": file.read_bytes(), "b": other.read_bytes()}
    assert [bytes(view) for _, view in together] == [data[s.path][s.start : s.stop] for s in many]


def test_a_span_too_large_for_a_queue_is_read_by_itself(tmp_path, queue):
    path = tmp_path / "large"
    path.write_bytes(np.random.default_rng(1).bytes(3 << 20))
    some = spans((0, 4096), (4096, 4096 + (2 << 20)), (3 << 19, (3 << 19) + 4096))

    found = [bytes(view) for _, view in read_by(queue, path, some)]

    data = path.read_bytes()
    assert found == [data[span.start : span.stop] for span in some]


def test_a_queue_whose_system_refuses_reads_one_by_one(file, queue, monkeypatch):
    def refuse(which, *_):
        raise OSError(errno.EAGAIN, "not now")

    some = spans((0, 4096), (8192, 16384))
    monkeypatch.setattr(linux_aio, "_call", refuse)

    found = [bytes(view) for _, view in read_by(queue, file, some)]
    monkeypatch.undo()

    assert found == [file.read_bytes()[span.start : span.stop] for span in some]


def test_a_queue_that_is_left_half_way_has_nothing_in_flight(file, queue):
    for _, view in read_by(queue, file, spans(*((n * 4096, n * 4096 + 4096) for n in range(40)))):
        assert len(view) == 4096
        break
    gc.collect()

    again = [bytes(view) for _, view in read_by(queue, file, spans((0, 4096)))]

    assert [wave._submitted for wave in queue._waves] == [0, 0]
    assert again == [file.read_bytes()[:4096]]


def test_a_span_behind_the_end_is_damage_also_through_a_queue(file, queue):
    with pytest.raises(DamageError, match="ends at 163840"):
        list(read_by(queue, file, spans((0, 4096), (SIZE - 4096, SIZE + 4096))))


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("threads", [1, 5])
def test_pages_far_apart_come_right_with_and_without_queues(tmp_path, monkeypatch, queues, threads):
    if not queues:
        monkeypatch.setattr(page_reader, "HAS_QUEUES", False)
        monkeypatch.setattr(local_reads, "open_queue", lambda _: None)
    store = FolderStore(tmp_path)
    pages = [page for key in ("pages/a", "pages/b") for page in write_pages(store, ARRAYS, key)][::2]
    handler = PageHandler(store, CacheConfig(threads=threads))

    found = handler.get_pages(pages)

    assert [batch.column("data") for batch in found] == [*ARRAYS[::2], *ARRAYS[::2]]
    assert (handler.stats().requests, handler.stats().misses) == (40, 40)


def test_a_cut_file_is_damage_that_names_it_through_every_layer(tmp_path):
    store = FolderStore(tmp_path)
    pages = write_pages(store, ARRAYS)
    path = tmp_path / "pages/a.pages"
    os.truncate(path, path.stat().st_size - 4096)

    with pytest.raises(DamageError, match=r"a\.pages"):
        PageHandler(store).get_pages(pages[::2] + pages[1::2])
    with pytest.raises(DamageError, match=r"a\.pages"):
        PageHandler(store).get_pages([replace(pages[5], offset=pages[5].offset + (1 << 40))])


def test_no_more_threads_read_through_queues_than_there_are_turns():
    tools, most, now = local_reads.ReadBufferPool(2), [], []
    together = threading.Barrier(6)

    def read():
        together.wait()
        for _ in range(20):
            with tools.lend_limited():
                now.append(1)
                most.append(len(now))
                time.sleep(0.0005)
                now.pop()

    threads = [threading.Thread(target=read) for _ in range(6)]
    [each.start() for each in threads]
    [each.join() for each in threads]

    assert max(most) == 2
    assert len(tools._idle) == 2


def test_many_threads_read_through_queues_of_their_own(tmp_path):
    store = FolderStore(tmp_path)
    pages = write_pages(store, ARRAYS)
    handler = PageHandler(store, decoded_bytes=0, compressed_bytes=0)
    wrong = []

    def ask(first):
        for _ in range(5):
            found = handler.get_pages(pages[first::3])
            wrong.extend(b for b, a in zip(found, ARRAYS[first::3], strict=True) if b.column("data") != a)

    threads = [threading.Thread(target=ask, args=(n % 3,)) for n in range(6)]
    [each.start() for each in threads]
    [each.join() for each in threads]

    assert wrong == []


def test_a_system_without_queues_gives_none(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(linux_aio, "_call", refuse)
    monkeypatch.setattr(linux_aio, "_spare", [])

    assert linux_aio.open_queue(aligned_memory(linux_aio.QUEUE_BYTES)) is None


def test_a_queue_takes_over_what_the_kernel_has_made_for_one_that_is_gone(file, queue, monkeypatch):
    calls = []
    real = linux_aio._call
    monkeypatch.setattr(linux_aio, "_call", lambda which, *rest: calls.append(which) or real(which, *rest))
    monkeypatch.setattr(linux_aio, "_spare", [])

    for _ in range(3):
        other = linux_aio.open_queue(aligned_memory(linux_aio.QUEUE_BYTES))
        found = [bytes(view) for _, view in read_by(other, file, spans((4096, 8192), (0, 4096)))]
        del other

    whole = file.read_bytes()
    assert found == [whole[4096:8192], whole[:4096]]
    assert (calls.count(0), calls.count(1)) == (2, 0)


def test_a_process_that_was_forked_makes_contexts_of_its_own(file, queue, monkeypatch):
    monkeypatch.setattr(linux_aio, "_spare", [(os.getpid() + 1, 7), (os.getpid() + 1, 8)])

    other = linux_aio.open_queue(aligned_memory(linux_aio.QUEUE_BYTES))

    assert [bytes(view) for _, view in read_by(other, file, spans((0, 4096)))] == [file.read_bytes()[:4096]]
    assert linux_aio._spare == []


@pytest.mark.parametrize("call", [2, 3])
def test_a_queue_whose_answer_a_signal_took_is_not_used_again(file, queue, monkeypatch, call):
    real, calls = linux_aio._call, []

    def interrupt_once(which, *rest):
        found = real(which, *rest)
        calls.append(which)
        if calls.count(call) == 1 and which == call:
            raise KeyboardInterrupt
        return found

    many = spans(*((n * 4096, n * 4096 + 4096) for n in range(40)))
    monkeypatch.setattr(linux_aio, "_call", interrupt_once)
    tools = local_reads.ReadBufferPool(1)
    with tools.lend() as tool, pytest.raises(KeyboardInterrupt):
        list(read_by(tool.queue(), file, many))

    with tools.lend() as other:
        found = [bytes(view) for _, view in read_by(other.queue(), file, many[::-1])]

    assert other is not tool
    assert found == [file.read_bytes()[span.start : span.stop] for span in many[::-1]]
