"""The pages of a reconstruction in this process: for states that take less time than Spark's start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.spark.comparison import COMPARED, ORDER
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.tasks import ROWS_SCHEMA, CommitRows, SegmentRows


class LocalPages:
    """The same as `SparkPages`, held in memory: some 150 bytes a page."""

    def __init__(
        self,
        tasks: Sequence[SegmentRows | CommitRows],
        removed: NDArray[np.int64],
        places: pa.Table | None,
    ) -> None:
        batches = [batch for task in tasks for batch in task.rows(removed)]
        pages = pa.Table.from_batches(batches, ROWS_SCHEMA)
        pages = pages.append_column("has_rows", pc.greater(pages.column("entry_count"), 0))
        place = pa.chunked_array([np.zeros(pages.num_rows, np.int64)])
        if places is not None:
            found = pc.index_in(pages.column("page_id"), places.column("page_id"))
            place = pc.fill_null(places.column("place").take(found), 0)
        pages = pages.append_column("place", place)
        self._pages = pages.sort_by([(name, "ascending") for name in ORDER])

    def write(self, folder: OutputFolder) -> int:
        """The descriptors are in the folder, in the order of chains and rows; gives its bytes."""
        shown = self._pages.drop_columns(["has_rows", "place"])
        return folder.write_here(shown.schema, shown.to_batches())

    def compared(self) -> pa.Table:
        """What `comparison.differences` looks at."""
        return self._pages.select(list(dict.fromkeys([*ORDER, *COMPARED])))

    def count(self) -> int:
        """How many there are."""
        return int(self._pages.num_rows)
