from __future__ import annotations

import errno
import os
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import DamageError, InternalError, InvalidInputError, ObjectNotFoundError
from spark_pages.io import PageFileWriter, PageReader, ReadCounts, direct, encode_page
from tests.io.fakes import FolderStore, MemoryStore, descriptor, inline_page, write_pages

ARRAYS = [pa.array(np.random.default_rng(n).integers(0, 2**62, 600)) for n in range(6)]


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else FolderStore(tmp_path)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.pages"
    path.write_bytes(np.random.default_rng(0).bytes(40 * 4096))
    return path


def test_pages_come_back_in_the_order_asked_trimmed_to_what_was_written(store):
    pages = write_pages(store, ARRAYS)
    order = [pages[n] for n in (3, 0, 5, 0)]

    found = PageReader(store).read(order)

    assert [bytes(each) for each in found] == [encode_page(ARRAYS[n]).data for n in (3, 0, 5, 0)]


def test_a_run_of_adjacent_pages_is_one_request(store):
    pages = write_pages(store, ARRAYS)

    _, counts = PageReader(store).fetch(pages[1:5])

    assert counts == ReadCounts(requests=1, bytes=sum(page.alloc_len for page in pages[1:5]), pages=4)
    assert len(store.asked) <= 1


def test_pages_apart_are_requests_of_their_own(store):
    pages = write_pages(store, ARRAYS)
    other = write_pages(store, ARRAYS, "pages/b.pages")
    reader = PageReader(store)

    found, counts = reader.fetch([pages[5], pages[0], pages[1], pages[3], other[4]])

    assert counts.requests == 4
    assert [bytes(each) for each in found] == [encode_page(ARRAYS[n]).data for n in (5, 0, 1, 3, 4)]
    assert reader.counts == counts


def test_a_run_is_cut_at_the_largest_request(store):
    pages = write_pages(store, ARRAYS)

    _, counts = PageReader(store, max_run_bytes=2 * pages[0].alloc_len).fetch(pages)

    assert counts.requests == 3


def test_no_pages_are_no_request(store):
    assert PageReader(store).fetch([]) == ([], ReadCounts())


def test_a_page_file_that_is_gone_is_not_found(store):
    page = descriptor(encode_page(ARRAYS[0]), "pages/gone.pages", 0)

    with pytest.raises(ObjectNotFoundError):
        PageReader(store).read([page])


def test_a_page_past_the_end_of_its_file_is_damage(store):
    pages = write_pages(store, ARRAYS)

    with pytest.raises(DamageError):
        PageReader(store).read([replace(pages[5], offset=pages[5].offset + 4096 * 8)])


@pytest.mark.parametrize(
    "change", [{"offset": 5}, {"offset": -4096}, {"alloc_len": 100}, {"actual_len": 1 << 40}]
)
def test_a_place_that_cannot_be_is_damage(store, change):
    (page,) = write_pages(store, ARRAYS[:1])

    with pytest.raises(DamageError, match="multiple of 4096"):
        PageReader(store).read([replace(page, **change)])


def test_an_inline_page_is_not_the_readers(store):
    with pytest.raises(DamageError, match="expected a file page"):
        PageReader(store).read([inline_page(ARRAYS[0])])


def test_a_reader_pickles_without_its_threads(tmp_path):
    store = MemoryStore()
    pages = write_pages(store, ARRAYS)

    copy = pickle.loads(pickle.dumps(PageReader(store)))  # noqa: S301

    assert len(copy.read(pages)) == 6


def test_a_page_file_is_written_by_one_put_with_every_page_aligned():
    store = MemoryStore()

    pages = write_pages(store, ARRAYS)

    assert store.puts == 1
    assert len(store.objects["pages/a.pages"]) == sum(page.alloc_len for page in pages)
    assert all(page.offset % 4096 == 0 for page in pages)
    assert all(a.offset + a.alloc_len == b.offset for a, b in pairwise(pages))


def test_a_page_file_without_pages_is_not_written():
    store = MemoryStore()

    size = PageFileWriter(store, "pages/a.pages").finish()

    assert (size, store.puts) == (0, 0)


def test_a_finished_page_file_takes_no_more_pages():
    writer = PageFileWriter(MemoryStore(), "pages/a.pages")
    writer.finish()

    with pytest.raises(InternalError, match="finished"):
        writer.add(encode_page(ARRAYS[0]))


@pytest.mark.parametrize(("offset", "length"), [(0, 4096), (4096, 8192), (0, 163840), (159744, 4096), (0, 0)])
def test_a_direct_read_equals_a_buffered_one(file, offset, length):
    found = direct.read_aligned(str(file), offset, length)

    assert bytes(found) == file.read_bytes()[offset : offset + length]


def test_a_file_system_without_direct_reads_is_read_buffered_and_remembered(file, monkeypatch):
    real, opened = os.open, []

    def refuse_direct(path, flags):
        opened.append(flags)
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return real(path, flags)

    monkeypatch.setattr(direct, "_buffered_devices", set())
    monkeypatch.setattr(os, "open", refuse_direct)
    first = direct.read_aligned(str(file), 0, 4096)
    second = direct.read_aligned(str(file), 0, 4096)

    assert bytes(first) == bytes(second) == file.read_bytes()[:4096]
    assert [bool(flags & os.O_DIRECT) for flags in opened[:3]] == [True, False, False]


@pytest.mark.parametrize("step", [4096, 5000])
@pytest.mark.parametrize("flag", [direct._O_DIRECT, 0])
def test_short_answers_of_the_system_are_continued(file, monkeypatch, step, flag):
    real = os.preadv
    monkeypatch.setattr(direct, "_O_DIRECT", flag)
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:step]], at))

    found = direct.read_aligned(str(file), 4096, 5 * 4096)

    assert bytes(found) == file.read_bytes()[4096 : 6 * 4096]


def test_a_read_past_the_end_is_refused_before_anything_is_allocated(file, monkeypatch):
    monkeypatch.setattr(direct, "_anonymous", lambda _: pytest.fail("was allocated"))

    with pytest.raises(DamageError, match=r"a\.pages: expected 1099511627776 bytes at 0.*ends at 163840"):
        direct.read_aligned(str(file), 0, 1 << 40)


def test_a_file_that_shrinks_under_the_read_is_damage(file, monkeypatch):
    monkeypatch.setattr(os, "preadv", lambda *_: 0)

    with pytest.raises(DamageError, match="ends at 4096"):
        direct.read_aligned(str(file), 4096, 4096)


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="no such file"):
        direct.read_aligned(str(tmp_path / "gone"), 0, 4096)


def test_an_unaligned_read_is_refused(file):
    with pytest.raises(InvalidInputError, match="multiples of 4096"):
        direct.read_aligned(str(file), 1, 4096)
