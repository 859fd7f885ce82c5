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
