"""Threads of one process that share commits: who leads, and for whom it waits."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pyarrow as pa
import pytest

from spark_pages.log.commit.group import CommitGroup, OneAtATime
from spark_pages.log.commit.protocol_types import Committed, Deferred, GroupMember
from spark_pages.log.state import LogState
from tests.transaction.stores import store_with

LONG_S = 60.0


def until(true: Callable[[], object], otherwise: str) -> None:
    """It has come true."""
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.001)


class Commits:
    """What a group commits, and when it may: each commit waits until it is let through."""

    def __init__(self, patience_s: float) -> None:
        self.sizes: list[int] = []
        self.put_off_behind = 16
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.group = CommitGroup(self._together, lambda: patience_s)
        self.threads = ThreadPoolExecutor(16)

    def _together(self, members, _):
        self.sizes.append(len(members))
        self.began.release()
        assert self.may_end.acquire(timeout=LONG_S)
        landed = Committed(len(self.sizes), LogState(), 1)
        return [landed if at < self.put_off_behind else Deferred() for at, _ in enumerate(members)]

    def begin(self, count: int) -> list[Future]:
        """So many transactions want to commit."""
        return [self.threads.submit(self.group.commit, GroupMember(0, lambda _: None)) for _ in range(count)]

    def wait_for(self, count: int) -> None:
        """So many are in line."""
        until(
            lambda: len(self.group._waiting) >= count,
            f"{count} should be in line; commits so far: {self.sizes}",
        )

    def is_stopped(self, when: Callable[[], object]) -> None:
        """The thread of the test wants to commit, and is stopped by Ctrl-C then."""

        def stop() -> None:
            when()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of pytest-xdist ignore it
        try:
            stopped = self.threads.submit(stop)
            with pytest.raises(KeyboardInterrupt):
                self.group.commit(GroupMember(0, lambda _: None))
            stopped.result(LONG_S)
        finally:
            signal.signal(signal.SIGINT, before)

    def one_then_seven(self) -> None:
        """A commit of one transaction, and one of the seven that came meanwhile, have landed."""
        first = self.begin(1)
        self.began.acquire()
        others = self.begin(7)
        self.wait_for(7)
        self.may_end.release(2)
        for each in [*first, *others]:
            each.result(LONG_S)
        self.began.acquire()
        assert self.sizes == [1, 7]


@pytest.fixture
def commits():
    made = []

    def make(patience_s: float) -> Commits:
        made.append(Commits(patience_s))
        return made[-1]

    yield make
    for each in made:
        each.may_end.release(100)
        for forgotten in each.group._waiting:
            forgotten.wake.put(None)
        each.threads.shutdown()


has_ctrl_c = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no thread can be stopped here")


def test_whoever_leads_waits_for_no_more_than_one_of_those_that_prepare():
    turn, order = OneAtATime(), []
    door, way, inside = turn.preparing

    def prepare() -> None:
        with door, way, inside:
            order.append("prepares")

    def lead() -> None:
        nothing, way, inside = turn.leading
        with nothing, way, inside:
            order.append("leads")

    with ThreadPoolExecutor(9) as threads, door, way, inside:
        for work in [prepare] * 8 + [lead]:
            threads.submit(work)
        until(turn.leading[1].locked, "nobody but the leader can be on the way")

    assert len(order) == 9
    assert order.index("leads") <= 1


@pytest.mark.parametrize("step", range(8))
def test_a_thread_that_is_stopped_while_it_takes_a_turn_or_gives_it_back_keeps_nobody_from_the_next(
    step, monkeypatch
):
    monkeypatch.setattr(CommitGroup, "shared", True)
    row = pa.table({"x": [1]})
    store = store_with(row)
    steps = count()

    def stop(frame, event, _):
        is_turn = frame.f_code.co_name in ("__enter__", "__exit__")
        is_of_group = frame.f_code.co_filename.endswith("commit/group.py")
        if is_turn and is_of_group and next(steps) == step:
            raise KeyboardInterrupt

    def append():
        with store.transaction() as txn:
            txn.append("t", row)

    sys.settrace(stop)
    with suppress(KeyboardInterrupt):
        append()
    sys.settrace(None)
    another = threading.Thread(target=append, daemon=True)
    another.start()
    another.join(LONG_S)

    assert not another.is_alive()


def test_those_that_come_while_a_commit_is_under_way_share_the_next_one(commits):
    commits(LONG_S).one_then_seven()


def test_a_leader_waits_for_half_of_those_that_were_there_a_moment_ago(commits):
    some = commits(LONG_S)
    some.one_then_seven()

    early = some.begin(2)
    some.wait_for(2)
    assert some.sizes == [1, 7]
    late = some.begin(1)
    some.may_end.release()

    for each in [*early, *late]:
        each.result(LONG_S)
    assert some.sizes == [1, 7, 3]


def test_a_leader_does_not_wait_for_those_that_stay_away(commits):
    some = commits(0.01)
    some.one_then_seven()

    some.may_end.release()
    some.begin(1)[0].result(LONG_S)

    assert some.sizes == [1, 7, 1]


def test_a_single_writer_waits_for_nobody(commits):
    some = commits(LONG_S)

    for _ in range(3):
        some.may_end.release()
        some.begin(1)[0].result(LONG_S)

    assert some.sizes == [1, 1, 1]


def test_members_go_on_by_themselves_if_their_leader_is_stopped_before_anything_was_put():
    sizes, may_go_on = [], threading.Event()

    def together(members, _):
        sizes.append(len(members))
        assert may_go_on.wait(LONG_S)
        if len(members) == 2:
            raise KeyboardInterrupt
        return [Committed(len(sizes), LogState(), 1)]

    group = CommitGroup(together, lambda: 0.0)
    with ThreadPoolExecutor(3) as threads:
        ends = [threads.submit(group.commit, GroupMember(0, lambda _: None))]
        for waiting in (1, 2):
            ends.append(threads.submit(group.commit, GroupMember(0, lambda _: None)))
            until(
                lambda count=waiting: len(group._waiting) >= count and sizes, f"{waiting} should be in line"
            )
        may_go_on.set()
        errors = [end.exception(LONG_S) for end in ends]

    assert [type(error) for error in errors] == [type(None), KeyboardInterrupt, type(None)]
    assert sizes == [1, 2, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_commits_although_a_thread_of_its_parent_was_leading(commits):
    some = commits(LONG_S)
    first = some.begin(1)
    some.began.acquire()

    child = os.fork()
    if child == 0:
        some.began, some.may_end = threading.Semaphore(0), threading.Semaphore(2)  # the old may be locked
        some.group.commit(GroupMember(0, lambda _: None))
        os._exit(0)

    deadline = time.monotonic() + LONG_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child waits for a thread that it does not have")
        time.sleep(0.01)
    some.may_end.release()
    first[0].result(LONG_S)


@has_ctrl_c
def test_one_that_is_stopped_while_it_waits_is_in_nobodys_way(commits):
    some = commits(0.0)
    first = some.begin(1)
    some.began.acquire()

    some.is_stopped(when=lambda: some.wait_for(1))
    some.may_end.release(2)

    for each in [*first, *some.begin(1)]:
        each.result(LONG_S)
    assert some.sizes == [1, 1]


@has_ctrl_c
def test_one_that_is_stopped_while_a_commit_has_it_is_not_put_off_to_the_next(commits):
    some = commits(0.0)
    first = some.begin(1)
    some.began.acquire()
    second = some.begin(1)
    some.wait_for(1)
    some.put_off_behind = 1

    def when() -> None:
        some.wait_for(2)
        some.may_end.release()
        some.began.acquire()

    some.is_stopped(when)
    some.may_end.release(2)

    for each in [*first, *second, *some.begin(1)]:
        each.result(LONG_S)
    assert some.sizes == [1, 2, 1]


@has_ctrl_c
def test_a_leader_that_is_stopped_while_it_waits_for_others_leaves_the_lead_to_them(commits):
    some = commits(LONG_S)
    some.one_then_seven()
    others = []

    def when() -> None:
        some.wait_for(1)
        others.extend(some.begin(1))
        some.wait_for(2)

    some.is_stopped(when)
    others.extend(some.begin(2))
    some.may_end.release()

    for each in others:
        each.result(LONG_S)
    assert some.sizes == [1, 7, 3]


@has_ctrl_c
def test_those_behind_one_that_is_stopped_while_a_commit_has_it_are_told_all_the_same(commits):
    some = commits(0.0)
    first = some.begin(1)
    some.began.acquire()
    second = some.begin(1)
    some.wait_for(1)
    behind = []

    def when() -> None:
        some.wait_for(2)
        behind.extend(some.begin(2))
        some.wait_for(4)
        some.may_end.release()
        some.began.acquire()

    some.is_stopped(when)
    some.may_end.release(2)

    for each in [*first, *second, *behind]:
        each.result(LONG_S)
    assert some.sizes == [1, 4]
