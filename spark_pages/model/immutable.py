"""Immutable mappings and arrays, and caches keyed by the identity of an immutable object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Never, TypeVar

import numpy as np
from numpy.typing import NDArray

Key = TypeVar("Key")
Value = TypeVar("Value")
Number = TypeVar("Number", bound=np.generic)


class FrozenDict(dict[Key, Value]):
    """A dict that refuses to change. Compares, hashes (not) and is pickled as a dict is.

    Raises
    ------
    TypeError
        If somebody tries to change it; ``dict(it)`` is a copy that may be changed.
    """

    __slots__ = ()

    @classmethod
    def of(cls, given: Mapping[Key, Value]) -> FrozenDict[Key, Value]:
        """Return a read-only copy of a mapping, or the mapping itself if it is read-only."""
        return given if isinstance(given, FrozenDict) else cls(given)

    @classmethod
    def merged(cls, given: Mapping[Key, Value], more: Mapping[Key, Value]) -> FrozenDict[Key, Value]:
        """One mapping with another one on top, copied once."""
        made = cls(given)
        dict.update(made, more)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("Cannot change a shared value: it is read-only. Change a copy: dict(value).")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


def freeze(owner: object, *names: str) -> None:
    """Make mappings, lists and arrays of a frozen dataclass read-only, in its ``__post_init__``."""
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, np.ndarray):
            value = read_only(value)
        elif isinstance(value, Mapping):
            value = FrozenDict.of(value)
        else:
            value = tuple(value)
        object.__setattr__(owner, name, value)


def read_only(array: NDArray[Number]) -> NDArray[Number]:
    """Return a read-only view of the array."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


# What was worked out of an object, kept by the object itself.
#
# For values that cannot be hashed, or take as long to hash as the work takes, and that live long.

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
        """Return the result computed for this object, and compute it on the first call."""
        known = self._known.get(id(about))
        if known is None:
            known = about, self._work_out(about)
            if len(self._known) >= _MOST:
                self._known = {}
            self._known[id(about)] = known
        return known[1]
