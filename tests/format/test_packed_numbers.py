from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError
from spark_pages.format.page_columns import pack_numbers, unpack_numbers

NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)


@given(NUMBERS)
def test_packed_numbers_are_read_as_they_were_written(numbers):
    assert unpack_numbers(pack_numbers(numbers)).tolist() == numbers


@given(st.binary(max_size=40))
def test_any_bytes_are_numbers_or_damage(data):
    try:
        found = unpack_numbers(data)
    except DamageError:
        return
    assert len(found) <= len(data)


def test_numbers_in_narrow_steps_take_a_byte_each():
    assert len(pack_numbers(range(1 << 40, (1 << 40) + 1_000, 100))) == 9 + 9


def test_no_number_takes_no_byte():
    assert pack_numbers(()) == b""


@pytest.mark.parametrize("data", [b"\x03" + bytes(8), b"\x01" + bytes(7), b"\x02" + bytes(9)])
def test_bytes_of_another_form_are_damage(data):
    with pytest.raises(DamageError, match="packed numbers"):
        unpack_numbers(data)
