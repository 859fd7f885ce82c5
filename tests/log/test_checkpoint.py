from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from spark_pages.log.checkpoint.root import Root, next_predecessors
from spark_pages.log.discovery import nearest_checkpoint
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.location import Location
from spark_pages.store import Store
from tests.invariants import check_checkpoint, check_store
from tests.transaction.stores import store_with

COUNT = 300


def ref(sequence: int) -> CheckpointRef:
    """Checkpoint number `sequence` is of version three times that."""
    return CheckpointRef(3 * sequence, Location(f"root {sequence}", 1, ""))


class Roots:
    """Roots without storage, that counts how many are read."""

    def __init__(self) -> None:
        self.roots: dict[str, Root] = {}
        self.reads = 0
        predecessors: tuple[tuple[int, CheckpointRef], ...] = ()
        for sequence in range(COUNT):
            root = Root(LogState(), sequence, predecessors, (), ())
            self.roots[ref(sequence).location.key] = root
            predecessors = next_predecessors(root, ref(sequence))

    def root(self, wanted: CheckpointRef) -> Root:
        self.reads += 1
        return self.roots[wanted.location.key]


def test_predecessors_are_the_newest_of_each_power_of_two():
    roots = Roots()

    for sequence in range(1, COUNT):
        expected = {(sequence - 1) // 2**k * 2**k for k in range(10)}
        told = [number for number, _ in roots.roots[ref(sequence).location.key].predecessors]
        assert told == sorted(expected, reverse=True)


def test_the_nearest_checkpoint_of_every_version_is_reached_in_few_steps():
    roots = Roots()

    for version in range(3 * COUNT):
        roots.reads = 0
        found = nearest_checkpoint(roots, ref(COUNT - 1), version)
        assert found == ref(min(version // 3, COUNT - 1))
        assert roots.reads <= 18


def test_a_version_before_the_first_checkpoint_has_none():
    late = CheckpointRef(5, Location("root 0", 1, ""))

    assert nearest_checkpoint(Roots(), late, 3) is None


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_tails_pile_up_and_merge_into_the_base(small_trees, seed):
    store = store_with(pa.table({"n": list(range(5))}))
    levels = []

    for number in range(40):
        with store.transaction() as txn:
            if number % 10 == seed:
                txn.create_table(f"t{number:02d}", pa.schema([("n", pa.int64())]))
            for name in store.snapshot().tables()[number % 3 :: 2]:
                txn.append(name, pa.table({"n": [number]}))
            if number % 7 == seed:
                txn.update_rows("t", [number % 5], {"n": [-number]})
        if number % 2 == seed % 2 or number > 30:
            store.checkpoint()
            checkpoint = store.snapshot().log.checkpoint
            check_checkpoint(checkpoint, max_pages=5)
            levels.append(max(checkpoint.levels()))

    check_store(Store(store.object_store))
    assert max(levels) > 0
    assert any(later < earlier for earlier, later in itertools.pairwise(levels))
