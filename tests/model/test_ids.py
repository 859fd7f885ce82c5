from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages import errors
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.model.ids import (
    MAX_ORDINAL,
    MAX_VERSION,
    format_page_id,
    page_id,
    page_version,
    parse_page_id,
)

CLASSES = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, SparkPagesError)
]


@given(st.integers(0, MAX_VERSION), st.integers(0, MAX_ORDINAL))
def test_a_page_id_fits_63_bits_and_tells_its_version(version, ordinal):
    page = page_id(version, ordinal)

    assert 0 <= page < 1 << 63
    assert page_version(page) == version
    assert len(format_page_id(page)) == 16
    assert parse_page_id(format_page_id(page)) == page


@pytest.mark.parametrize("given_", [(-1, 0), (0, -1), (MAX_VERSION + 1, 0), (0, MAX_ORDINAL + 1)])
def test_numbers_that_need_more_bits_than_the_format_gives_are_refused(given_):
    with pytest.raises(InvalidInputError, match="page id"):
        page_id(*given_)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "g" * 16, "f" * 16, "0x00000000000001", " " * 16),
        *("-00000000000001", "-0000000000000001", "--00000000000001"),
    ],
)
def test_text_that_is_not_a_page_id_is_refused(text):
    with pytest.raises(InvalidInputError, match="16 hexadecimal digits"):
        parse_page_id(text)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_its_hint_and_context(kind):
    error = kind("It went wrong.", hint="Try again.", version=3, key="a/b")

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301

    assert type(copy) is kind
    assert str(copy) == "It went wrong. Try again."
    assert copy.context == {"version": 3, "key": "a/b"}
