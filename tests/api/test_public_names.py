"""What `import spark_pages` offers by name."""

from __future__ import annotations

import inspect

import spark_pages as sp
from spark_pages import errors


def test_every_error_is_at_the_top_level():
    named = {
        name
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if each.__module__ == errors.__name__
    }

    assert {name for name in named if getattr(sp, name, None) is getattr(errors, name)} == named
    assert named <= set(sp.__all__)


def test_completion_offers_what_users_call_and_nothing_internal() -> None:
    store = sp.create("memory://completion")
    store.write("t", {"n": [1]})
    table = store["t"]

    for shown in (store, store.snapshot(), table, table.directory):
        names = dir(shown)
        assert [name for name in names if name[0] == "_" and name[:2] != "__"] == []
        assert {"reopen", "marks", "page_handler", "uncommitted", "pages_from"}.isdisjoint(names)
        assert all(hasattr(shown, name) for name in names)
    assert {"read", "scan", "take", "head", "schema", "num_rows"} <= set(dir(table))
    assert {"append", "sql", "snapshot", "diff"} <= set(dir(store))
