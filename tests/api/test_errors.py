"""The tree of errors: also the built-in errors that callers expect, readable, and whole after pickling."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import spark_pages as sp
import spark_pages.service.segment_locator
import spark_pages.versions.restore
from spark_pages import errors
from spark_pages.errors import SparkPagesError


def tree(kind):
    return [kind, *(each for below in kind.__subclasses__() for each in tree(below))]


@pytest.fixture(scope="module")
def store():
    store = sp.create("memory://tree-of-errors")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": [1, 2]})
    return store


CAUGHT = {
    "a wrong value is a ValueError": (lambda s: s.snapshot("1"), ValueError),
    "a table that is not there is a KeyError": (lambda s: s.snapshot().table("u"), KeyError),
    "a column that is not there is a KeyError": (lambda s: s.snapshot().table("t").read(["m"]), KeyError),
    "a row that is not there is an IndexError": (lambda s: s.snapshot().table("t").take([2]), IndexError),
    "rows that are not there are a ValueError": (lambda s: s.snapshot().table("t").read(stop=3), ValueError),
}


@pytest.mark.parametrize("what", CAUGHT)
def test_callers_may_catch_the_built_in_error(store, what):
    call, kind = CAUGHT[what]

    with pytest.raises(kind) as caught:
        call(store)

    assert isinstance(caught.value, SparkPagesError)


@pytest.mark.parametrize("kind", tree(SparkPagesError))
def test_every_error_shows_its_message_and_hint_as_they_are(kind):
    assert str(kind("Cannot read 'flights': gone.", hint="Open it again.")) == (
        "Cannot read 'flights': gone. Open it again."
    )


def test_a_hint_begins_a_sentence_also_behind_the_words_of_another_library():
    error = SparkPagesError("Cannot use the check 'n': evaluates to int8", hint="Write `n > 0`.")

    assert str(error) == "Cannot use the check 'n': evaluates to int8. Write `n > 0`."


@pytest.mark.parametrize("kind", tree(SparkPagesError))
def test_every_error_is_the_same_after_pickling(kind):
    error = kind("Cannot read 'flights': gone.", hint="Open it again.", version=3, key="k")

    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert (type(again), again.message, again.hint, again.context) == (
        kind,
        error.message,
        error.hint,
        error.context,
    )


def test_every_error_of_the_tree_is_named_in_its_description():
    named = [kind for kind in tree(SparkPagesError) if kind.__module__ == errors.__name__]

    assert [kind.__name__ for kind in named if kind.__name__ not in errors.__doc__] == []


FILTERS = {
    "a column in SQL": "m = 1",
    "a column in a list": [("m", "==", 1)],
    "an operator": [("n", "~", 1)],
    "a function": "nope(n) = 1",
}


@pytest.mark.parametrize("what", FILTERS)
def test_a_refusal_inside_a_filter_is_told_once(store, what):
    with pytest.raises(SparkPagesError) as refused:
        store.snapshot().table("t").read(filter=FILTERS[what])

    assert not isinstance(refused.value.__cause__, SparkPagesError)
