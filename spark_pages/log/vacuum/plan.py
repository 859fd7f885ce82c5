"""What a vacuum will do, as a value to look at before it is done, and what it has done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.boundary import guarded
from spark_pages.display.markup import card, facts, joined, table, tag
from spark_pages.display.text import count, size
from spark_pages.model.actions import Retention

OBJECTS_SCHEMA = pa.schema([("key", pa.string()), ("size_bytes", pa.int64()), ("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What a vacuum has done.

    Attributes
    ----------
    version
        The commit of its retention; None where nothing had to be committed.
    oldest
        The oldest version that can be read from now on.
    objects, size_bytes
        Objects deleted or turned into tombstones, and what they held; not those that had gone already.
    spared
        Objects of the plan that came into use again before the retention was in the log.
    """

    version: int | None
    oldest: int
    objects: int
    size_bytes: int
    spared: int = 0


@guarded()
@dataclass(frozen=True, eq=False, repr=False, slots=True)
class VacuumPlan:
    """What `execute` will delete: exactly this.

    Attributes
    ----------
    version
        The newest version when the plan was made.
    retention
        The bounds to be committed: versions from ``min_readable`` on stay readable.
    objects
        A row for each object: ``key``, ``bytes``, ``reason``. A slot is not deleted but becomes a tombstone.
    slots
        The slots among them, [first, end).
    again
        Whether a second vacuum, after this one, would find more: what only the checkpoint before needs.
    lacks_checkpoint
        Whether it makes do with an older checkpoint, because storage refused a new one.
    """

    version: int
    retention: Retention
    objects: pa.Table
    slots: tuple[int, int]
    again: bool
    _run: Callable[[VacuumPlan], VacuumResult]
    lacks_checkpoint: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Number of objects by reason."""
        counted = self.objects.column("reason").value_counts().to_pylist()
        return {each["values"]: each["counts"] for each in sorted(counted, key=lambda each: each["values"])}

    @property
    def size_bytes(self) -> int:
        """Bytes of all objects."""
        return pc.sum(self.objects.column("size_bytes")).as_py() or 0

    def __repr__(self) -> str:
        what = ", ".join(f"{count} × {reason}" for reason, count in self.counts.items())
        goes = f"{what}; {self.size_bytes:,} bytes" if what else "nothing goes"
        return f"VacuumPlan(versions {self.retention.min_readable} to {self.version} stay; {goes})"

    def _repr_html_(self) -> str:
        sums = self.objects.group_by("reason").aggregate([("key", "count"), ("size_bytes", "sum")])
        rows = [
            [each["reason"], each["key_count"], size(each["size_bytes_sum"])]
            for each in sums.sort_by("reason").to_pylist()
        ]
        heading = joined(tag("b", "plan of a vacuum"), " · nothing was deleted yet; execute() does it")
        goes = f"{count(self.objects.num_rows, 'object')}, {size(self.size_bytes)}" if rows else "nothing"
        told = facts(
            {
                "stays readable": f"versions {self.retention.min_readable:,} to {self.version:,}",
                "goes": goes,
                "slots that become tombstones": "none"
                if self.slots[0] >= self.slots[1]
                else f"{self.slots[0]:,} to {self.slots[1] - 1:,}",
                "a second vacuum would find more": self.again,
            }
        )
        return card(
            heading, told, table(["reason", "objects", "bytes"], rows, right=["bytes"]) if rows else ""
        )

    def execute(self) -> VacuumResult:
        """Delete what the plan says, after the log has been told.

        Raises
        ------
        CommitConflictError
            If a tag or lease has been put on a version that would go; nothing was deleted. Plan again.

        Notes
        -----
        May be killed anywhere and run again, and two may run at once. Costs one commit, and two requests
        for each object and slot.
        """
        return self._run(self)
