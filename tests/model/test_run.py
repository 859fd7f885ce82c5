from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.model.columns import number_column, optional_text
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, empty_batch
from tests.model.chains import run_of


def with_paths(indices: list[int], given: list[bool], paths: list[str]) -> pa.RecordBatch:
    """Descriptors whose paths have these indices, also where they are null."""
    batch = run_of([1] * len(indices)).pages
    column = pa.DictionaryArray.from_arrays(
        number_column(np.array(indices, np.int32), pa.int32(), np.array(given)), optional_text(paths)
    )
    return batch.set_column(PAGE_SCHEMA.get_field_index("path"), PAGE_SCHEMA.field("path"), column)


@pytest.mark.parametrize("behind_a_null", [-1, 1 << 30, -(1 << 30)])
def test_what_stands_behind_a_null_path_is_never_followed(behind_a_null):
    one = with_paths([0, 1], [True, True], ["a", "b"])
    two = with_paths([behind_a_null, 0], [False, True], ["b"])
    three = with_paths([behind_a_null] * 2, [False, False], [])

    joined = concat_batches([one, two, three], PAGE_SCHEMA)
    again = concat_batches([two, joined, three], PAGE_SCHEMA)

    assert joined.column("path").to_pylist() == ["a", "b", None, "b", None, None]
    assert again.column("path").to_pylist() == [None, "b", "a", "b", None, "b", None, None, None, None]
    assert again.column("path").dictionary.to_pylist() == ["b", "a"]


def test_batches_without_rows_and_no_batches_join_to_nothing():
    for schema in (PAGE_SCHEMA, STATS_SCHEMA):
        assert concat_batches([], schema).num_rows == 0
        assert concat_batches([empty_batch(schema), empty_batch(schema)], schema).schema == schema


def test_a_slice_brings_only_its_own_pages():
    batch = with_paths([0, 1, 0], [True, False, True], ["a", "b"])

    joined = concat_batches([batch.slice(1), batch.slice(0, 1)], PAGE_SCHEMA)

    assert joined.column("path").to_pylist() == [None, "a", "a"]
    joined.validate(full=True)
