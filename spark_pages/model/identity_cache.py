"""What was worked out of an object, kept by the object itself.

For values that cannot be hashed, or take as long to hash as the work takes, and that live long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Of = TypeVar("Of")
Result = TypeVar("Result")

_MOST = 256


class IdentityCache(Generic[Of, Result]):
    """Remembers what was worked out of the objects asked about lately. Safe to share between threads.

    Parameters
    ----------
    work_out
        Gives what is to be remembered; always the same for one object, which must not change.
    """

    def __init__(self, work_out: Callable[[Of], Result]) -> None:
        self._work_out = work_out
        self._known: dict[int, tuple[Any, Result]] = {}  # the object is kept, so that no other gets its id

    def __call__(self, about: Of) -> Result:
        """What was worked out of this object."""
        known = self._known.get(id(about))
        if known is None:
            known = about, self._work_out(about)
            if len(self._known) >= _MOST:
                self._known = {}
            self._known[id(about)] = known
        return known[1]
