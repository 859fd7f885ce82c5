"""A filter or check that fails on a row says so in the words of its caller."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import ConstraintError, InvalidInputError
from tests.transaction.stores import store_with


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cast(f as int) = 1", "truncated"),
        ("cast(s as int) = 1", "'x'"),
        ("n % 0 = 1", "divide by zero"),
        ("cast(n as int) + 2147483647 > 0", "overflow"),
    ],
)
def test_a_filter_that_fails_on_a_row_says_which_filter_of_which_table_and_what_helps(text, why):
    rows = pa.table({"f": [1.0, 1.5], "s": ["1", "x"], "n": [1, 2]})
    table = store_with(rows).snapshot().table("t")

    with pytest.raises(
        InvalidInputError,
        match=f"(?s)Cannot evaluate the filter .* fails on a row of table 't': .*{why}.*cast",
    ):
        table.read(["n"], filter=text)
    with pytest.raises(InvalidInputError, match="fails on a row of table 't'"):
        table.scan(["n"], filter=text).read_all()


def test_a_check_that_fails_on_a_row_is_an_error_of_the_constraint(store):
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("s", pa.string())]))
        txn.add_constraint("t", "whole", check="cast(s as int) > 0")

    with pytest.raises(ConstraintError, match=r"Cannot tell whether .* break constraint 'whole'"):  # noqa: SIM117
        with store.transaction() as txn:
            txn.append("t", pa.table({"s": ["x"]}))
