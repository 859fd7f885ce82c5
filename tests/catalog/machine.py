"""What state machines of several transactions share: who is open, what met what, and the names left."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

import spark_pages as sp
from spark_pages.store import Store
from tests.transaction.stores import QUIET


@dataclass
class Footprint:
    """What a transaction has to do with."""

    named: set[str] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)

    def meets(self, landed: Footprint) -> bool:
        mine, theirs = self.changed | self.used, landed.changed | landed.used
        return bool(self.named & landed.named or mine & landed.changed or self.changed & theirs)


class SeveralTransactions(RuleBasedStateMachine):
    """Two handles on a store, some open transactions, and a model of each version."""

    opened: ClassVar[Any]
    """Makes what is known of an open transaction: of it, the version that it read, and the model of that."""

    most_open: ClassVar[int]

    def two_stores(self) -> Store:
        """A new store; it is one of two handles."""
        first = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
        self.stores = [first, Store(first.object_store)]
        self.open: list[Any] = []
        self.versions: list[Any] = []
        return first

    def can_go_on(self, one: Any) -> bool:
        """Whether an open transaction is still of use."""
        return True

    def draw_open(self, data: st.DataObject) -> Any:
        """One of the open transactions that can go on, or a new one."""
        able = [each for each in self.open if self.can_go_on(each)]
        index = data.draw(st.integers(0, len(able)))
        if index == len(able) and len(able) < self.most_open:
            txn = data.draw(st.sampled_from(self.stores)).transaction()
            assert txn.snapshot.version == len(self.versions) - 1
            able.append(self.opened(txn, len(self.versions) - 1, copy.deepcopy(self.versions[-1])))
            self.open.append(able[-1])
        return able[min(index, len(able) - 1)]

    def draw_table(self, data: st.DataObject, one: Any) -> tuple[str, int] | None:
        names = sorted(one.model.tables)
        return (name := data.draw(st.sampled_from(names)), one.model.tables[name]) if names else None

    def changes(self, one: Any, uid: int) -> None:
        if uid not in one.new:
            one.mark.changed.add(uid)

    def bring_names(self, one: Any, model: Any, what: str) -> dict[str, int]:
        """The model gets the names that a transaction has given, and loses and returns those it has taken."""
        then, mine, now = (getattr(each, what) for each in (self.versions[one.read], one.model, model))
        gone = {name: uid for name, uid in then.items() if mine.get(name) != uid}
        for name in gone:
            del now[name]
        now.update({name: uid for name, uid in mine.items() if then.get(name) != uid})
        return gone

    def teardown(self) -> None:
        for each in self.open:
            each.txn.rollback()
        assert self.stores[0].verify(pages="all").ok
